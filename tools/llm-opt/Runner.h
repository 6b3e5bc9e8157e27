// A compiled spec that runs calls of the harness on a device.
#pragma once

#include "codegen/compile/Compile.h"
#include "runtime/device/BoundCall.h"
#include "runtime/device/Device.h"
#include "runtime/device/StagedArrays.h"
#include "tools/harness/Call.h"
#include "tools/llm-opt/Place.h"

#include <memory>

namespace llmopt::cli {

/// Tiles that one Attend kernel counted.
struct TileCount {
  uint32_t kernel = 0; ///< index in Program::kernels
  uint64_t visited = 0, predicated = 0;
};

/// Times of one run, in seconds, what the kernels counted, and the plan that they ran.
struct RunFigures {
  double bind = 0, run = 0;
  uint64_t tilesVisited = 0, tilesPredicated = 0;
  std::vector<TileCount> kernels;
  runtime::Plan plan;
};

/// Where the tiles, pages and splits of a plan begin.
reference::Boundaries boundariesOf(const bundle::Program &program, const runtime::Plan &plan);

class Runner {
public:
  /// Compiles `spec` for the CPU, with options of its own, and loads it.
  static llvm::Expected<std::unique_ptr<Runner>> compile(mlir::func::FuncOp spec,
                                                         const CompileOptions &options);
  /// For a place's device, and only where its cache has it not.
  static llvm::Expected<std::unique_ptr<Runner>> compile(mlir::func::FuncOp spec,
                                                         const Place &place = {});
  /// Loads a program that was compiled before, on the CPU.
  static llvm::Expected<std::unique_ptr<Runner>> load(bundle::Program program);
  /// Loads what fits the place's device best.
  static llvm::Expected<std::unique_ptr<Runner>> load(std::vector<bundle::Program> family,
                                                      const Place &place);

  /// Runs a call; its output arrays and its boundaries are filled. `repeats` > 1 keeps the
  /// shortest run.
  llvm::Error run(harness::Call &call, RunFigures *figures = nullptr, unsigned repeats = 1);

  /// The same with the caller's own arrays in host memory, and numbers. With `validatePages`
  /// the page table is read first and ids outside the pool are refused, and -1 where the
  /// mask's intervals let a query see the page.
  llvm::Error run(const runtime::CallArguments &arguments, RunFigures *figures = nullptr,
                  unsigned repeats = 1, bool validatePages = false);

  /// A call as the runtime takes it, and the memory of its arrays with their guard zones, where
  /// those are to travel.
  runtime::CallArguments argumentsOf(harness::Call &call) const;
  runtime::ArrayStorage storageOf(harness::Call &call) const;

  const std::shared_ptr<runtime::DeviceProgram> &deviceProgram() const { return loaded; }
  runtime::Stream &deviceStream() { return *stream; }
  /// How calls are bound.
  runtime::BindOptions bindOptions() const;

  const bundle::Program &program() const { return loaded->program(); }
  double compileSeconds() const { return compileTime; }
  /// Whether the cache had it.
  bool cached() const { return wasCached; }
  /// "compiled in 35 ms", "from the cache in 1 ms".
  std::string compileText() const;
  runtime::Device &device() { return *loaded->device(); }

private:
  Runner(std::shared_ptr<runtime::DeviceProgram> program, std::unique_ptr<runtime::Stream> stream)
      : loaded(std::move(program)), stream(std::move(stream)) {}

  llvm::Error run(const runtime::CallArguments &arguments, const runtime::ArrayStorage &storage,
                  RunFigures *figures, unsigned repeats, bool validatePages);

  /// More lists of work than threads of a CPU, so that a thread which was held up sheds some.
  static constexpr uint32_t kListsPerThread = 4;

  std::shared_ptr<runtime::DeviceProgram> loaded;
  std::unique_ptr<runtime::Stream> stream;
  double compileTime = 0;
  bool wasCached = false;
};

} // namespace llmopt::cli

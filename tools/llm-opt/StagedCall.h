// A call of the harness whose arrays lie on the device: planned once, launched or replayed from
// a graph any number of times, with new contents and lengths in between.
#pragma once

#include "tools/llm-opt/PatternArrays.h"
#include "tools/llm-opt/Runner.h"

namespace llmopt::cli {

class StagedCall {
public:
  enum class Launch : uint8_t { Direct, Captured };

  /// Brings `call` to the runner's device; with Captured, captures its launches, without
  /// running them. Arrays of the call without memory are made on the device.
  static llvm::Expected<std::unique_ptr<StagedCall>> make(Runner &runner, harness::Call &call,
                                                          Launch launch);

  /// Waits: work uses the arrays.
  ~StagedCall() { static_cast<void>(runner.deviceStream().synchronize()); }

  /// Copies the call's arrays to the device, plans the lengths that they now hold, runs, and
  /// copies everything back. A graph is replayed as it was captured.
  llvm::Error run();

  /// Seconds on the device of each of `repeats` runs, without copies. Two come before, which do
  /// not count.
  llvm::Expected<std::vector<double>> time(unsigned repeats);

  const runtime::Plan &plan() const { return bound.plan(); }
  double bindSeconds() const { return bindTime; }
  /// Arrays that are on the device alone.
  const PatternArrays &patternArrays() const { return pattern; }
  /// What lies in one of them.
  llvm::Expected<std::vector<uint8_t>> download(const PatternArrays::Array &array);

private:
  StagedCall(Runner &runner, harness::Call &call, PatternArrays pattern,
             runtime::StagedArrays staged, runtime::BoundCall bound)
      : runner(runner), call(call), pattern(std::move(pattern)), staged(std::move(staged)),
        bound(std::move(bound)) {}
  runtime::Status capture();
  runtime::Status launch();
  runtime::Status runOnce();

  Runner &runner;
  harness::Call &call;
  PatternArrays pattern;
  runtime::StagedArrays staged;
  runtime::BoundCall bound;
  std::unique_ptr<runtime::Graph> graph;
  double bindTime = 0;
};

} // namespace llmopt::cli

// A program's code made executable on this CPU: what CpuDevice launches.
#pragma once

#include "runtime/bundle/Program.h"
#include "runtime/device/cpu/ElfLoader.h"
#include "runtime/target/CpuInfo.h"

#include <memory>
#include <vector>

namespace llmopt::runtime {

/// Cheap to copy: copies share the loaded code, which lives as long as any of
/// them.
class CpuProgram {
public:
  /// Checks the program, compares what its images need with this processor
  /// (`hostCpu`) and loads them. Unavailable names the missing features.
  static StatusOr<CpuProgram> load(bundle::Program program);
  static StatusOr<CpuProgram> load(bundle::Program program, const CpuInfo &cpu);

  const bundle::Program &program() const { return state->program; }
  /// Entry of Program::kernels[kernel].
  bundle::CpuEntry entry(size_t kernel) const { return state->entries[kernel]; }

private:
  struct State {
    bundle::Program program;
    std::vector<LoadedObject> images;
    std::vector<bundle::CpuEntry> entries;
  };

  explicit CpuProgram(std::shared_ptr<const State> state) : state(std::move(state)) {}

  std::shared_ptr<const State> state;
};

} // namespace llmopt::runtime

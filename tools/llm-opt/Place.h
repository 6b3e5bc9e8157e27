// Where the specs of a command run, by the name that --device gives.
#pragma once

#include "codegen/compile/Compile.h"
#include "runtime/cache/KernelCache.h"
#include "runtime/device/Device.h"

#include "llvm/Support/Error.h"

#include <memory>
#include <string>

namespace llmopt::cli {

inline constexpr const char *kDeviceHelp =
    "auto, cpu, cuda, cuda:NUMBER, sim, or sim:ARCH (the PTX simulator of a chip; sm_80)";

struct Place {
  std::shared_ptr<runtime::Device> device; ///< null: a CPU device of its own for each spec
  runtime::KernelCache *cache = nullptr;   ///< null: everything is compiled anew
};

/// Opens a device. With `cached`, programs are looked up in the kernel cache's default folder
/// (LLMOPT_CACHE_DIR, XDG_CACHE_HOME, ~/.cache) before they are compiled.
llvm::Expected<Place> openPlace(const std::string &device, bool cached);

/// Options that compile for a device; null is the host.
llvm::Expected<CompileOptions> optionsFor(const runtime::Device *device);

} // namespace llmopt::cli

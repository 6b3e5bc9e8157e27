// See SimSource.h.
#include "tools/llm-opt/SimSource.h"

#include "codegen/cuda/nvrtc/Nvrtc.h"
#include "runtime/base/File.h"

#include <fmt/ranges.h>

namespace llmopt::cli {
namespace {

using runtime::StatusOr;

constexpr uint64_t kMaxTextBytes = 64 << 20;

StatusOr<SimText> compile(const SimSource &source, std::string text) {
  StatusOr<runtime::CudaArch> arch =
      runtime::CudaArch::parse(source.arch.empty() ? "sm_80" : source.arch);
  if (!arch)
    return arch.status();
  arch->isVirtual = true; // no machine code
  StatusOr<std::shared_ptr<const cuda::Nvrtc>> nvrtc = cuda::Nvrtc::load();
  if (!nvrtc)
    return nvrtc.status();
  // A kernel for another architecture would be another kernel.
  if (arch->number() > (*nvrtc)->archs().back())
    return runtime::invalidArgument("NVRTC {} knows no {}; it knows {}", (*nvrtc)->version(),
                                    source.arch, fmt::join((*nvrtc)->archs(), ", "));
  cuda::KernelSource kernel{
      .text = std::move(text), .name = source.path, .arch = arch->name(), .lineInfo = true};
  for (const std::string &define : source.defines)
    kernel.options.push_back("--define-macro=" + define);
  for (const std::string &folder : source.includes)
    kernel.options.push_back("--include-path=" + folder);
  StatusOr<cuda::CompiledKernel> compiled = (*nvrtc)->compile(kernel);
  if (!compiled)
    return compiled.status();
  return SimText{std::move(compiled->ptx),
                 source.path.substr(0, source.path.size() - sizeof(".cu") + 1) + ".ptx"};
}

} // namespace

StatusOr<SimText> readSimSource(const SimSource &source) {
  if (!source.isCuda() &&
      !(source.arch.empty() && source.defines.empty() && source.includes.empty()))
    return runtime::invalidArgument("--arch, -D and -I are for CUDA C++ in a file of the name "
                                    "NAME.cu; '{}' is taken for PTX",
                                    source.path);
  StatusOr<std::vector<uint8_t>> bytes = runtime::readFile(source.path, kMaxTextBytes);
  if (!bytes)
    return bytes.status();
  std::string text(bytes->begin(), bytes->end());
  return source.isCuda() ? compile(source, std::move(text)) : SimText{std::move(text), source.path};
}

} // namespace llmopt::cli

#include "tests/unit/sim/Nvrtc.h"

#include "codegen/cuda/nvrtc/Nvrtc.h"

#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <sstream>

namespace llmopt::sim::test {

std::optional<std::string> compileToPtx(const std::string &source, const std::string &arch,
                                        const std::vector<std::string> &options) {
  static const auto nvrtc = cuda::Nvrtc::load();
  if (!nvrtc)
    return std::nullopt;
  static std::map<std::string, std::string> compiled;
  std::string key = arch;
  for (const std::string &option : options)
    key += " " + option;
  key += "\n" + source;
  if (auto it = compiled.find(key); it != compiled.end())
    return it->second;
  auto kernel = (*nvrtc)->compile({source, "kernel.cu", "compute_" + arch, options});
  EXPECT_TRUE(kernel.ok()) << kernel.status().toString();
  return compiled[key] = kernel ? kernel->ptx : "";
}

std::string kernelSource(const std::string &name) {
  std::ifstream file(std::string(LLMOPT_SIM_KERNELS) + "/" + name);
  EXPECT_TRUE(file) << "no kernel source " << name;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

} // namespace llmopt::sim::test

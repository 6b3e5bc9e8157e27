#include "tests/unit/sim/Nvrtc.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <sstream>

namespace llmopt::sim::test {

namespace {

using Program = void *;

struct Api {
  int (*create)(Program *, const char *, const char *, int, const char *const *,
                const char *const *) = nullptr;
  int (*compile)(Program, int, const char *const *) = nullptr;
  int (*ptxSize)(Program, size_t *) = nullptr;
  int (*ptx)(Program, char *) = nullptr;
  int (*logSize)(Program, size_t *) = nullptr;
  int (*log)(Program, char *) = nullptr;
  int (*destroy)(Program *) = nullptr;
};

const Api *api() {
  static const std::optional<Api> loaded = []() -> std::optional<Api> {
    void *library = nullptr;
    for (std::string name : {"libnvrtc.so.13", "libnvrtc.so"}) {
      for (std::string folder : {std::string(LLMOPT_CUDA_LIBRARY_DIR), std::string()}) {
        std::string path = folder.empty() ? name : folder + "/" + name;
        if (!library)
          library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      }
    }
    if (!library)
      return std::nullopt;
    Api api;
    auto find = [&](auto &function, const char *name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    };
    find(api.create, "nvrtcCreateProgram");
    find(api.compile, "nvrtcCompileProgram");
    find(api.ptxSize, "nvrtcGetPTXSize");
    find(api.ptx, "nvrtcGetPTX");
    find(api.logSize, "nvrtcGetProgramLogSize");
    find(api.log, "nvrtcGetProgramLog");
    find(api.destroy, "nvrtcDestroyProgram");
    return api;
  }();
  return loaded ? &*loaded : nullptr;
}

} // namespace

std::optional<std::string> compileToPtx(const std::string &source, const std::string &arch,
                                        const std::vector<std::string> &options) {
  const Api *nvrtc = api();
  if (!nvrtc)
    return std::nullopt;
  static std::map<std::string, std::string> compiled;
  std::string key = arch + "\n" + fmt::format("{}", fmt::join(options, " ")) + "\n" + source;
  if (auto it = compiled.find(key); it != compiled.end())
    return it->second;
  Program program = nullptr;
  if (nvrtc->create(&program, source.c_str(), "kernel.cu", 0, nullptr, nullptr) != 0)
    return std::nullopt;
  std::string archOption = "--gpu-architecture=" + arch;
  std::vector<const char *> all = {archOption.c_str()};
  for (const std::string &option : options)
    all.push_back(option.c_str());
  int result = nvrtc->compile(program, static_cast<int>(all.size()), all.data());
  size_t size = 0;
  std::string text;
  if (result != 0) {
    nvrtc->logSize(program, &size);
    text.resize(size);
    nvrtc->log(program, text.data());
    ADD_FAILURE() << text;
    text.clear();
  } else {
    nvrtc->ptxSize(program, &size);
    text.resize(size);
    nvrtc->ptx(program, text.data());
    text.pop_back(); // the final zero
  }
  nvrtc->destroy(&program);
  return compiled[key] = text;
}

std::string kernelSource(const std::string &name) {
  std::ifstream file(std::string(LLMOPT_SIM_KERNELS) + "/" + name);
  EXPECT_TRUE(file) << "no kernel source " << name;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

} // namespace llmopt::sim::test

// Where NVRTC may be.
#include "codegen/cuda/nvrtc/Nvrtc.h"

#include "runtime/base/DynamicLibrary.h"

#include <sys/stat.h>

namespace llmopt::cuda {

using runtime::environment;
using runtime::matchingPaths;

namespace {

/// Sonames of the versions that this was written for, the newest first.
const std::vector<std::string> kNames = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

bool isFolder(const std::string &path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

void addFolder(const std::string &folder, std::vector<std::string> &candidates) {
  for (const std::string &name : kNames)
    for (std::string &path : matchingPaths(folder + "/" + name))
      candidates.push_back(std::move(path));
}

/// A Python environment's folder with nvidia-cuda-nvrtc (13) or nvidia-cuda-nvrtc-cu12.
void addPackages(const std::string &packages, std::vector<std::string> &candidates) {
  for (const char *folder : {"/nvidia/cu13/lib", "/nvidia/cuda_nvrtc/lib"})
    for (const std::string &path : matchingPaths(packages + folder))
      addFolder(path, candidates);
}

} // namespace

std::vector<std::string> nvrtcCandidates() {
  std::vector<std::string> candidates;
  if (std::string given = environment("LLMOPT_NVRTC"); !given.empty()) {
    if (!isFolder(given))
      return {given};
    addFolder(given, candidates);
    if (candidates.empty())
      candidates.push_back(given + "/" + kNames.front());
    return candidates;
  }
  candidates = kNames;
  for (const char *variable : {"CUDA_HOME", "CUDA_PATH"})
    if (std::string root = environment(variable); !root.empty())
      addFolder(root + "/lib64", candidates);
  addFolder("/usr/local/cuda/lib64", candidates);
  for (const char *variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (std::string root = environment(variable); !root.empty())
      addPackages(root + "/lib/python3*/site-packages", candidates);
  if (std::string home = environment("HOME"); !home.empty())
    addPackages(home + "/.local/lib/python3*/site-packages", candidates);
  addPackages("/usr/local/lib/python3*/dist-packages", candidates);
  return candidates;
}

} // namespace llmopt::cuda

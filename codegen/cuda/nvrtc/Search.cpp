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

void addToolkit(const std::string &root, NvrtcPlaces &places) {
  places.folders.push_back(root + "/lib64");
  addFolder(places.folders.back(), places.candidates);
}

/// Python environments' folders (a pattern) with nvidia-cuda-nvrtc (13) or
/// nvidia-cuda-nvrtc-cu12.
void addPackages(const std::string &packages, NvrtcPlaces &places) {
  places.folders.push_back(packages);
  for (const char *folder : {"/nvidia/cu13/lib", "/nvidia/cuda_nvrtc/lib"})
    for (const std::string &path : matchingPaths(packages + folder))
      addFolder(path, places.candidates);
}

} // namespace

NvrtcPlaces nvrtcPlaces() {
  NvrtcPlaces places;
  if (std::string given = environment("LLMOPT_NVRTC"); !given.empty()) {
    if (isFolder(given))
      addFolder(given, places.candidates);
    else
      places.candidates = {given};
    if (places.candidates.empty())
      places.candidates.push_back(given + "/" + kNames.front());
    return places;
  }
  places.candidates = kNames;
  for (const char *variable : {"CUDA_HOME", "CUDA_PATH"})
    if (std::string root = environment(variable); !root.empty())
      addToolkit(root, places);
  addToolkit("/usr/local/cuda", places);
  const std::string packages = "/lib/python3*/site-packages";
  for (const char *variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (std::string root = environment(variable); !root.empty())
      addPackages(root + packages, places);
  for (const char *folder : {"venv", ".venv"})
    addPackages(folder + packages, places);
  if (std::string home = environment("HOME"); !home.empty())
    addPackages(home + "/.local" + packages, places);
  for (const char *folder :
       {"/usr/local/lib/python3*/dist-packages", "/usr/local/lib/python3*/site-packages",
        "/usr/lib/python3/dist-packages"})
    addPackages(folder, places);
  return places;
}

} // namespace llmopt::cuda

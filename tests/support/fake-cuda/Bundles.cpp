// Finds the PTX of machine code: see ptxBeside.
#include "tests/support/fake-cuda/Image.h"

#include "runtime/bundle/BundleIO.h"
#include "runtime/cache/BundleStore.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <vector>

namespace fakecuda {
namespace {

using namespace llmopt;
namespace fs = std::filesystem;

/// Bundle files, the newest first: what is loaded was most often just compiled.
std::vector<fs::path> bundleFiles() {
  const char *given = std::getenv("FAKE_CUDA_BUNDLES");
  std::istringstream in(fmt::format("{}:{}", given ? given : "", runtime::defaultCacheFolder()));
  std::multimap<fs::file_time_type, fs::path, std::greater<>> files;
  std::error_code error;
  auto add = [&](const fs::path &path) {
    if (fs::is_regular_file(path, error) && path.extension() == ".bundle")
      files.emplace(fs::last_write_time(path, error), path);
  };
  for (std::string part; std::getline(in, part, ':');) {
    if (!fs::is_directory(part, error))
      add(part);
    else
      for (fs::recursive_directory_iterator it(part, error), end; !error && it != end;
           it.increment(error))
        add(it->path());
  }
  std::vector<fs::path> paths;
  for (auto &[time, path] : files)
    paths.push_back(std::move(path));
  return paths;
}

std::optional<Beside> find(const bundle::Program &program, std::span<const uint8_t> machineCode) {
  for (const bundle::Kernel &kernel : program.kernels) {
    std::vector<uint32_t> images = kernel.otherImages;
    images.push_back(kernel.image);
    const bundle::Image *code = nullptr, *ptx = nullptr;
    for (uint32_t index : images) {
      const bundle::Image &image = program.images[index];
      if (image.format == bundle::ImageFormat::Ptx)
        ptx = &image;
      else if (std::ranges::equal(image.bytes, machineCode))
        code = &image;
    }
    if (code && ptx)
      return Beside{code->cpu, {ptx->bytes.begin(), ptx->bytes.end()}};
  }
  return std::nullopt;
}

} // namespace

Beside ptxBeside(std::span<const uint8_t> machineCode) {
  for (const fs::path &path : bundleFiles()) {
    runtime::StatusOr<std::vector<bundle::Program>> family = bundle::loadFamily(path.string());
    if (!family)
      continue;
    for (const bundle::Program &program : *family)
      if (std::optional<Beside> found = find(program, machineCode))
        return *found;
  }
  return {};
}

} // namespace fakecuda

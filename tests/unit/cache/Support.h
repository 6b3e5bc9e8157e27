// A folder for one test, and programs to keep in it.
#pragma once

#include "runtime/bundle/BundleIO.h"
#include "runtime/cache/BundleStore.h"
#include "runtime/cache/KernelCache.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <unistd.h>

namespace cachetest {

using namespace llmopt;
using namespace llmopt::runtime;
namespace fs = std::filesystem;

/// Different for each number.
inline std::string keyOf(int number) { return fmt::format("{:064x}", number + 0xabc); }

/// A program whose bytes follow from its key.
inline bundle::Program programOf(const std::string &key, size_t bytes = 2000) {
  bundle::Program program;
  program.key = key;
  program.name = "spec_" + key.substr(key.size() - 3);
  program.ir = "func.func @" + program.name;
  bundle::Image image{.triple = "test", .cpu = "", .features = "", .bytes = {}};
  for (size_t i = 0; i < bytes; ++i)
    image.bytes.push_back(static_cast<uint8_t>(key[i % key.size()] * (i + 1)));
  program.images.push_back(std::move(image));
  program.kernels.push_back({.entry = "attend", .kind = bundle::KernelKind::Append});
  return program;
}

struct CacheTest : testing::Test {
  fs::path folder = fs::temp_directory_path() / fmt::format("cache-test-{}", ::getpid());
  void SetUp() override { fs::remove_all(folder); }
  void TearDown() override { fs::remove_all(folder); }
};

/// Files of a folder's store that are not entries.
inline std::vector<std::string> leftovers(const fs::path &folder) {
  std::vector<std::string> found;
  if (fs::exists(folder))
    for (const fs::directory_entry &entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file() && entry.path().extension() != ".bundle")
        found.push_back(entry.path());
  return found;
}

} // namespace cachetest

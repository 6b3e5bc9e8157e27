// Small trace files that live as long as a test.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <unistd.h>
#include <zlib.h>

namespace llmopt::test {

class TraceFiles : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "llmopt-trace-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  std::string write(const std::string &name, std::string_view text) {
    std::string path = folder / name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  std::string writeGzip(const std::string &name, std::string_view text) {
    std::string path = folder / name;
    gzFile file = gzopen(path.c_str(), "wb");
    EXPECT_EQ(gzwrite(file, text.data(), unsigned(text.size())), int(text.size()));
    gzclose(file);
    return path;
  }

  std::filesystem::path folder;
};

} // namespace llmopt::test

// Where the tests find model configurations, conformance cases and traces.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>

namespace llmopt::test {

/// The test data folder, or an empty path: LLMOPT_TEST_DATA of the environment,
/// else what the build was configured with.
inline std::filesystem::path dataFolder() {
  const char *fromEnvironment = std::getenv("LLMOPT_TEST_DATA");
  std::filesystem::path folder =
      fromEnvironment && *fromEnvironment ? fromEnvironment : LLMOPT_TEST_DATA_DEFAULT;
  return std::filesystem::is_directory(folder) ? folder : std::filesystem::path();
}

} // namespace llmopt::test

/// At the start of a test that reads the data. CI fails on a skip that
/// tests/expected-skips.txt does not list.
#define LLMOPT_NEEDS_TEST_DATA()                                                                   \
  if (::llmopt::test::dataFolder().empty())                                                        \
  GTEST_SKIP() << "no test data; set LLMOPT_TEST_DATA"

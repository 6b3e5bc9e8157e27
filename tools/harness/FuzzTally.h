// What came of the specs of one `llm-opt fuzz`, and whether that is good enough.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace llmopt::harness {

struct FuzzTally {
  int64_t passed = 0, failed = 0, cases = 0;
  std::map<std::string, int64_t> refused; ///< reason -> specs

  int64_t refusedSpecs() const;
  /// Of `count` specs one in 20 may be refused, and one of a handful.
  static int64_t mostRefused(int64_t count);
  /// Why the run does not count as passed, apart from misses, which were told when they came up;
  /// empty where it does. A run that compiles next to nothing has shown nothing.
  std::string objection(int64_t count) const;
};

} // namespace llmopt::harness

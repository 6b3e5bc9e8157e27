// A shared library that is looked for at run time: NVRTC, the CUDA driver. The program
// starts and works without it; what was tried is in the error.
#pragma once

#include "runtime/base/Status.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace llmopt::runtime {

/// A function to find: `*slot` becomes its address.
struct Symbol {
  const char *name;
  void **slot;
  bool optional = false; ///< null when an older library lacks it
};

/// Stays loaded for the rest of the process: such libraries start threads and
/// register handlers that must not lose their code.
class DynamicLibrary {
public:
  /// Opens the first candidate that opens. A candidate is a file with a path, or a name
  /// that the system's loader looks up. Unavailable lists each one with the reason;
  /// `what` begins the message: "no NVRTC".
  static StatusOr<DynamicLibrary> open(std::span<const std::string> candidates,
                                       std::string_view what);

  /// Fills in all symbols; Unavailable names what a library of that version lacks.
  Status resolve(std::span<const Symbol> symbols) const;

  /// The file, as the loader found it.
  const std::string &path() const { return file; }

private:
  DynamicLibrary(void *handle, std::string file) : handle(handle), file(std::move(file)) {}

  void *handle;
  std::string file;
};

/// The paths that match a shell pattern, sorted backwards so that newer versions come first.
std::vector<std::string> matchingPaths(const std::string &pattern);

/// The value of an environment variable, or an empty string.
std::string environment(const char *name);

} // namespace llmopt::runtime

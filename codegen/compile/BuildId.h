// Which build of the compiler this is: part of every key, so that kernels which another build
// made are never taken for its own.
#pragma once

#include <string>

namespace llmopt {

/// The linker's build id of the program or library that holds this code; where it has none,
/// the file's size and time. The same text in every call.
const std::string &compilerBuildId();

} // namespace llmopt

// The option --shape: a batch on the command line.
#pragma once

#include "tools/harness/Generate.h"

#include <string>

namespace llmopt::cli {

inline constexpr const char *kShapeHelp =
    "one shape: q=LENGTHS,kv=LENGTHS with lengths separated by ';', 32x1 for thirty-two of 1, and "
    "numbers by name (scale=, window=, softcap=)";

/// "q=1;5,kv=3;9,window=100" and "q=32x1,kv=32x4096".
llvm::Expected<harness::Shape> parseShape(const std::string &text, uint64_t seed);

/// The same of a shape's lengths, without spaces: "q=1;5,kv=3;9".
std::string lengthsText(const harness::Shape &shape);

} // namespace llmopt::cli

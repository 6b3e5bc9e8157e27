// Small pieces of text that both importers write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace llmopt::importer {

/// A double as an MLIR literal that parses back to the same value: "0.125",
/// "1.0", "1.0e-05".
std::string floatLiteral(double value);

/// Control characters and the like become '?', so that foreign text can stand in a
/// comment or in a message of one line.
std::string oneLine(std::string_view text);

/// "0-4, 6-10" or, for a regular pattern, "0, 2, ..., 44". `numbers` ascend.
std::string ranges(const std::vector<int64_t> &numbers);

/// The last component of a path.
std::string_view baseName(std::string_view path);

} // namespace llmopt::importer

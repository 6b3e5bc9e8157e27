// JSON texts that come from outside: parsed within limits, refused with line and column.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace llmopt::runtime {

/// Copies, dumps and walks of a JSON value recurse: a text of a hundred thousand '[' would end the
/// process for want of stack. No file that is read here nests more than ten levels.
inline constexpr size_t kMaxJsonNesting = 256;

/// What is wrong with a text, in one line, and where: both from 1, columns in bytes.
struct JsonProblem {
  size_t line = 1, column = 1;
  std::string what;
};

/// Reads a text that is one JSON value of at most kMaxJsonNesting levels, with numbers that a
/// double holds; else says what is wrong with it.
std::optional<JsonProblem> parseJson(std::string_view text, nlohmann::json &value);

/// The value as text for a message: of a long one the beginning.
std::string shortJson(const nlohmann::json &value);

} // namespace llmopt::runtime

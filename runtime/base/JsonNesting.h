// A limit of nesting for JSON texts that come from outside.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace llmopt::runtime {

/// Copies, dumps and walks of a JSON value recurse: a text of a hundred thousand '[' would end the
/// process for want of stack. No file that is read here nests more than ten levels.
inline constexpr size_t kMaxJsonNesting = 256;

/// Where the text opens an object or a list inside kMaxJsonNesting others; nothing where it never
/// does. Wants no valid JSON, so that it can be asked before the text is parsed.
inline std::optional<size_t> jsonNestedTooDeep(std::string_view text) {
  size_t depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i)
        i += text[i] == '\\';
    } else if (text[i] == '{' || text[i] == '[') {
      if (++depth > kMaxJsonNesting)
        return i;
    } else if ((text[i] == '}' || text[i] == ']') && depth) {
      --depth;
    }
  }
  return std::nullopt;
}

} // namespace llmopt::runtime

#include "runtime/base/Json.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <fmt/format.h>

using nlohmann::json;

namespace llmopt::runtime {
namespace {

/// Where the text opens an object or a list inside kMaxJsonNesting others; nothing where it never
/// does. Wants no valid JSON, so that it can be asked before the text is parsed.
std::optional<size_t> nestedTooDeep(std::string_view text) {
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

/// One line of at most `most` bytes.
std::string shortened(std::string text, size_t most) {
  if (text.size() > most) {
    while (most > 0 && (text[most] & 0xc0) == 0x80) // within a character
      --most;
    text = text.substr(0, most) + "...";
  }
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text;
}

/// Takes nothing from a text but where the parser gives up, and why. The parser's exception for a
/// number that no double holds does not say where it stands.
class Locator final : public nlohmann::json_sax<json> {
public:
  size_t offset = 0;
  std::string what;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(json::number_integer_t) override { return true; }
  bool number_unsigned(json::number_unsigned_t) override { return true; }
  bool number_float(json::number_float_t, const std::string &) override { return true; }
  bool string(std::string &) override { return true; }
  bool binary(json::binary_t &) override { return true; }
  bool start_object(size_t) override { return true; }
  bool key(std::string &) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }

  bool parse_error(size_t position, const std::string &token,
                   const json::exception &error) override {
    constexpr int kNumberOverflow = 406;
    constexpr size_t kMostToken = 40, kMostText = 200;
    if (error.id == kNumberOverflow) {
      offset = position - std::min(position, token.size());
      what = fmt::format("the number {} is too large; up to 1.8e308 are allowed",
                         shortened(token, kMostToken));
      return false;
    }
    offset = position ? position - 1 : 0;
    // "[json.exception.parse_error.101] parse error at line 3, column 5: syntax error while
    // parsing value - invalid literal; last read: ..."
    what = error.what();
    for (std::string_view mark : {"column ", ": "})
      if (size_t found = what.find(mark); found != std::string::npos)
        what.erase(0, found + mark.size());
    what = shortened(std::move(what), kMostText);
    return false;
  }
};

JsonProblem problemAt(std::string_view text, size_t offset, std::string what) {
  std::string_view before = text.substr(0, std::min(offset, text.size()));
  auto lines = size_t(std::count(before.begin(), before.end(), '\n'));
  return {1 + lines, before.size() - (before.find_last_of('\n') + 1) + 1, std::move(what)};
}

} // namespace

std::optional<JsonProblem> parseJson(std::string_view text, json &value) {
  // The parser takes a NUL for the end of the text.
  if (size_t nul = text.find('\0'); nul != std::string_view::npos)
    return problemAt(text, nul, "a NUL byte");
  if (std::optional<size_t> deep = nestedTooDeep(text))
    return problemAt(text, *deep,
                     fmt::format("nested too deeply; {} levels are allowed", kMaxJsonNesting));
  value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!value.is_discarded())
    return std::nullopt;
  Locator locator;
  json::sax_parse(text, &locator);
  return problemAt(text, locator.offset, std::move(locator.what));
}

std::string shortJson(const json &value) {
  constexpr size_t kMost = 80;
  return shortened(value.dump(-1, ' ', false, json::error_handler_t::replace), kMost);
}

} // namespace llmopt::runtime

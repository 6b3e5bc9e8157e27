// Splits PTX text into tokens.
#pragma once

#include <cstdint>
#include <string_view>

namespace llmopt::sim::ptx {

struct Token {
  enum class Kind : uint8_t {
    End,
    Name,   ///< add, %r1, $L__BB0_1, _ZN3foo
    Dotted, ///< .global, .shared::cta, .x: text without the dot
    Number, ///< 12, 0x1F, 0f3F800000, 1.5, with a U suffix
    String, ///< text without the quotes
    Punct,  ///< one character
    Bad,    ///< a character that PTX does not have
  };
  Kind kind = Kind::End;
  std::string_view text;
  uint32_t line = 1;
  const char *begin = nullptr; ///< first character, with dot or quote
  const char *end = nullptr;

  bool is(char punct) const { return kind == Kind::Punct && text[0] == punct; }
  bool isDotted(std::string_view name) const { return kind == Kind::Dotted && text == name; }
};

class Lexer {
public:
  explicit Lexer(std::string_view text) : position(text.data()), limit(text.data() + text.size()) {}

  Token next();

private:
  void skipBlanks();

  const char *position;
  const char *limit;
  uint32_t line = 1;
};

} // namespace llmopt::sim::ptx

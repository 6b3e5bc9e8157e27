#include "runtime/device/sim/ptx/Lexer.h"

namespace llmopt::sim::ptx {

namespace {

bool isDigit(char c) { return c >= '0' && c <= '9'; }
bool isLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool isNameStart(char c) { return isLetter(c) || c == '_' || c == '$' || c == '%'; }
bool isNamePart(char c) { return isLetter(c) || isDigit(c) || c == '_' || c == '$'; }

} // namespace

void Lexer::skipBlanks() {
  while (position < limit) {
    char c = *position;
    if (c == '\n') {
      ++line;
      ++position;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v' || c == '\0') {
      ++position;
    } else if (c == '/' && position + 1 < limit && position[1] == '/') {
      while (position < limit && *position != '\n')
        ++position;
    } else if (c == '/' && position + 1 < limit && position[1] == '*') {
      position += 2;
      while (position < limit && !(*position == '*' && position + 1 < limit && position[1] == '/'))
        line += *position++ == '\n';
      position = limit - position > 2 ? position + 2 : limit;
    } else {
      return;
    }
  }
}

Token Lexer::next() {
  skipBlanks();
  Token token;
  token.line = line;
  token.begin = position;
  auto finish = [&](Token::Kind kind, const char *from, const char *to) {
    token.kind = kind;
    token.text = {from, static_cast<size_t>(to - from)};
    token.end = position;
    return token;
  };
  if (position == limit)
    return finish(Token::Kind::End, position, position);

  char c = *position;
  if (isNameStart(c)) {
    do
      ++position;
    while (position < limit && isNamePart(*position));
    return finish(Token::Kind::Name, token.begin, position);
  }
  if (c == '.' && position + 1 < limit && isNamePart(position[1])) {
    ++position;
    while (position < limit &&
           (isNamePart(*position) || (limit - position > 2 && position[0] == ':' &&
                                      position[1] == ':' && isNamePart(position[2])))) {
      position += *position == ':' ? 2 : 1;
    }
    return finish(Token::Kind::Dotted, token.begin + 1, position);
  }
  if (isDigit(c)) {
    bool hex = c == '0' && limit - position > 1 && (position[1] | 0x20) == 'x';
    bool bits = c == '0' && limit - position > 1 &&
                ((position[1] | 0x20) == 'f' || (position[1] | 0x20) == 'd');
    while (position < limit) {
      bool exponentSign =
          (*position == '+' || *position == '-') && !hex && !bits && (position[-1] | 0x20) == 'e';
      bool point = *position == '.' && !hex && !bits && limit - position > 1 &&
                   (isDigit(position[1]) || !isLetter(position[1]));
      if (!isNamePart(*position) && !exponentSign && !point)
        break;
      ++position;
    }
    return finish(Token::Kind::Number, token.begin, position);
  }
  if (c == '"') {
    ++position;
    while (position < limit && *position != '"' && *position != '\n')
      ++position;
    const char *end = position;
    if (position == limit || *position != '"')
      return finish(Token::Kind::Bad, token.begin, end);
    ++position;
    return finish(Token::Kind::String, token.begin + 1, end);
  }
  ++position;
  constexpr std::string_view kPunctuation = "{}()[]<>,;:@!|+-=*";
  bool known = kPunctuation.find(c) != std::string_view::npos;
  return finish(known ? Token::Kind::Punct : Token::Kind::Bad, token.begin, position);
}

} // namespace llmopt::sim::ptx

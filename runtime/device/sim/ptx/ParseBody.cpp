// Function bodies: declarations, labels, instructions and their operands.
#include "runtime/device/sim/ptx/ParserImpl.h"

#include <bit>
#include <charconv>
#include <cstdlib>

namespace llmopt::sim::ptx {

runtime::Status Parser::parseBody(Function &function) {
  for (;;) {
    if (current.is('{')) {
      LLMOPT_RETURN_IF_ERROR(enter());
      advance();
      function.body.emplace_back(ScopeBegin{});
    } else if (takePunct('}')) {
      if (nesting == 0)
        return {};
      --nesting;
      function.body.emplace_back(ScopeEnd{});
    } else if (current.kind == Token::Kind::Dotted) {
      LLMOPT_RETURN_IF_ERROR(parseBodyDirective(function));
    } else if (current.kind == Token::Kind::Name && ahead.is(':')) {
      std::string_view label = current.text;
      advance();
      advance();
      LLMOPT_RETURN_IF_ERROR(parseLabelled(function, label));
    } else if (current.kind == Token::Kind::Name || current.is('@')) {
      LLMOPT_RETURN_IF_ERROR(parseInstruction(function, current));
    } else if (!takePunct(';')) {
      return error("an instruction, a declaration or '}'");
    }
  }
}

runtime::Status Parser::parseLabelled(Function &function, std::string_view label) {
  if (takeDotted("branchtargets")) {
    BranchTargets targets{label, {}};
    do {
      targets.labels.emplace_back();
      LLMOPT_RETURN_IF_ERROR(expectName(targets.labels.back()));
    } while (takePunct(','));
    function.body.emplace_back(std::move(targets));
    return expectPunct(';');
  }
  if (current.isDotted("callprototype") || current.isDotted("calltargets"))
    return unsupported("directive");
  function.body.emplace_back(Label{label});
  return {};
}

runtime::Status Parser::parseBodyDirective(Function &function) {
  if (takeDotted("reg"))
    return parseRegisters(function);
  if (takeDotted("loc"))
    return parseLoc(function);
  if (takeDotted("pragma"))
    return skipUntil(';');
  Space space = Space::Generic;
  if (takeDotted("local"))
    space = Space::Local;
  else if (takeDotted("shared"))
    space = Space::Shared;
  else if (takeDotted("param"))
    space = Space::Param;
  else if (takeDotted("const"))
    space = Space::Const;
  else if (takeDotted("global"))
    space = Space::Global;
  else
    return unsupported("directive");
  std::vector<Variable> variables;
  LLMOPT_RETURN_IF_ERROR(parseVariables(space, false, variables));
  for (Variable &variable : variables)
    function.body.emplace_back(std::move(variable));
  return expectPunct(';');
}

runtime::Status Parser::parseRegisters(Function &function) {
  if (current.kind != Token::Kind::Dotted)
    return error("a type");
  Type type = parseType(current.text);
  if (type == Type::None)
    return unsupported("register type");
  advance();
  do {
    RegisterDecl decl{type, {}, 0};
    LLMOPT_RETURN_IF_ERROR(expectName(decl.name));
    if (takePunct('<')) {
      uint64_t count = 0;
      LLMOPT_RETURN_IF_ERROR(expectInteger(count));
      LLMOPT_RETURN_IF_ERROR(expectPunct('>'));
      if (count == 0 || count > 1u << 20)
        return error("a number of registers from 1 to 1048576");
      decl.count = static_cast<uint32_t>(count);
    }
    function.body.emplace_back(decl);
  } while (takePunct(','));
  return expectPunct(';');
}

runtime::Status Parser::parseLoc(Function &function) {
  uint64_t file = 0, line = 0, column = 0;
  LLMOPT_RETURN_IF_ERROR(expectInteger(file));
  LLMOPT_RETURN_IF_ERROR(expectInteger(line));
  LLMOPT_RETURN_IF_ERROR(expectInteger(column));
  function.body.emplace_back(SourceLine{static_cast<uint32_t>(file), static_cast<uint32_t>(line)});
  while (takePunct(',')) { // function_name label [+ offset], inlined_at file line column
    std::string_view word, label;
    LLMOPT_RETURN_IF_ERROR(expectName(word));
    if (word == "function_name") {
      LLMOPT_RETURN_IF_ERROR(expectName(label));
      if (takePunct('+'))
        LLMOPT_RETURN_IF_ERROR(expectInteger(column));
    } else if (word == "inlined_at") {
      for (int i = 0; i < 3; ++i)
        LLMOPT_RETURN_IF_ERROR(expectInteger(column));
    } else {
      return error("'function_name' or 'inlined_at'");
    }
  }
  return {};
}

runtime::Status Parser::parseInstruction(Function &function, Token first) {
  Instruction instruction;
  instruction.line = first.line;
  if (takePunct('@')) {
    instruction.guardNegated = takePunct('!');
    LLMOPT_RETURN_IF_ERROR(expectName(instruction.guard));
  }
  LLMOPT_RETURN_IF_ERROR(parseOpcode(instruction));
  if (!current.is(';')) {
    do {
      instruction.operands.emplace_back();
      LLMOPT_RETURN_IF_ERROR(parseOperand(instruction.operands.back()));
    } while (takePunct(','));
  }
  instruction.text = {first.begin, static_cast<size_t>(current.begin - first.begin)};
  while (!instruction.text.empty() &&
         std::string_view(" \t\r\n").find(instruction.text.back()) != std::string_view::npos)
    instruction.text.remove_suffix(1);
  LLMOPT_RETURN_IF_ERROR(expectPunct(';'));
  function.body.emplace_back(std::move(instruction));
  return {};
}

runtime::Status Parser::parseOpcode(Instruction &instruction) {
  LLMOPT_RETURN_IF_ERROR(expectName(instruction.opcode));
  while (current.kind == Token::Kind::Dotted) {
    instruction.modifiers.push_back(current.text);
    advance();
  }
  return {};
}

runtime::Status Parser::parseOperandList(std::vector<Operand> &operands, char close) {
  if (takePunct(close))
    return {};
  do {
    operands.emplace_back();
    LLMOPT_RETURN_IF_ERROR(parseOperand(operands.back()));
  } while (takePunct(','));
  return expectPunct(close);
}

runtime::Status Parser::parseGroup(Operand &operand, Operand::Kind kind, char close) {
  LLMOPT_RETURN_IF_ERROR(enter());
  advance();
  operand.kind = kind;
  LLMOPT_RETURN_IF_ERROR(parseOperandList(operand.parts, close));
  --nesting;
  return {};
}

runtime::Status Parser::parseOperand(Operand &operand) {
  if (current.is('{'))
    return parseGroup(operand, Operand::Kind::Vector, '}');
  if (current.is('('))
    return parseGroup(operand, Operand::Kind::List, ')');
  if (current.is('['))
    return parseGroup(operand, Operand::Kind::Address, ']');
  operand.negated = takePunct('!');
  if (current.kind == Token::Kind::Number || current.is('-')) {
    bool negative = takePunct('-');
    return parseNumber(operand, negative);
  }
  if (current.kind != Token::Kind::Name)
    return error("an operand");
  operand.name = current.text;
  const char *nameEnd = current.end;
  advance();
  if (current.kind == Token::Kind::Dotted && current.begin == nameEnd) { // %tid.x
    operand.name = {operand.name.data(), static_cast<size_t>(current.end - operand.name.data())};
    advance();
  }
  if (current.is('+') || current.is('-')) {
    bool negative = current.is('-');
    advance();
    negative ^= takePunct('-'); // [%r1+-16]
    uint64_t offset = 0;
    LLMOPT_RETURN_IF_ERROR(expectInteger(offset));
    operand.offset = static_cast<int64_t>(negative ? ~offset + 1 : offset);
  }
  if (current.is('|')) { // a|b|c is a|(b|c)
    LLMOPT_RETURN_IF_ERROR(enter());
    advance();
    Operand left = std::move(operand);
    operand = Operand{};
    operand.kind = Operand::Kind::Pair;
    operand.parts.push_back(std::move(left));
    operand.parts.emplace_back();
    LLMOPT_RETURN_IF_ERROR(parseOperand(operand.parts.back()));
    --nesting;
  }
  return {};
}

runtime::Status Parser::parseNumber(Operand &operand, bool negative) {
  if (current.kind != Token::Kind::Number || !parseNumberText(current.text, negative, operand))
    return error("a number");
  advance();
  return {};
}

bool parseNumberText(std::string_view text, bool negative, Operand &operand) {
  auto parseInteger = [&](std::string_view digits, int base, uint64_t &value) {
    if (digits.empty())
      return false;
    auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    return result.ec == std::errc() && result.ptr == digits.data() + digits.size();
  };
  char second = text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '\0';
  if (second == 'f' || second == 'd') {
    bool single = second == 'f';
    if (text.size() != (single ? 10u : 18u) || !parseInteger(text.substr(2), 16, operand.bits))
      return false;
    operand.kind = single ? Operand::Kind::Float32 : Operand::Kind::Float64;
    if (negative)
      operand.bits ^= single ? uint64_t{1} << 31 : uint64_t{1} << 63;
    return true;
  }
  bool hex = second == 'x';
  if (!hex && text.find_first_of(".eE") != std::string_view::npos) {
    std::string copy(text);
    char *end = nullptr;
    double value = std::strtod(copy.c_str(), &end);
    operand.kind = Operand::Kind::Float64;
    operand.bits = std::bit_cast<uint64_t>(negative ? -value : value);
    return *end == '\0';
  }
  if (!text.empty() && (text.back() | 0x20) == 'u')
    text.remove_suffix(1);
  operand.kind = Operand::Kind::Integer;
  bool octal = !hex && text.size() > 1 && text[0] == '0';
  if (second == 'b' ? !parseInteger(text.substr(2), 2, operand.bits)
                    : !parseInteger(hex ? text.substr(2) : text,
                                    hex     ? 16
                                    : octal ? 8
                                            : 10,
                                    operand.bits))
    return false;
  if (negative)
    operand.bits = ~operand.bits + 1;
  return true;
}

} // namespace llmopt::sim::ptx

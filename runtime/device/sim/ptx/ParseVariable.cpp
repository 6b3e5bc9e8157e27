// Variables: ".global .align 4 .b8 table[16] = {1, 2, 3};"
#include "runtime/device/sim/ptx/ParserImpl.h"

namespace llmopt::sim::ptx {

runtime::Status Parser::parseVariables(Space space, bool external, std::vector<Variable> &into) {
  Variable common;
  common.space = space;
  common.external = external;
  uint32_t vectorWidth = 1;
  while (current.kind == Token::Kind::Dotted) {
    Token token = current;
    if (takeDotted("align")) {
      uint64_t align = 0;
      LLMOPT_RETURN_IF_ERROR(expectInteger(align));
      if (align == 0 || (align & (align - 1)) != 0 || align > 65536)
        return runtime::invalidArgument(
            "{}:{}: alignment {}; powers of two up to 65536 are allowed", name, token.line, align);
      common.align = static_cast<uint32_t>(align);
      continue;
    }
    // What a pointer parameter points to (.ptr .global) changes nothing here.
    bool pointee = token.text == "ptr" || token.text == "global" || token.text == "shared" ||
                   token.text == "const" || token.text == "local";
    Type type = parseType(token.text);
    if (token.text == "v2" || token.text == "v4")
      vectorWidth = token.text == "v2" ? 2 : 4;
    else if (type != Type::None && type != Type::Pred)
      common.type = type;
    else if (!pointee)
      return unsupported("attribute of a variable");
    advance();
  }
  bool parameters = space == Space::Param;
  do {
    Variable variable = common;
    variable.line = current.line;
    LLMOPT_RETURN_IF_ERROR(expectName(variable.name));
    uint64_t elements = vectorWidth;
    LLMOPT_RETURN_IF_ERROR(parseArraySize(variable, elements));
    uint64_t elementBytes = sizeOf(variable.type);
    variable.bytes = elements * elementBytes;
    if (variable.align == 0)
      variable.align = static_cast<uint32_t>(elementBytes) * vectorWidth;
    if (takePunct('='))
      LLMOPT_RETURN_IF_ERROR(parseInitialisers(variable));
    into.push_back(std::move(variable));
  } while (!parameters && takePunct(','));
  return {};
}

runtime::Status Parser::parseArraySize(Variable &variable, uint64_t &elements) {
  while (takePunct('[')) {
    if (takePunct(']')) {
      variable.unsized = true;
      elements = 0;
      continue;
    }
    uint64_t size = 0;
    Token token = current;
    LLMOPT_RETURN_IF_ERROR(expectInteger(size));
    if (size > (uint64_t{1} << 40) || (elements && size > (uint64_t{1} << 40) / elements))
      return runtime::invalidArgument("{}:{}: array '{}' is too large; 2^40 elements are allowed",
                                      name, token.line, variable.name);
    elements *= size;
    LLMOPT_RETURN_IF_ERROR(expectPunct(']'));
  }
  return {};
}

runtime::Status Parser::parseInitialisers(Variable &variable) {
  if (!current.is('{')) {
    variable.initial.emplace_back();
    return parseInitial(variable.type, variable.initial.back());
  }
  LLMOPT_RETURN_IF_ERROR(enter());
  advance();
  if (takePunct('}')) {
    --nesting;
    return {};
  }
  do {
    if (current.is('{')) // an array of arrays: the elements in order
      LLMOPT_RETURN_IF_ERROR(parseInitialisers(variable));
    else {
      variable.initial.emplace_back();
      LLMOPT_RETURN_IF_ERROR(parseInitial(variable.type, variable.initial.back()));
    }
  } while (takePunct(','));
  --nesting;
  return expectPunct('}');
}

runtime::Status Parser::parseInitial(Type type, Initial &initial) {
  if (current.kind == Token::Kind::Name) {
    std::string_view word = current.text;
    advance();
    initial.symbol = word;
    if (word == "generic" && takePunct('(')) {
      initial.generic = true;
      LLMOPT_RETURN_IF_ERROR(expectName(initial.symbol));
      LLMOPT_RETURN_IF_ERROR(expectPunct(')'));
    }
    if (!current.is('+') && !current.is('-'))
      return {};
    bool negative = current.is('-');
    advance();
    uint64_t offset = 0;
    LLMOPT_RETURN_IF_ERROR(expectInteger(offset));
    initial.bits = negative ? ~offset + 1 : offset;
    return {};
  }
  Operand number;
  bool negative = takePunct('-');
  LLMOPT_RETURN_IF_ERROR(parseNumber(number, negative));
  initial.bits = literalBits(number, type);
  return {};
}

} // namespace llmopt::sim::ptx

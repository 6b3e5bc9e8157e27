// Numbers in the text of attributes and clauses: 4096, 0.5, arg1.
#include "dialect/attn/Asm.h"
#include "dialect/attn/AttnDialect.h"

#include "mlir/IR/Builders.h"

#include <charconv>
#include <cmath>

using namespace mlir;
using namespace llmopt::attn;

/// The N of `argN`, if `keyword` is of that form.
static std::optional<unsigned> argIndex(StringRef keyword) {
  unsigned index;
  if (!keyword.consume_front("arg") || keyword.getAsInteger(10, index))
    return std::nullopt;
  return index;
}

ParseResult llmopt::attn::parseArg(AsmParser &parser, unsigned &index) {
  SMLoc loc = parser.getCurrentLocation();
  StringRef keyword;
  if (failed(parser.parseOptionalKeyword(&keyword)))
    return parser.emitError(loc) << "expected an operand as argN";
  std::optional<unsigned> parsed = argIndex(keyword);
  if (!parsed)
    return parser.emitError(loc) << "expected an operand as argN, got '" << keyword << "'";
  index = *parsed;
  return success();
}

ParseResult llmopt::attn::parseNumber(AsmParser &parser, NumberKind kind, Attribute &number) {
  SMLoc loc = parser.getCurrentLocation();
  const char *wanted = kind == NumberKind::Integer ? "an integer or argN" : "a number or argN";
  StringRef keyword;
  if (succeeded(parser.parseOptionalKeyword(&keyword))) {
    std::optional<unsigned> index = argIndex(keyword);
    if (!index)
      return parser.emitError(loc) << "expected " << wanted << ", got '" << keyword << "'";
    number = ArgAttr::get(parser.getContext(), *index);
    return success();
  }

  Attribute literal;
  OptionalParseResult parsed = parser.parseOptionalAttribute(literal);
  if (!parsed.has_value())
    return parser.emitError(loc) << "expected " << wanted;
  if (failed(*parsed))
    return failure();
  if (auto arg = dyn_cast<ArgAttr>(literal)) {
    number = arg;
    return success();
  }
  auto integer = dyn_cast<IntegerAttr>(literal);
  if (integer && !integer.getType().isSignlessInteger(64))
    integer = nullptr;
  if (kind == NumberKind::Float && integer)
    literal = parser.getBuilder().getF64FloatAttr(double(integer.getInt()));
  auto real = dyn_cast<FloatAttr>(literal);
  bool fits = kind == NumberKind::Integer ? bool(integer) : real && real.getType().isF64();
  if (!fits)
    return parser.emitError(loc) << "expected " << wanted << ", got " << literal;
  number = literal;
  return success();
}

/// The shortest decimal text that reads back as `value`, with a point.
static void printDouble(AsmPrinter &printer, double value) {
  char buffer[40];
  auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  StringRef text(buffer, end - buffer);
  auto [mantissa, exponent] = text.split('e');
  printer << mantissa;
  if (!mantissa.contains('.'))
    printer << ".0";
  if (!exponent.empty())
    printer << 'e' << exponent;
}

void llmopt::attn::printNumber(AsmPrinter &printer, Attribute number) {
  if (auto arg = dyn_cast_if_present<ArgAttr>(number)) {
    printer << "arg" << arg.getIndex();
  } else if (auto integer = dyn_cast_if_present<IntegerAttr>(number);
             integer && integer.getType().isSignlessInteger(64)) {
    printer << integer.getInt();
  } else if (auto real = dyn_cast_if_present<FloatAttr>(number);
             real && real.getType().isF64() && std::isfinite(real.getValueAsDouble())) {
    printDouble(printer, real.getValueAsDouble());
  } else {
    printer << number;
  }
}

Attribute llmopt::attn::parseBracketedNumber(AsmParser &parser, NumberKind kind) {
  Attribute number;
  if (parser.parseLess() || parseNumber(parser, kind, number) || parser.parseGreater())
    return {};
  return number;
}

void llmopt::attn::printBracketedNumber(AsmPrinter &printer, Attribute number) {
  printer << '<';
  printNumber(printer, number);
  printer << '>';
}

LogicalResult llmopt::attn::verifyInteger(EmitError emitError, Attribute number, StringRef what,
                                          int64_t least) {
  if (isa_and_present<ArgAttr>(number))
    return success();
  auto integer = dyn_cast_if_present<IntegerAttr>(number);
  if (!integer || !integer.getType().isSignlessInteger(64))
    return emitError() << what << " is an i64 integer or argN, got " << number;
  int64_t value = integer.getInt();
  if (value < least || value > kMaxLength)
    return emitError() << what << " is " << least << " to " << kMaxLength << ", got " << value;
  return success();
}

LogicalResult llmopt::attn::verifyFloat(EmitError emitError, Attribute number, StringRef what) {
  if (isa_and_present<ArgAttr>(number))
    return success();
  auto real = dyn_cast_if_present<FloatAttr>(number);
  if (!real || !real.getType().isF64())
    return emitError() << what << " is an f64 number or argN, got " << number;
  if (!std::isfinite(real.getValueAsDouble()))
    return emitError() << what << " is finite, got " << number;
  return success();
}

// The expression of a mask clause: `causal and (sink<4> or not window<arg1>)`.
#include "dialect/attn/Asm.h"
#include "dialect/attn/AttnDialect.h"

using namespace mlir;
using namespace llmopt::attn;

namespace {

/// Recursive descent; the depth is limited so that no text can exhaust the stack.
class ExpressionParser {
public:
  explicit ExpressionParser(AsmParser &parser) : parser(parser) {}

  ParseResult parse(Attribute &mask) { return parseOr(mask); }

private:
  static constexpr unsigned kMaxDepth = 200;

  ParseResult parseOr(Attribute &mask) {
    SmallVector<Attribute, 4> terms(1);
    if (parseAnd(terms.back()))
      return failure();
    while (succeeded(parser.parseOptionalKeyword("or")))
      if (parseAnd(terms.emplace_back()))
        return failure();
    mask = OrAttr::join(parser.getContext(), terms);
    return success();
  }

  ParseResult parseAnd(Attribute &mask) {
    SmallVector<Attribute, 4> factors(1);
    if (parseFactor(factors.back()))
      return failure();
    while (succeeded(parser.parseOptionalKeyword("and")))
      if (parseFactor(factors.emplace_back()))
        return failure();
    mask = AndAttr::join(parser.getContext(), factors);
    return success();
  }

  ParseResult parseFactor(Attribute &mask) {
    SMLoc loc = parser.getCurrentLocation();
    if (++depth > kMaxDepth)
      return parser.emitError(loc) << "mask expression is nested deeper than " << kMaxDepth;
    ParseResult result = parseUnguardedFactor(loc, mask);
    --depth;
    return result;
  }

  ParseResult parseUnguardedFactor(SMLoc loc, Attribute &mask) {
    if (succeeded(parser.parseOptionalKeyword("not"))) {
      Attribute operand;
      if (parseFactor(operand))
        return failure();
      mask = NotAttr::get(parser.getContext(), operand);
      return success();
    }
    if (succeeded(parser.parseOptionalLParen()))
      return failure(parseOr(mask) || parser.parseRParen());

    // `dense` is a keyword of the builtin attributes as well: ours comes first.
    if (succeeded(parser.parseOptionalKeyword(DenseMaskAttr::getMnemonic()))) {
      mask = DenseMaskAttr::parse(parser, Type());
      return success(bool(mask));
    }
    OptionalParseResult parsed = parser.parseOptionalAttribute(mask);
    if (!parsed.has_value()) {
      StringRef keyword;
      parsed = parseBareAttribute(parser, &keyword, mask);
      if (!parsed.has_value())
        return parser.emitError(loc) << "unknown mask '" << keyword << "'; known are "
                                     << maskNames() << ", joined by and, or, not";
    }
    if (failed(*parsed))
      return failure();
    if (!isa<MaskAttrInterface>(mask))
      return parser.emitError(loc)
             << "expected a mask, got " << mask << ", which does not implement MaskAttrInterface";
    return success();
  }

  AsmParser &parser;
  unsigned depth = 0;
};

/// How tightly the operator of `mask` binds: or 0, and 1, all else 2.
unsigned precedence(Attribute mask) { return isa<OrAttr>(mask) ? 0 : isa<AndAttr>(mask) ? 1 : 2; }

/// Print `mask`; in parentheses when it binds less tightly than `least`.
void print(AsmPrinter &printer, Attribute mask, unsigned least) {
  auto printJoined = [&](ArrayRef<Attribute> operands, StringRef word, unsigned inner) {
    llvm::interleave(
        operands, [&](Attribute operand) { print(printer, operand, inner); },
        [&] { printer << ' ' << word << ' '; });
  };
  bool parenthesised = precedence(mask) < least;
  if (parenthesised)
    printer << '(';
  if (auto any = dyn_cast<OrAttr>(mask)) {
    printJoined(any.getOperands(), "or", 1);
  } else if (auto all = dyn_cast<AndAttr>(mask)) {
    printJoined(all.getOperands(), "and", 2);
  } else if (auto negated = dyn_cast<NotAttr>(mask)) {
    printer << "not ";
    print(printer, negated.getOperand(), 2);
  } else if (!isa<MaskAttrInterface>(mask) || failed(printBareAttribute(printer, mask))) {
    printer << mask;
  }
  if (parenthesised)
    printer << ')';
}

} // namespace

ParseResult llmopt::attn::parseMaskExpression(AsmParser &parser, Attribute &mask) {
  return ExpressionParser(parser).parse(mask);
}

void llmopt::attn::printMaskExpression(AsmPrinter &printer, Attribute mask) {
  print(printer, mask, 0);
}

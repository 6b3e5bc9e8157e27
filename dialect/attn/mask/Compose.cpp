// and, or, not: masks made of masks.
#include "dialect/attn/Asm.h"
#include "dialect/attn/AttnDialect.h"
#include "dialect/attn/EmitUtils.h"

using namespace mlir;
using namespace llmopt::attn;

LogicalResult llmopt::attn::verifyMask(EmitError emitError, Attribute mask, const Twine &what) {
  if (!isa_and_present<MaskAttrInterface>(mask))
    return emitError() << what << " does not implement MaskAttrInterface: " << mask;
  return success();
}

/// `<` mask `,` ... `>`, as full attributes.
static ParseResult parseMasks(AsmParser &parser, SmallVectorImpl<Attribute> &masks) {
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::LessGreater, [&] {
    return parser.parseAttribute(masks.emplace_back());
  });
}

static void printMasks(AsmPrinter &printer, ArrayRef<Attribute> masks) {
  printer << '<';
  llvm::interleaveComma(masks, printer, [&](Attribute mask) { printer << mask; });
  printer << '>';
}

template <typename Nary>
static LogicalResult verifyNary(EmitError emitError, ArrayRef<Attribute> operands) {
  StringRef mnemonic = Nary::getMnemonic();
  if (operands.size() < 2)
    return emitError() << "'" << mnemonic << "' has 2 operands or more, got " << operands.size();
  for (auto [index, operand] : llvm::enumerate(operands)) {
    if (isa_and_present<Nary>(operand))
      return emitError() << "operand " << index << " of '" << mnemonic
                         << "' is one itself; list its operands instead";
    if (failed(
            verifyMask(emitError, operand, "operand " + Twine(index) + " of '" + mnemonic + "'")))
      return failure();
  }
  return success();
}

template <typename Nary>
static Attribute joinNary(MLIRContext *context, ArrayRef<Attribute> masks) {
  SmallVector<Attribute, 4> operands;
  for (Attribute mask : masks) {
    if (auto nested = dyn_cast<Nary>(mask))
      llvm::append_range(operands, nested.getOperands());
    else
      operands.push_back(mask);
  }
  return operands.size() == 1 ? operands.front() : Attribute(Nary::get(context, operands));
}

static void collect(ArrayRef<Attribute> masks, SmallVectorImpl<NumberUse> &numbers) {
  for (Attribute mask : masks)
    cast<MaskAttrInterface>(mask).collectNumbers(numbers);
}

static Value fold(PairEmitter &e, ArrayRef<Attribute> masks,
                  Value (*join)(PairEmitter &, Value, Value)) {
  Value result;
  for (Attribute mask : masks) {
    Value next = cast<MaskAttrInterface>(mask).emitPredicate(e);
    result = result ? join(e, result, next) : next;
  }
  return result;
}

static MaskBounds fold(const BoundContext &context, ArrayRef<Attribute> masks,
                       MaskBounds (*join)(const MaskBounds &, const MaskBounds &)) {
  std::optional<MaskBounds> result;
  for (Attribute mask : masks) {
    MaskBounds next = cast<MaskAttrInterface>(mask).getBounds(context);
    result = result ? join(*result, next) : next;
  }
  return *result;
}

//===----------------------------------------------------------------------===//
// AndAttr
//===----------------------------------------------------------------------===//

Attribute AndAttr::parse(AsmParser &parser, Type) {
  SMLoc loc = parser.getCurrentLocation();
  SmallVector<Attribute, 4> masks;
  if (parseMasks(parser, masks))
    return {};
  return parser.getChecked<AndAttr>(loc, parser.getContext(), ArrayRef<Attribute>(masks));
}

void AndAttr::print(AsmPrinter &printer) const { printMasks(printer, getOperands()); }

LogicalResult AndAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                              ArrayRef<Attribute> operands) {
  return verifyNary<AndAttr>(emitError, operands);
}

Attribute AndAttr::join(MLIRContext *context, ArrayRef<Attribute> masks) {
  return joinNary<AndAttr>(context, masks);
}

void AndAttr::collectNumbers(SmallVectorImpl<NumberUse> &numbers) const {
  collect(getOperands(), numbers);
}

Value AndAttr::emitPredicate(PairEmitter &e) const { return fold(e, getOperands(), emit::both); }

MaskBounds AndAttr::getBounds(const BoundContext &context) const {
  return fold(context, getOperands(), intersect);
}

//===----------------------------------------------------------------------===//
// OrAttr
//===----------------------------------------------------------------------===//

Attribute OrAttr::parse(AsmParser &parser, Type) {
  SMLoc loc = parser.getCurrentLocation();
  SmallVector<Attribute, 4> masks;
  if (parseMasks(parser, masks))
    return {};
  return parser.getChecked<OrAttr>(loc, parser.getContext(), ArrayRef<Attribute>(masks));
}

void OrAttr::print(AsmPrinter &printer) const { printMasks(printer, getOperands()); }

LogicalResult OrAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                             ArrayRef<Attribute> operands) {
  return verifyNary<OrAttr>(emitError, operands);
}

Attribute OrAttr::join(MLIRContext *context, ArrayRef<Attribute> masks) {
  return joinNary<OrAttr>(context, masks);
}

void OrAttr::collectNumbers(SmallVectorImpl<NumberUse> &numbers) const {
  collect(getOperands(), numbers);
}

Value OrAttr::emitPredicate(PairEmitter &e) const { return fold(e, getOperands(), emit::either); }

MaskBounds OrAttr::getBounds(const BoundContext &context) const {
  return fold(context, getOperands(), unite);
}

//===----------------------------------------------------------------------===//
// NotAttr
//===----------------------------------------------------------------------===//

Attribute NotAttr::parse(AsmParser &parser, Type) {
  SMLoc loc = parser.getCurrentLocation();
  Attribute operand;
  if (parser.parseLess() || parser.parseAttribute(operand) || parser.parseGreater())
    return {};
  return parser.getChecked<NotAttr>(loc, parser.getContext(), operand);
}

void NotAttr::print(AsmPrinter &printer) const { printer << '<' << getOperand() << '>'; }

LogicalResult NotAttr::verify(function_ref<InFlightDiagnostic()> emitError, Attribute operand) {
  return verifyMask(emitError, operand, "the operand of 'not'");
}

void NotAttr::collectNumbers(SmallVectorImpl<NumberUse> &numbers) const {
  collect(getOperand(), numbers);
}

Value NotAttr::emitPredicate(PairEmitter &e) const {
  return emit::negate(e, cast<MaskAttrInterface>(getOperand()).emitPredicate(e));
}

MaskBounds NotAttr::getBounds(const BoundContext &context) const {
  return complement(cast<MaskAttrInterface>(getOperand()).getBounds(context));
}

// Text of attn.attention: operands, clauses, types. Clauses are read in any order and
// printed in that of the op's description.
#include "dialect/attn/Asm.h"
#include "dialect/attn/AttnDialect.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace llmopt::attn;

namespace {

class AttentionParser {
public:
  AttentionParser(OpAsmParser &parser, OperationState &result)
      : parser(parser), result(result),
        properties(result.getOrAddProperties<AttentionOp::Properties>()) {}

  ParseResult parse() {
    operandsLoc = parser.getCurrentLocation();
    if (parser.parseOperandList(operands))
      return failure();
    for (;;) {
      OptionalParseResult clause = parseOptionalClause();
      if (!clause.has_value())
        break;
      if (failed(*clause))
        return failure();
    }
    return failure(parseAttributes() || parseTypes() || finishRegions());
  }

private:
  /// No value when no clause follows.
  OptionalParseResult parseOptionalClause() {
    SMLoc loc = parser.getCurrentLocation();
    // `attributes`, of the attribute dictionary, is no clause.
    StringRef word;
    static constexpr StringLiteral clauses[] = {"args",    "mask",  "where",   "scale",
                                                "softcap", "bias",  "alibi",   "score",
                                                "sink",    "split", "schedule"};
    if (failed(parser.parseOptionalKeyword(&word)))
      return std::nullopt;
    if (!llvm::is_contained(clauses, word))
      return parser.emitError(loc) << "unknown clause '" << word << "'; known are "
                                   << llvm::join(ArrayRef(clauses), ", ");
    if (word == "where")
      return parseRegion(maskRegions);
    if (word == "score")
      return parseScore();
    bool modifiesScore = word == "softcap" || word == "bias" || word == "alibi";
    if (!modifiesScore && !given.insert(word).second)
      return parser.emitError(loc) << "clause '" << word << "' is given twice";
    if (parser.parseLParen() || parseClauseBody(word))
      return failure();
    SMLoc end = parser.getCurrentLocation();
    if (succeeded(parser.parseOptionalRParen()))
      return success();
    InFlightDiagnostic error = parser.emitError(end) << "expected ')'";
    if (word == "mask")
      return error << ", 'and' or 'or' after a mask";
    if (word == "scale" || word == "softcap" || word == "alibi")
      return error << " after the number; " << word
                   << " takes one number or argN, and nothing is calculated: write 0.125 for 1/8";
    return error;
  }

  ParseResult parseClauseBody(StringRef word) {
    MLIRContext *context = parser.getContext();
    SMLoc loc = parser.getCurrentLocation();
    Attribute number;
    unsigned arg;
    if (word == "args")
      return failure(parser.parseOperandList(args) || parser.parseColonTypeList(argTypes));
    if (word == "mask")
      return parseMaskExpression(parser, properties.mask);
    if (word == "scale")
      return parseNumber(parser, NumberKind::Float, properties.scale);
    if (word == "softcap") {
      if (parseNumber(parser, NumberKind::Float, number))
        return failure();
      return addScore(parser.getChecked<SoftcapAttr>(loc, context, number));
    }
    if (word == "alibi") {
      if (parseNumber(parser, NumberKind::Float, number))
        return failure();
      return addScore(parser.getChecked<AlibiAttr>(loc, context, number));
    }
    if (word == "bias")
      return failure(parseArg(parser, arg) || addScore(BiasAttr::get(context, arg)));
    if (word == "sink") {
      if (parseArg(parser, arg))
        return failure();
      properties.sink = ArgAttr::get(context, arg);
      return success();
    }
    if (word == "split")
      return success(bool(properties.split = parseSplitBody(parser)));
    return success(bool(properties.schedule = parseScheduleBody(parser)));
  }

  ParseResult addScore(Attribute score) {
    if (score)
      scores.push_back(score);
    return success(bool(score));
  }

  /// `score {region}` or `score(#attribute)`.
  ParseResult parseScore() {
    if (failed(parser.parseOptionalLParen())) {
      scores.push_back(Attribute()); // numbered when all regions are known
      return parseRegion(scoreRegions);
    }
    Attribute score;
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseAttribute(score) || parser.parseRParen())
      return failure();
    if (isa<CustomScoreAttr>(score))
      return parser.emitError(loc) << "write a score region as score {...}";
    return addScore(score);
  }

  ParseResult parseRegion(SmallVectorImpl<std::unique_ptr<Region>> &regions) {
    return parser.parseRegion(*regions.emplace_back(std::make_unique<Region>()));
  }

  ParseResult parseAttributes() {
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseOptionalAttrDict(result.attributes))
      return failure();
    for (StringRef name : AttentionOp::getAttributeNames())
      if (result.attributes.get(name))
        return parser.emitError(loc)
               << "attribute '" << name << "' is written as a clause, not in the dictionary";
    return success();
  }

  ParseResult parseTypes() {
    SmallVector<Type> types;
    if (parser.parseColonTypeList(types) || parser.parseArrow() ||
        parser.parseTypeList(result.types))
      return failure();
    if (operands.size() < 2 || operands.size() > 4)
      return parser.emitError(operandsLoc)
             << "expected query, key or cache, value and sequences (2 to 4 operands), got "
             << operands.size();
    if (types.size() != operands.size())
      return parser.emitError(operandsLoc)
             << operands.size() << " operands need as many types, got " << types.size();
    if (args.size() != argTypes.size())
      return parser.emitError(operandsLoc)
             << args.size() << " args need as many types, got " << argTypes.size();

    bool sequences = isa<SequencesType>(types.back());
    size_t data = types.size() - sequences;
    if (data < 2 || data > 3)
      return parser.emitError(operandsLoc)
             << "expected query, key or cache, and value where there is no cache before the "
                "sequences, got "
             << data << " operands";
    properties.operandSegmentSizes = {1, 1, int32_t(data - 2), int32_t(sequences),
                                      int32_t(args.size())};
    return failure(parser.resolveOperands(operands, types, operandsLoc, result.operands) ||
                   parser.resolveOperands(args, argTypes, operandsLoc, result.operands));
  }

  /// Mask regions first, then score regions, whatever their order in the text.
  ParseResult finishRegions() {
    unsigned next = maskRegions.size();
    for (Attribute &score : scores)
      if (!score)
        score = CustomScoreAttr::get(parser.getContext(), next++);
    result.addRegions(maskRegions);
    result.addRegions(scoreRegions);
    if (!scores.empty())
      properties.scores = parser.getBuilder().getArrayAttr(scores);
    return success();
  }

  OpAsmParser &parser;
  OperationState &result;
  AttentionOp::Properties &properties;
  SMLoc operandsLoc;
  SmallVector<OpAsmParser::UnresolvedOperand> operands, args;
  SmallVector<Type> argTypes;
  SmallVector<Attribute> scores;
  SmallVector<std::unique_ptr<Region>> maskRegions, scoreRegions;
  llvm::SmallDenseSet<StringRef> given;
};

void printScore(OpAsmPrinter &printer, AttentionOp op, Attribute score) {
  if (auto softcap = dyn_cast<SoftcapAttr>(score)) {
    printer << " softcap(";
    printNumber(printer, softcap.getCap());
  } else if (auto bias = dyn_cast<BiasAttr>(score)) {
    printer << " bias(arg" << bias.getArg();
  } else if (auto alibi = dyn_cast<AlibiAttr>(score)) {
    printer << " alibi(";
    printNumber(printer, alibi.getSlope());
  } else if (auto custom = dyn_cast<CustomScoreAttr>(score);
             custom && custom.getRegion() < op.getBodies().size()) {
    printer << " score ";
    printer.printRegion(op.getBodies()[custom.getRegion()]);
    return;
  } else {
    printer << " score(" << score;
  }
  printer << ')';
}

} // namespace

ParseResult AttentionOp::parse(OpAsmParser &parser, OperationState &result) {
  return AttentionParser(parser, result).parse();
}

void AttentionOp::print(OpAsmPrinter &printer) {
  SmallVector<Value> operands = {getQuery(), getKey()};
  if (getValue())
    operands.push_back(getValue());
  if (getSequences())
    operands.push_back(getSequences());
  printer << ' ' << operands;

  if (!getArgs().empty())
    printer << " args(" << getArgs() << " : " << getArgs().getTypes() << ')';
  if (Attribute mask = getMaskAttr()) {
    printer << " mask(";
    printMaskExpression(printer, mask);
    printer << ')';
  }
  for (Region &region : getBodies().take_front(getNumMaskRegions())) {
    printer << " where ";
    printer.printRegion(region);
  }
  if (Attribute scale = getScaleAttr()) {
    printer << " scale(";
    printNumber(printer, scale);
    printer << ')';
  }
  if (ArrayAttr scores = getScoresAttr())
    for (Attribute score : scores)
      printScore(printer, *this, score);
  if (ArgAttr sink = getSinkAttr())
    printer << " sink(arg" << sink.getIndex() << ')';
  if (SplitAttr split = getSplitAttr()) {
    printer << " split(";
    printSplitBody(printer, split);
    printer << ')';
  }
  if (ScheduleAttr schedule = getScheduleAttr()) {
    printer << " schedule(";
    printScheduleBody(printer, schedule);
    printer << ')';
  }
  printer.printOptionalAttrDict((*this)->getDiscardableAttrDictionary().getValue());
  printer << " : " << ValueRange(operands).getTypes() << " -> " << getResultTypes();
}

// Verifiers and custom assembly of the tile ops.
#include "dialect/tile/TileDialect.h"

#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace llmopt::tile;

#define GET_OP_CLASSES
#include "dialect/tile/TileOps.cpp.inc"

void TileDialect::registerOps() {
  addOperations<
#define GET_OP_LIST
#include "dialect/tile/TileOps.cpp.inc"
      >();
}

namespace {

LogicalResult verifyTile(Operation *op, StringRef name, Type type) {
  if (isTile(type))
    return success();
  return op->emitOpError() << name << " has type " << type
                           << "; a tile is a 2-D tensor of static shape";
}

/// Shared by load and store: both ends of a transfer between memory and a tile.
template <typename Transfer> LogicalResult verifyTransfer(Transfer op, bool toMemory) {
  if (failed(verifyTile(op, "tile", op.getTile().getType())) ||
      failed(verifyTile(op, "rows", op.getRows().getType())))
    return failure();
  auto tile = cast<RankedTensorType>(op.getTile().getType());
  auto rows = cast<RankedTensorType>(op.getRows().getType());
  int64_t named = tile.getDimSize(0);
  if constexpr (std::is_same_v<Transfer, LoadOp>)
    if (op.getApart()) {
      if (int64_t(op.getSlices()) < 1 || named % op.getSlices())
        return op.emitOpError() << "makes " << named << " rows of " << op.getSlices()
                                << " slices; a divisor is wanted";
      named /= int64_t(op.getSlices());
    }
  if (rows.getDimSize(0) != named || rows.getDimSize(1) != 1)
    return op.emitOpError() << "rows has type " << rows << "; a tile of " << tile.getDimSize(0)
                            << " rows needs tensor<" << named << "x1xi64>";
  Type memory = cast<MemRefType>(op.getBase().getType()).getElementType();
  Type value = tile.getElementType();
  bool widens = isa<FloatType>(memory) && isa<FloatType>(value) &&
                memory.getIntOrFloatBitWidth() < value.getIntOrFloatBitWidth();
  if (memory != value && !widens)
    return op.emitOpError() << (toMemory ? "cannot store elements of " : "cannot load elements of ")
                            << (toMemory ? value : memory) << " as " << (toMemory ? memory : value)
                            << "; types must agree, or memory hold a narrower float";
  return success();
}

LogicalResult verifyRows(Operation *op, Type type) {
  if (failed(verifyTile(op, "result", type)))
    return failure();
  if (cast<RankedTensorType>(type).getDimSize(1) != 1)
    return op->emitOpError() << "result has type " << type << "; row addresses have one column";
  return success();
}

} // namespace

LogicalResult LoadOp::verify() { return verifyTransfer(*this, /*toMemory=*/false); }
LogicalResult StoreOp::verify() { return verifyTransfer(*this, /*toMemory=*/true); }
LogicalResult StridedRowsOp::verify() { return verifyRows(*this, getRows().getType()); }

LogicalResult UsedRowsOp::verify() {
  if (int64_t(getRows()) < 1)
    return emitOpError() << "is of " << int64_t(getRows()) << " rows; it must be of 1 or more";
  return success();
}

LogicalResult PrefetchOp::verify() {
  auto rows = cast<RankedTensorType>(getRows().getType());
  if (failed(verifyTile(*this, "rows", rows)))
    return failure();
  if (rows.getDimSize(1) != 1)
    return emitOpError() << "rows has type " << rows << "; row addresses have one column";
  if (getColumns() < 1)
    return emitOpError() << "columns is " << getColumns() << "; it must be 1 or more";
  if (int64_t(getSlices()) < 1 || (getSlices() > 1 && !getApart()))
    return emitOpError() << "has " << getSlices()
                         << " slices; it takes 1, or more with how far they lie apart";
  return success();
}

LogicalResult PagedRowsOp::verify() {
  if (!cast<MemRefType>(getTable().getType()).getElementType().isInteger(32))
    return emitOpError() << "table has type " << getTable().getType()
                         << "; a page table holds i32 page ids";
  if (getPage() < 1)
    return emitOpError() << "page size is " << getPage() << "; it must be 1 or more";
  return verifyRows(*this, getRows().getType());
}

LogicalResult MmaOp::verify() {
  for (auto [name, value] :
       {std::pair<StringRef, Value>{"a", getA()}, {"b", getB()}, {"c", getC()}})
    if (failed(verifyTile(*this, name, value.getType())))
      return failure();
  auto a = cast<RankedTensorType>(getA().getType()), b = cast<RankedTensorType>(getB().getType());
  auto c = cast<RankedTensorType>(getC().getType());
  int64_t k = b.getDimSize(getTransposeB() ? 1 : 0), n = b.getDimSize(getTransposeB() ? 0 : 1);
  int64_t &sliced = getTransposeB() ? n : k;
  if (getSlices() < 1 || c.getDimSize(0) % getSlices() || sliced % getSlices())
    return emitOpError() << "cuts " << c.getDimSize(0) << " rows of c and " << sliced
                         << " rows of b into " << getSlices() << " slices; both must be multiples";
  sliced /= getSlices();
  if (a.getDimSize(1) != k)
    return emitOpError() << "a has " << a.getDimSize(1) << " columns and b " << k
                         << " along the reduction; they must agree";
  bool sharesRows = a.getDimSize(0) * int64_t(getSlices()) == c.getDimSize(0);
  if ((c.getDimSize(0) != a.getDimSize(0) && !sharesRows) || c.getDimSize(1) != n)
    return emitOpError() << "c is " << c.getDimSize(0) << "x" << c.getDimSize(1)
                         << "; the product is " << a.getDimSize(0) << "x" << n;
  if (!c.getElementType().isF32())
    return emitOpError() << "accumulates in " << c << "; f32 is wanted";
  if (!isa<FloatType>(a.getElementType()) || a.getElementType() != b.getElementType())
    return emitOpError() << "multiplies " << a.getElementType() << " by " << b.getElementType()
                         << "; both must be the same float type";
  return success();
}

/// One result element for each of the `count` things (rows or columns) of the operand.
template <typename Reduction>
static LogicalResult verifyReduction(Reduction op, unsigned dim, StringRef things,
                                     int64_t slices = 1) {
  if (failed(verifyTile(op, "operand", op.getTile().getType())))
    return failure();
  auto tile = cast<RankedTensorType>(op.getTile().getType());
  auto result = cast<RankedTensorType>(op.getResult().getType());
  if (op.getCombiner() == Combiner::None)
    return op.emitOpError("combines nothing; use max or sum");
  if (slices < 1 || tile.getDimSize(0) % slices)
    return op.emitOpError() << "cuts " << tile.getDimSize(0) << " rows into " << slices
                            << " slices; a divisor is wanted";
  if (!isTile(result) || result.getDimSize(0) != slices * tile.getDimSize(dim) ||
      result.getDimSize(1) != 1 || result.getElementType() != tile.getElementType())
    return op.emitOpError() << "result has type " << result << "; one " << tile.getElementType()
                            << " for each of " << slices * tile.getDimSize(dim) << " " << things
                            << " is wanted";
  return success();
}

LogicalResult ReduceOp::verify() { return verifyReduction(*this, 0, "rows"); }
LogicalResult ReduceColumnsOp::verify() {
  return verifyReduction(*this, 1, "columns", getSlices());
}

LogicalResult FoldOp::verify() {
  auto tile = cast<RankedTensorType>(getTile().getType());
  auto result = cast<RankedTensorType>(getResult().getType());
  if (failed(verifyTile(*this, "operand", tile)) || failed(verifyTile(*this, "result", result)))
    return failure();
  if (getCombiner() == Combiner::None)
    return emitOpError("combines nothing; use max or sum");
  int64_t rows = tile.getDimSize(0);
  if (int64_t(getSlices()) < 1 || rows % getSlices())
    return emitOpError() << "cuts " << rows << " rows into " << getSlices()
                         << " slices; a divisor is wanted";
  int64_t own = rows / int64_t(getSlices()), got = result.getDimSize(0);
  if (getFirst() && (got > own || own % got))
    return emitOpError() << "takes " << got << " of " << own << " rows; a divisor is wanted";
  if ((!getFirst() && got != rows && got != own) || result.getDimSize(1) != tile.getDimSize(1) ||
      result.getElementType() != tile.getElementType())
    return emitOpError() << "result has type " << result << "; " << own << " or " << rows
                         << " rows like the operand's are wanted";
  return success();
}

//===----------------------------------------------------------------------===//
// MapOp
//===----------------------------------------------------------------------===//

Combiner MapOp::getCombiner(unsigned i) {
  ArrayAttr combiners = getCombinersAttr();
  return combiners ? cast<CombinerAttr>(combiners[i]).getValue() : Combiner::None;
}

std::pair<int64_t, int64_t> MapOp::getSpace() {
  int64_t rows = 1, columns = 1;
  auto widen = [&](Value value) {
    auto type = cast<RankedTensorType>(value.getType());
    rows = std::max(rows, type.getDimSize(0));
    columns = std::max(columns, type.getDimSize(1));
  };
  llvm::for_each(getInputs(), widen);
  for (auto [i, result] : llvm::enumerate(getResults()))
    widen(result);
  return {rows, columns};
}

LogicalResult MapOp::verify() {
  if (getResults().empty())
    return emitOpError("has no result");
  SmallVector<Value> tiles(getInputs());
  llvm::append_range(tiles, getResults());
  for (Value value : tiles)
    if (failed(verifyTile(*this, "operand or result", value.getType())))
      return failure();
  if (getCombinersAttr() && getCombinersAttr().size() != getResults().size())
    return emitOpError() << "has " << getResults().size() << " results and "
                         << getCombinersAttr().size() << " combiners";
  auto [rows, columns] = getSpace();
  auto fits = [](int64_t extent, int64_t space) { return extent == 1 || extent == space; };
  for (Value input : getInputs()) {
    auto type = cast<RankedTensorType>(input.getType());
    if (!fits(type.getDimSize(0), rows) || !fits(type.getDimSize(1), columns))
      return emitOpError() << "input " << type << " does not broadcast to " << rows << "x"
                           << columns;
  }
  for (auto [i, result] : llvm::enumerate(getResults())) {
    auto type = cast<RankedTensorType>(result.getType());
    int64_t wanted = getCombiner(i) == Combiner::None ? columns : 1;
    if (type.getDimSize(0) != rows || type.getDimSize(1) != wanted)
      return emitOpError() << "result " << i << " has type " << type << "; " << rows << "x"
                           << wanted << " is wanted";
  }
  return success();
}

LogicalResult MapOp::verifyRegions() {
  Block &block = getBody().front();
  if (block.getNumArguments() != getInputs().size() + 2)
    return emitOpError() << "region has " << block.getNumArguments() << " arguments; "
                         << getInputs().size() << " elements, the row and the column are wanted";
  for (auto [i, argument] : llvm::enumerate(block.getArguments())) {
    Type wanted = i < getInputs().size() ? getElementTypeOrSelf(getInputs()[i].getType())
                                         : Type(IntegerType::get(getContext(), 32));
    if (argument.getType() != wanted)
      return emitOpError() << "region argument " << i << " is " << argument.getType() << "; "
                           << wanted << " is wanted";
  }
  auto yield = cast<YieldOp>(block.getTerminator());
  if (yield.getNumOperands() != getNumResults())
    return emitOpError() << "yields " << yield.getNumOperands() << " values for " << getNumResults()
                         << " results";
  for (auto [i, value] : llvm::enumerate(yield.getValues()))
    if (value.getType() != getElementTypeOrSelf(getResult(i).getType()))
      return emitOpError() << "yields " << value.getType() << " for result " << i << " of type "
                           << getResult(i).getType();
  return success();
}

ParseResult MapOp::parse(OpAsmParser &parser, OperationState &state) {
  SmallVector<OpAsmParser::UnresolvedOperand> inputs;
  SmallVector<Type> inputTypes, resultTypes;
  if (parser.parseLParen())
    return failure();
  SMLoc inputsLoc = parser.getCurrentLocation();
  if (failed(parser.parseOptionalRParen())) {
    if (parser.parseOperandList(inputs) || parser.parseColonTypeList(inputTypes) ||
        parser.parseRParen())
      return failure();
  }
  Region *body = state.addRegion();
  if (parser.parseRegion(*body))
    return failure();
  ensureTerminator(*body, parser.getBuilder(), state.location);
  if (succeeded(parser.parseOptionalKeyword("combine"))) {
    SmallVector<Attribute> combiners;
    auto parseOne = [&]() -> ParseResult {
      StringRef word;
      SMLoc loc = parser.getCurrentLocation();
      if (parser.parseKeyword(&word))
        return failure();
      std::optional<Combiner> combiner = symbolizeCombiner(word);
      if (!combiner)
        return parser.emitError(loc)
               << "unknown combiner '" << word << "'; none, max or sum is wanted";
      combiners.push_back(CombinerAttr::get(parser.getContext(), *combiner));
      return success();
    };
    if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseOne))
      return failure();
    state.addAttribute(getCombinersAttrName(state.name),
                       parser.getBuilder().getArrayAttr(combiners));
  }
  if (parser.parseOptionalAttrDict(state.attributes) || parser.parseArrowTypeList(resultTypes) ||
      parser.resolveOperands(inputs, inputTypes, inputsLoc, state.operands))
    return failure();
  state.addTypes(resultTypes);
  return success();
}

void MapOp::print(OpAsmPrinter &printer) {
  printer << "(";
  if (!getInputs().empty())
    printer << getInputs() << " : " << getInputs().getTypes();
  printer << ") ";
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/true);
  if (getCombinersAttr()) {
    printer << " combine [";
    llvm::interleaveComma(getCombinersAttr(), printer, [&](Attribute combiner) {
      printer << stringifyCombiner(cast<CombinerAttr>(combiner).getValue());
    });
    printer << "]";
  }
  printer.printOptionalAttrDict((*this)->getAttrs(), {getCombinersAttrName()});
  printer.printArrowTypeList(getResultTypes());
}

// Tiles between memory and registers, and the addresses of rows.
#include "codegen/cuda/emit/Printer.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cuda;
using tile::Layout;

namespace {

RankedTensorType typeOf(Value tile) { return cast<RankedTensorType>(tile.getType()); }

} // namespace

Expression Printer::stridedRow(tile::StridedRowsOp rows, const Expression &index) {
  Layout layout = layoutOf(rows.getRows());
  Expression row = rowOf(layout, index), stride = use(rows.getStride());
  // The only row lies at the offset.
  Expression beyond = row.text == "0"      ? row
                      : stride.text == "1" ? row
                                           : binary(row, "*", stride, Precedence::Product);
  Expression address = sum(use(rows.getOffset()), beyond);
  IntegerAttr count;
  if (matchPattern(rows.getCount(), m_Constant(&count)) &&
      count.getInt() >= layout.cover().first) // every row of the tile is one of the count
    return address;
  return {row.text + " < " + use(rows.getCount()).in(Precedence::Sum) + " ? " + address.text +
              " : -1",
          Precedence::Conditional};
}

LogicalResult Printer::print(tile::StridedRowsOp rows) {
  declare(rows.getRows());
  forEachRegister(layoutOf(rows.getRows()), 1, [&](const Expression &index) {
    w.line(element(rows.getRows(), index).text + " = " + stridedRow(rows, index).text + ";");
  });
  return success();
}

LogicalResult Printer::print(tile::PagedRowsOp rows) {
  Layout layout = layoutOf(rows.getRows());
  declare(rows.getRows());
  // Of a tile's rows, so that it fits; the negative counts of tiles without keys do, too.
  std::string count = asInt(rows.getCount()).text;
  // Row addresses at 1 a page and 0 a slot are the pages' numbers.
  bool isPage = matchPattern(rows.getPageStride(), m_One()) &&
                matchPattern(rows.getSlotStride(), m_Zero()) &&
                matchPattern(rows.getOffset(), m_Zero());
  forEachRegister(layout, 1, [&](const Expression &index) {
    std::string row = rowOf(layout, index).text;
    std::string guard;
    if (layout.cover().first > typeOf(rows.getRows()).getDimSize(0))
      guard = row + " >= " + std::to_string(typeOf(rows.getRows()).getDimSize(0)) + " ? -1 : ";
    std::string strides = isPage ? ""
                                 : ", " + use(rows.getOffset()).text + ", " +
                                       use(rows.getPageStride()).text + ", " +
                                       use(rows.getSlotStride()).text;
    w.line(element(rows.getRows(), index).text + " = " + guard +
           (isPage ? "page_of<" : "paged_row<") + Twine(rows.getPage()) + ">(" +
           use(rows.getTable()).text + ", " + use(rows.getBase()).text + ", " +
           use(rows.getKey()).text + ", " + row + ", " + count + strides + ");");
  });
  return success();
}

LogicalResult Printer::print(tile::LoadOp load) {
  Value tile = load.getTile();
  Layout layout = layoutOf(tile);
  RankedTensorType type = typeOf(tile);
  Type memory = cast<MemRefType>(load.getBase().getType()).getElementType();
  std::string base = use(load.getBase()).text;
  declare(tile);
  int64_t slice = type.getDimSize(0) / int64_t(load.getSlices());
  auto value = [&](const Expression &index) {
    std::string rows =
        element(load.getRows(), sliceIndex(layout.registers, true, type.getDimSize(1) == 1, index))
            .text;
    Expression column = columnOf(layout, index);
    if (load.getSlices() > 1)
      column = sum(column, {"(" + rowOf(layout, index).text + ") / " + std::to_string(slice) +
                                " * " + std::to_string(type.getDimSize(1)),
                            Precedence::Product});
    Expression at = load.getFirst() ? sum(use(load.getFirst()), column) : column;
    std::string condition = inside(type, layout, index);
    condition += (condition.empty() ? "" : " && ") + rows + " >= 0";
    if (load.getLimit())
      condition += " && " + at.text + " < " + use(load.getLimit()).in(Precedence::Sum);
    Expression offset =
        load.getStride() ? binary(at, "*", use(load.getStride()), Precedence::Product) : at;
    std::string element = base + "[" + sum({rows}, offset).text + "]";
    bool widens = memory != type.getElementType();
    if (widens)
      element = "to_f32(" + element + ")";
    std::string zero = isa<FloatType>(type.getElementType()) && !type.getElementType().isF32()
                           ? typeName(type.getElementType()) + "{}"
                       : type.getElementType().isF32() ? "0.0f"
                                                       : typeName(type.getElementType()) + "(0)";
    return condition + " ? " + element + " : " + zero;
  };
  if (memory != type.getElementType() && !type.getElementType().isF32())
    return load.emitOpError() << "widens " << memory << " to " << type.getElementType()
                              << "; f32 is possible";
  forEachRegister(layout, isPacked(tile) ? 2 : 1, [&](const Expression &index) {
    if (!isPacked(tile)) {
      w.line(element(tile, index).text + " = " + value(index) + ";");
      return;
    }
    std::string to = variables[tile];
    if (registersOf(tile) > 1)
      to += "[" + index.in(Precedence::Product) + " / 2]";
    w.line(to + " = pack_bits<" + typeName(type.getElementType()) + ">(" + value(index) + ", " +
           value(sum(index, number(1))) + ");");
  });
  return success();
}

/// The planner's own memory: its arrays begin at a multiple of 64 bytes
/// (runtime/device/PlanArena.h).
static bool isOfPlan(Value base) {
  auto named = dyn_cast<NameLoc>(base.getLoc());
  return isa<BlockArgument>(base) && named && named.getName().getValue().starts_with("plan.");
}

LogicalResult Printer::print(tile::StoreOp store) {
  Value tile = store.getTile();
  if (tile::sharedOf(tile))
    return printStoreFromShared(store);
  Layout layout = layoutOf(tile);
  RankedTensorType type = typeOf(tile);
  Type memory = cast<MemRefType>(store.getBase().getType()).getElementType();
  std::string base = use(store.getBase()).text, memoryName = typeName(memory);
  std::string stride = store.getStride() ? use(store.getStride()).text : "1";
  bool whole = holdsPairs(tile) && isa<FloatType>(memory) && !store.getFirst() && !store.getLimit();
  // Neighbours of a row that a thread has.
  int64_t run = 1;
  for (int64_t wide : {4, 2})
    if (run == 1 && whole && layout.registers[0].extent % wide == 0 &&
        type.getDimSize(1) % wide == 0)
      run = wide;
  std::string copies = isFirstCopy(layout);
  if (!copies.empty())
    w.open("if (" + copies + ")");
  auto one = [&](const Expression &index) {
    std::string rows =
        element(store.getRows(), sliceIndex(layout.registers, true, type.getDimSize(1) == 1, index))
            .text;
    Expression column = columnOf(layout, index);
    Expression at = store.getFirst() ? sum(use(store.getFirst()), column) : column;
    std::string condition = inside(type, layout, index);
    condition += (condition.empty() ? "" : " && ") + rows + " >= 0";
    if (store.getLimit())
      condition += " && " + at.text + " < " + use(store.getLimit()).in(Precedence::Sum);
    Expression offset =
        store.getStride() ? binary(at, "*", use(store.getStride()), Precedence::Product) : at;
    std::string place = sum({rows}, offset).text, value = element(tile, index).text;
    w.line("if (" + condition + ")");
    if (run > 1) {
      std::string values;
      for (int64_t i = 0; i < run; ++i)
        values += ", " + element(tile, sum(index, number(i))).text;
      if (run == 4 && memory.isF32() && !store.getStride() && isOfPlan(store.getBase())) {
        w.line("  store_aligned(" + base + " + " + place + values + ");");
        return;
      }
      w.line(std::string("  ") + (run == 4 ? "store_four<" : "store_pair<") + memoryName + ">(" +
             base + " + " + place + ", " + stride + values + ");");
      return;
    }
    if (memory != type.getElementType())
      value = "narrow_to<" + memoryName + ">(" +
              (type.getElementType().isF32() ? value : "to_f32(" + value + ")") + ")";
    w.line("  " + base + "[" + place + "] = " + value + ";");
  };
  forEachRegister(layout, run, one);
  if (!copies.empty())
    w.close();
  return success();
}

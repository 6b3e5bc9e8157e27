// Copies of rows into shared memory.
#include "codegen/cuda/emit/Printer.h"
#include "codegen/cuda/emit/SharedText.h"
#include "codegen/cuda/passes/CopyGroups.h"
#include "codegen/cuda/passes/Products.h"
#include "codegen/cuda/passes/RowTurns.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cuda;
using tile::Layout;

/// Whether rows are made of what lanes give to each other.
static bool hasLanesRows(Value rows) {
  if (auto convert = rows.getDefiningOp<tile::ConvertOp>())
    return isFromLanes(convert);
  auto map = rows.getDefiningOp<tile::MapOp>();
  return map && llvm::any_of(map.getInputs(), hasLanesRows);
}

/// What a copy begins with: its tile in shared memory and its memory; what follows the rows.
Printer::CopyText Printer::textOf(tile::CopyAsyncOp copy) {
  auto buffer = cast<MemRefType>(copy.getBuffer().getType());
  std::string stride = copy.getStride() ? use(copy.getStride()).text : "1", columns;
  CopyText text;
  text.to = tileType(layoutOfBuffer(copy.getBuffer())) + "{" +
            slotOf(copy.getBuffer(), copy.getSlot(), copy.getAhead()) + "}";
  text.from = use(copy.getBase()).text;
  if (copy.getFirst())
    text.from += " + " + use(copy.getFirst()).in(Precedence::Product) + " * " + stride;
  if (copy.getLimit()) {
    Expression limit = use(copy.getLimit());
    if (copy.getFirst())
      limit = binary(limit, "-", use(copy.getFirst()), Precedence::Sum);
    columns = ", int(minimum(i64(" + limit.text + "), i64(" + std::to_string(buffer.getDimSize(2)) +
              ")))";
  }
  text.rest = (stride == "1" && columns.empty() ? "" : ", " + stride) + columns;
  return text;
}

LogicalResult Printer::print(tile::CopyAsyncOp copy) {
  if (begun.contains(copy))
    return success();
  if (isByTurn(copy))
    return printByTurn(copy);
  auto buffer = cast<MemRefType>(copy.getBuffer().getType());
  CopyText text = textOf(copy);
  std::string rows = rowArray(copy.getRows());
  if (copy.getCondition())
    w.open("if (" + use(copy.getCondition()).text + ")");
  w.line("copy_rows<" +
         arguments({typeName(buffer.getElementType()), std::to_string(buffer.getDimSize(1)),
                    std::to_string(buffer.getDimSize(2)),
                    std::to_string(lanesOfRow(layoutOf(copy.getRows()))), std::to_string(warps)}) +
         ">(" + arguments({text.to, text.from, rows}) + text.rest + ");");
  if (copy.getCondition())
    w.close();
  endGroup(copy);
  return success();
}

/// After the last copy of a group.
void Printer::endGroup(tile::CopyAsyncOp copy) {
  if (!copy->hasAttr(kJoinsNextAttr))
    w.line("copy_commit();");
}

/// Both are whole, contiguous rows of the same shape, present together.
bool Printer::TurnText::joins(const TurnText &other) const {
  return rest.empty() && other.rest.empty() && guard == other.guard && type == other.type &&
         parameters == other.parameters && place == other.place && at.present == other.at.present;
}

/// What a copy of row `row`, that of turn `i`, is called with.
FailureOr<Printer::TurnText> Printer::textOfTurn(tile::CopyAsyncOp copy, StringRef row,
                                                 SmallVectorImpl<Value> &made) {
  Layout layout = layoutOf(copy.getRows());
  auto buffer = cast<MemRefType>(copy.getBuffer().getType());
  int64_t rows = buffer.getDimSize(1), padded = llvm::alignTo(rows, 16);
  FailureOr<RowText> at = rowOfCopy(copy.getRows(), {"i"}, made);
  if (failed(at))
    return failure();
  TurnText text;
  text.at = *at;
  if (layout.cover().first > rows) // a row beyond the tile has no address
    text.at.present += (" && " + row + " < " + Twine(rows)).str();
  if (layout.cover().first > padded)
    text.guard = ("if (" + row + " < " + Twine(padded) + ") ").str();
  CopyText whole = textOf(copy);
  text.from = whole.from, text.rest = whole.rest;
  text.type = tileType(layoutOfBuffer(copy.getBuffer()));
  // Rows a multiple of 8 further on are turned alike: all turns have the thread's own address.
  text.to = whole.to, text.place = row.str();
  if (const tile::LayoutAxis &turns = layout.registers[0]; turns.stride % 8 == 0) {
    text.to += ".from_row(" + coordinate(layout.registers, tile::LayoutDim::Row, {"i"}).text + ")";
    text.place = threadPart(layout, tile::LayoutDim::Row).text;
  }
  text.parameters =
      arguments({typeName(buffer.getElementType()), std::to_string(buffer.getDimSize(2)),
                 std::to_string(lanesOfRow(layout))});
  return text;
}

/// A thread's rows in a loop, a row a turn, and with it those of the copies of its group that
/// follow.
LogicalResult Printer::printByTurn(tile::CopyAsyncOp first) {
  Layout layout = layoutOf(first.getRows());
  SmallVector<tile::CopyAsyncOp> copies;
  for (Operation *op = first; op; op = op->getNextNode()) {
    auto copy = dyn_cast<tile::CopyAsyncOp>(op);
    bool joins = copies.empty() || copies.back()->hasAttr(kJoinsNextAttr);
    if (copy && joins && isByTurn(copy) && copy.getCondition() == first.getCondition() &&
        layoutOf(copy.getRows()) == layout)
      copies.push_back(copy);
    else if (copy || op->getNumResults() != 1 || !isMadeByTurn(op->getResult(0)))
      break;
  }
  begun.insert(copies.begin(), copies.end());

  if (first.getCondition())
    w.open("if (" + use(first.getCondition()).text + ")");
  w.line("#pragma unroll 1");
  w.open("for (int i = 0; i < " + Twine(layout.registerCount()) + "; ++i)");
  std::string row = rowOf(layout, {"i"}).text;
  if (llvm::any_of(copies, [](tile::CopyAsyncOp copy) { return hasLanesRows(copy.getRows()); }))
    w.comment("Of the lanes that share a row, lane i knows where the thread's row i lies.");
  SmallVector<Value> made;
  SmallVector<TurnText, 2> texts;
  for (tile::CopyAsyncOp copy : copies) {
    FailureOr<TurnText> text = textOfTurn(copy, row, made);
    if (failed(text))
      return failure();
    texts.push_back(*text);
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i + 1 < texts.size() && texts[i].joins(texts[i + 1])) {
      const TurnText &one = texts[i], &other = texts[i + 1];
      w.line(one.guard + "copy_two_rows<" + one.parameters + ">(" +
             arguments({one.to, other.to, one.place, one.from, one.at.address, other.from,
                        other.at.address, one.at.present}) +
             ");");
      ++i;
      continue;
    }
    const TurnText &one = texts[i];
    w.line(one.guard + "copy_one_row<" + one.parameters + ">(" +
           arguments({one.to, one.place, one.from, one.at.present, one.at.address}) + one.rest +
           ");");
  }
  for (Value value : made)
    bound.erase(value);
  w.close();
  if (first.getCondition())
    w.close();
  endGroup(copies.back());
  return success();
}

/// A thread's row number `turn`; `made` are the values that got a constant of the turn.
FailureOr<Expression> Printer::rowOfTurn(Value rows, const Expression &turn,
                                         SmallVectorImpl<Value> &made) {
  if (auto known = bound.find(rows); known != bound.end())
    return known->second;
  Operation *op = rows.getDefiningOp();
  Expression value;
  if (auto strided = dyn_cast<tile::StridedRowsOp>(op)) {
    value = stridedRow(strided, turn);
  } else if (auto convert = dyn_cast<tile::ConvertOp>(op)) {
    value = {fromLane(convert, turn)};
  } else {
    FailureOr<Expression> yielded = yieldOfTurn(cast<tile::MapOp>(op), turn, made);
    if (failed(yielded))
      return failure();
    value = *yielded;
  }
  // One of the tile's.
  auto named = dyn_cast<NameLoc>(rows.getLoc());
  StringRef all = named ? named.getName().getValue() : StringRef("address");
  std::string variable = names.fresh(all.ends_with("s") ? all.drop_back() : all);
  w.line("const " + elementName(rows) + " " + variable + " = " + value.text + ";");
  made.push_back(rows);
  return bound[rows] = {variable};
}

FailureOr<Expression> Printer::yieldOfTurn(tile::MapOp map, const Expression &turn,
                                           SmallVectorImpl<Value> &made) {
  for (Value input : map.getInputs())
    if (failed(rowOfTurn(input, turn, made)))
      return failure();
  if (auto note = map->getAttrOfType<StringAttr>(tile::kNoteAttr))
    w.paragraph(note.getValue());
  FailureOr<SmallVector<Expression>> yielded = mapBody(map, turn);
  if (failed(yielded))
    return failure();
  return yielded->front();
}

/// A row's address, and whether it has one. Where a choice between an address and -1 is all that a
/// map ends with, its sides are told apart: nobody looks at the sign of what was just chosen.
FailureOr<Printer::RowText> Printer::rowOfCopy(Value rows, const Expression &turn,
                                               SmallVectorImpl<Value> &made) {
  auto map = rows.getDefiningOp<tile::MapOp>();
  if (map && !bound.count(rows)) {
    Value chosen = map.getBody().front().getTerminator()->getOperand(0);
    if (auto cast = chosen.getDefiningOp<arith::IndexCastOp>())
      chosen = cast.getIn();
    auto choice = chosen.getDefiningOp<arith::SelectOp>();
    APInt none;
    if (choice && matchPattern(choice.getTrueValue(), m_ConstantInt(&none)) && none.isAllOnes()) {
      if (failed(yieldOfTurn(map, turn, made)))
        return failure();
      Value address = choice.getFalseValue();
      if (auto cast = address.getDefiningOp<arith::IndexCastOp>())
        address = cast.getIn();
      return RowText{"!(" + use(choice.getCondition()).text + ")", use(address).text};
    }
  }
  FailureOr<Expression> address = rowOfTurn(rows, turn, made);
  if (failed(address))
    return failure();
  return RowText{address->text + " >= 0", "maximum(" + address->text + ", i64(0))"};
}

/// Row `index` of those that lanes have for each other.
std::string Printer::fromLane(tile::ConvertOp convert, const Expression &index) {
  int64_t sharing = lanesOfRow(layoutOf(convert.getResult()));
  std::string first = "lane / " + std::to_string(sharing) + " * " + std::to_string(sharing) + " + ";
  return "from_lane(" + element(convert.getTile(), number(0)).text + ", " +
         (sharing < 32 ? first : "") + index.in(Precedence::Sum) + ")";
}

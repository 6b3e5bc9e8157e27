// Maps and reductions over tiles in registers: straight code for each element.
#include "codegen/cuda/emit/Printer.h"
#include "codegen/cuda/passes/LayoutGroups.h"
#include "codegen/cuda/passes/SharedAccess.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cuda;
using tile::Combiner;
using tile::Layout;
using tile::LayoutAxis;
using tile::LayoutDim;

namespace {

RankedTensorType typeOf(Value tile) { return cast<RankedTensorType>(tile.getType()); }

/// Layout of the space a map runs over: that of a tile as large as the space, or of the
/// one whose slice the results are.
Layout spaceOf(tile::MapOp map) {
  auto [rows, columns] = map.getSpace();
  auto fills = [&, rows = rows, columns = columns](Value value) {
    return typeOf(value).getDimSize(0) == rows && typeOf(value).getDimSize(1) == columns;
  };
  for (Value input : map.getInputs())
    if (fills(input))
      return tile::fragmentOf(input).getLayout();
  for (Value result : map.getResults())
    if (fills(result))
      return tile::fragmentOf(result).getLayout();
  return tile::fragmentOf(map.getResult(0)).getLayout();
}

/// The lanes that hold other columns of the same row.
int64_t columnLanes(const Layout &layout, LayoutDim reduced) {
  int64_t mask = 0, below = 1;
  for (const tile::LayoutAxis &axis : layout.lanes) {
    if (axis.dim == reduced)
      mask |= (axis.extent - 1) * below;
    below *= axis.extent;
  }
  return mask;
}

bool readsMemory(tile::MapOp map) {
  return map.getBody()
      .walk([](memref::LoadOp) { return WalkResult::interrupt(); })
      .wasInterrupted();
}

const char *combineName(bool isMax) { return isMax ? "combine_max" : "combine_sum"; }

} // namespace

FailureOr<SmallVector<Expression>> Printer::mapBody(tile::MapOp map, const Expression &index) {
  auto [rows, columns] = map.getSpace();
  Layout space = spaceOf(map);
  Block &region = map.getBody().front();
  for (auto [i, input] : llvm::enumerate(map.getInputs())) {
    RankedTensorType type = typeOf(input);
    Expression at = sliceIndex(space.registers, type.getDimSize(0) == rows,
                               type.getDimSize(1) == columns, index);
    define(region.getArgument(i), element(input, at));
  }
  Value row = map.getRowIndex(), column = map.getColumnIndex();
  if (!row.use_empty())
    define(row, rowOf(space, index));
  if (!column.use_empty())
    define(column, columnOf(space, index));
  current = Element{map, space, index};
  LogicalResult printed = block(region);
  current.reset();
  if (failed(printed))
    return failure();
  SmallVector<Expression> yielded;
  for (auto [i, value] : llvm::enumerate(region.getTerminator()->getOperands())) {
    auto truncation = value.getDefiningOp<arith::TruncFOp>();
    bool packs = map.getCombiner(i) == Combiner::None && isPacked(map.getResult(i)) && truncation &&
                 truncation.getOperand().getType().isF32();
    yielded.push_back(use(packs ? truncation.getOperand() : value));
  }
  return yielded;
}

void Printer::finishCombined(Value result, const Layout &space, bool isMax) {
  int64_t mask = columnLanes(space, LayoutDim::Column);
  if (!mask)
    return;
  std::string variable = variables[result];
  int64_t count = registersOf(result);
  std::string callee =
      std::string("over_lanes<") + combineName(isMax) + ", " + std::to_string(mask) + ">(";
  if (count == 1) {
    w.line(variable + " = " + callee + variable + ");");
    return;
  }
  w.unrolled("i", count);
  w.line(variable + "[i] = " + callee + variable + "[i]);");
  w.close();
}

LogicalResult Printer::print(tile::MapOp map) {
  auto [rows, columns] = map.getSpace();
  Layout space = spaceOf(map);
  for (const tile::LayoutAxis &axis : space.warps)
    if (axis.dim == LayoutDim::Column && map.getCombinersAttr())
      return map.emitOpError("combines elements that lie in different warps");
  int64_t step = 1;
  bool single = map.getNumResults() == 1;
  for (auto [i, result] : llvm::enumerate(map.getResults())) {
    Combiner combiner = map.getCombiner(i);
    if (combiner != Combiner::None) {
      declare(result, combiner == Combiner::Max ? "-infinity" : "0.0f");
      continue;
    }
    if (isPacked(result))
      step = 2;
    Value operand;
    for (Value input : map.getInputs())
      if (typeOf(input) == typeOf(result) && llvm::count(map.getInputs(), input) == 1)
        operand = operand && diesAt(operand, map) ? operand : input;
    // A tile with a name of its own gets a variable of its own.
    if (operand && !nameOf(result).empty() && nameOf(result) != nameOf(operand))
      operand = Value();
    bool taken = llvm::any_of(map.getResults().take_front(i), [&](Value other) {
      return operand && variables.count(operand) && variables.lookup(other) == variables[operand];
    });
    takeOver(result, taken ? Value() : operand, map);
  }

  // Where a result takes an operand's place, all values of an element are known before one is
  // stored.
  bool overwrites = llvm::any_of(map.getResults(), [&](Value result) {
    return llvm::any_of(map.getInputs(), [&](Value input) {
      return variables.count(input) && variables[input] == variables[result];
    });
  });
  std::string guard;
  RankedTensorType whole =
      RankedTensorType::get({rows, columns}, IntegerType::get(map.getContext(), 32));
  bool guarded = readsMemory(map) || map.getCombinersAttr();
  bool sound = true;
  auto oneElement = [&](const Expression &index) -> SmallVector<Expression> {
    FailureOr<SmallVector<Expression>> values = mapBody(map, index);
    if (failed(values)) {
      sound = false;
      return {};
    }
    if (!single && overwrites)
      for (auto [i, value] : llvm::enumerate(*values)) {
        if (value.binds == Precedence::Atom && value.text.find('[') == std::string::npos)
          continue;
        std::string saved = names.fresh("y");
        w.line("const auto " + saved + " = " + value.text + ";");
        value = {saved};
      }
    return *values;
  };
  auto store = [&](unsigned i, const Expression &index, const Expression &value) {
    Value result = map.getResult(i);
    Combiner combiner = map.getCombiner(i);
    if (combiner == Combiner::None) {
      w.line(element(result, index).text + " = " + value.text + ";");
      return;
    }
    std::string to = element(result, sliceIndex(space.registers, true, false, index)).text;
    w.line(to + " = " + combineName(combiner == Combiner::Max) + "::apply(" + to + ", " +
           value.text + ");");
  };
  forEachRegister(space, step, [&](const Expression &index) {
    std::string condition = guarded ? inside(whole, space, index) : "";
    if (!condition.empty())
      w.open("if (" + condition + ")");
    SmallVector<Expression> low = oneElement(index), high;
    if (!sound)
      return;
    Expression next = sum(index, number(1));
    if (step == 2)
      high = oneElement(next);
    for (auto [i, result] : llvm::enumerate(map.getResults())) {
      bool packs = map.getCombiner(i) == Combiner::None && isPacked(result);
      if (!packs) {
        store(i, index, low[i]);
        if (step == 2)
          store(i, next, high[i]);
        continue;
      }
      std::string to = variables[result];
      if (registersOf(result) > 1)
        to += "[" + index.in(Precedence::Product) + " / 2]";
      Value yielded = map.getBody().front().getTerminator()->getOperand(i);
      auto truncation = yielded.getDefiningOp<arith::TruncFOp>();
      bool fromFloat = truncation && truncation.getOperand().getType().isF32();
      std::string type = typeName(typeOf(result).getElementType());
      w.line(to + " = " + (fromFloat ? "pack<" : "pack_bits<") + type + ">(" + low[i].text + ", " +
             high[i].text + ");");
    }
    if (condition.empty())
      return;
    // What is beyond the tile has a value too: products multiply it, if only by zero or for rows
    // that nobody reads.
    SmallVector<std::string> zeros;
    for (auto [i, result] : llvm::enumerate(map.getResults())) {
      if (map.getCombiner(i) != Combiner::None)
        continue;
      if (isPacked(result))
        zeros.push_back(
            variables[result] +
            (registersOf(result) > 1 ? "[" + index.in(Precedence::Product) + " / 2]" : "") +
            " = 0;");
      else
        for (int64_t k = 0; k < step; ++k)
          zeros.push_back(element(result, k ? next : index).text + " = {};");
    }
    if (!zeros.empty())
      w.otherwise();
    for (const std::string &zero : zeros)
      w.line(zero);
    w.close();
  });
  if (!sound)
    return failure();
  for (auto [i, result] : llvm::enumerate(map.getResults()))
    if (map.getCombiner(i) != Combiner::None)
      finishCombined(result, space, map.getCombiner(i) == Combiner::Max);
  return success();
}

LogicalResult Printer::print(tile::ReduceOp reduce) {
  Layout space = layoutOf(reduce.getTile());
  for (const tile::LayoutAxis &axis : space.warps)
    if (axis.dim == LayoutDim::Column)
      return reduce.emitOpError("combines elements that lie in different warps");
  if (!typeOf(reduce.getTile()).getElementType().isF32())
    return reduce.emitOpError() << "combines " << typeOf(reduce.getTile()).getElementType()
                                << "; f32 can be combined";
  bool isMax = reduce.getCombiner() == Combiner::Max;
  declare(reduce.getResult(), isMax ? "-infinity" : "0.0f");
  forEachRegister(space, 1, [&](const Expression &index) {
    std::string condition = inside(typeOf(reduce.getTile()), space, index);
    std::string to =
        element(reduce.getResult(), sliceIndex(space.registers, true, false, index)).text;
    w.line((condition.empty() ? "" : "if (" + condition + ") ") + to + " = " + combineName(isMax) +
           "::apply(" + to + ", " + element(reduce.getTile(), index).text + ");");
  });
  finishCombined(reduce.getResult(), space, isMax);
  return success();
}

LogicalResult Printer::print(tile::FoldOp fold) {
  Layout to = layoutOf(fold.getResult());
  RankedTensorType type = typeOf(fold.getTile());
  if (!type.getElementType().isF32())
    return fold.emitOpError() << "combines " << type.getElementType() << "; f32 can be combined";
  std::string parts = use(fold.getTile()).text;
  Expression first = number(0);
  if (fold.getFirst())
    first = asInt(fold.getFirst());
  bool isMax = fold.getCombiner() == Combiner::Max;
  int64_t slice = type.getDimSize(0) / fold.getSlices();
  declare(fold.getResult());
  // Four neighbours of a row are read at once where a thread has them.
  bool fours = !to.registers.empty() && to.registers[0] == LayoutAxis{4, LayoutDim::Column, 1} &&
               type.getDimSize(1) % 4 == 0;
  const char *combine = combineName(isMax);
  forEachRegister(to, fours ? 4 : 1, [&](const Expression &index) {
    auto resultAt = [&](const Expression &i) { return element(fold.getResult(), i).text; };
    auto at = [&](const std::string &part) {
      return elementAt("float", part, to, index, slice, first);
    };
    std::string condition = inside(typeOf(fold.getResult()), to, index);
    // A slice of whole turns of the rows' chunks begins where a tile could.
    bool single = fold.getSlices() == 1;
    std::string part = parts + ".from_row(slice * " + std::to_string(slice) + ")";
    if (single)
      part = parts;
    // The first slice begins the combination, where there is anything to combine.
    auto combined = [&](const std::string &whole, const std::string &next) {
      return single ? whole + " = " + next + ";"
                    : whole + " = slice == 0 ? " + next + " : " + combine + "::apply(" + whole +
                          ", " + next + ");";
    };
    for (int64_t i = 0; !condition.empty() && i < (fours ? 4 : 1); ++i)
      w.line(resultAt(sum(index, number(i))) + " = " + combine + "::identity();");
    if (!condition.empty())
      w.open("if (" + condition + ")");
    if (!single)
      w.unrolled("slice", fold.getSlices());
    std::string place = at(part);
    if (slice % 8 && !single) // the row says where its slice begins
      place = "element_at<float>(" + parts + ", slice * " + std::to_string(slice) + " + (" +
              sum(first, rowOf(to, index)).text + ") % " + std::to_string(slice) + ", " +
              columnOf(to, index).text + ")";
    if (fours) {
      w.line("float part[4];");
      w.line("load_four<float>(part, " + place + ");");
      w.unrolled("j", 4);
      w.line(combined(resultAt(sum(index, {"j"})), "part[j]"));
      w.close();
    } else if (single) {
      w.line(resultAt(index) + " = load_shared<float>(" + place + ");");
    } else {
      w.line("const float part = load_shared<float>(" + place + ");");
      w.line(combined(resultAt(index), "part"));
    }
    if (!single)
      w.close();
    if (!condition.empty())
      w.close();
  });
  return success();
}

LogicalResult Printer::print(tile::ReduceColumnsOp reduce) {
  Layout from = layoutOf(reduce.getTile()), to = layoutOf(reduce.getResult());
  RankedTensorType type = typeOf(reduce.getTile());
  bool isMax = reduce.getCombiner() == Combiner::Max;
  const char *combine = combineName(isMax);
  Layout columns = from.slice(LayoutDim::Column);
  std::string parts = names.fresh("column"), scratch = names.fresh("parts");
  int64_t count = columns.registerCount();
  w.line("float " + parts + "[" + Twine(count) + "];");
  fill(parts, count, std::string(combine) + "::identity()");
  forEachRegister(from, 1, [&](const Expression &index) {
    std::string condition = inside(type, from, index);
    std::string at = parts + "[" + sliceIndex(from.registers, false, true, index).text + "]";
    w.line((condition.empty() ? "" : "if (" + condition + ") ") + at + " = " + combine +
           "::apply(" + at + ", " + element(reduce.getTile(), index).text + ");");
  });
  auto space =
      cast<tile::SharedAttr>(cast<MemRefType>(reduce.getScratch().getType()).getMemorySpace());
  w.line("const shared_tile<" + Twine(space.getPitch()) + ", " + Twine(space.getSpan()) + "> " +
         scratch + " = {" + use(reduce.getScratch()).text + "};");
  int64_t mask = columnLanes(from, LayoutDim::Row);
  // One lane of those that share a column writes; a column of the tile once for each warp.
  Layout writers = columns;
  for (tile::LayoutAxis &axis : writers.warps)
    axis = {axis.extent, LayoutDim::Row, 1};
  std::string lead = isFirstCopy(writers);
  forEachRegister(columns, 1, [&](const Expression &index) {
    std::string at = parts + "[" + index.text + "]";
    if (mask)
      w.line(at + " = over_lanes<" + combine + ", " + Twine(mask) + ">(" + at + ");");
    std::string column = columnOf(columns, index).text, condition = lead;
    if (columns.cover().second > type.getDimSize(1))
      condition +=
          (condition.empty() ? "" : " && ") + column + " < " + std::to_string(type.getDimSize(1));
    w.line((condition.empty() ? "" : "if (" + condition + ") ") +
           "store_shared(element_at<float>(" + scratch + ", warp, " + column + "), " + at + ");");
  });
  w.line("__syncthreads();");
  // Warps that hold rows of one slice lie side by side; further warps hold copies.
  int64_t used = 1;
  for (const tile::LayoutAxis &axis : from.warps)
    if (axis.dim == LayoutDim::Row)
      used *= axis.extent;
  int64_t slices = reduce.getSlices(), perSlice = std::max<int64_t>(used / slices, 1);
  if (used < slices)
    return reduce.emitOpError() << "has " << slices << " slices on " << used
                                << " warps; a warp's rows must lie in one slice";
  declare(reduce.getResult());
  forEachRegister(to, 1, [&](const Expression &index) {
    std::string result = element(reduce.getResult(), index).text, row = rowOf(to, index).text;
    std::string condition = inside(typeOf(reduce.getResult()), to, index);
    w.line(result + " = " + combine + "::identity();");
    if (!condition.empty())
      w.open("if (" + condition + ")");
    w.unrolled("part", perSlice);
    std::string first = slices == 1 ? ""
                                    : "(" + row + ") / " + std::to_string(type.getDimSize(1)) +
                                          " * " + std::to_string(perSlice) + " + ";
    std::string column =
        slices == 1 ? row : "(" + row + ") % " + std::to_string(type.getDimSize(1));
    w.line(result + " = " + combine + "::apply(" + result +
           ", load_shared<float>(element_at<float>(" + scratch + ", " + first + "part, " + column +
           ")));");
    w.close();
    if (!condition.empty())
      w.close();
  });
  return success();
}

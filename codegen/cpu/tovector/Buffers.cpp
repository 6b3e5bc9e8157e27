// Lifetimes of tiles and their places in scratch memory.
#include "codegen/cpu/tovector/Buffers.h"

#include "codegen/cpu/tovector/ControlFlow.h"
#include "codegen/cpu/tovector/InPlaceRows.h"
#include "dialect/tile/TileDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <algorithm>

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cpu;

bool llmopt::cpu::hasColumnOrder(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  auto order = tensor ? dyn_cast_or_null<tile::OrderAttr>(tensor.getEncoding()) : nullptr;
  return order && order.getValue() == tile::Order::Columns;
}

TileShape TileShape::get(RankedTensorType type, const CpuIsa &isa) {
  TileShape shape;
  shape.rows = type.getDimSize(0);
  shape.columns = type.getDimSize(1);
  // One column is contiguous either way: row statistics are vectors over rows.
  shape.lanesOverRows = hasColumnOrder(type) || shape.columns == 1;
  shape.outer = shape.lanesOverRows ? shape.columns : shape.rows;
  shape.inner = llvm::alignTo(shape.lanesOverRows ? shape.rows : shape.columns, isa.lanes);
  shape.pairs = hasColumnOrder(type) && shape.columns > 1 && type.getElementType().isBF16();
  if (shape.pairs) {
    shape.outer = llvm::divideCeil(shape.columns, 2);
    shape.inner *= 2;
  }
  shape.isBool = type.getElementType().isInteger(1);
  shape.element = shape.isBool ? IntegerType::get(type.getContext(), 8) : type.getElementType();
  return shape;
}

int64_t TileShape::bytes() const {
  return llvm::divideCeil(outer * inner * element.getIntOrFloatBitWidth(), 8);
}

BufferPlan::BufferPlan(func::FuncOp function, const CpuIsa &isa) : target(isa) {
  number(function.getBody().front());
  addValues(function);
  mergeControlFlow(function);
  mergeInPlace(function);
  addPacking(function);
  assignOffsets();
}

void BufferPlan::number(Block &block) {
  for (Operation &op : block) {
    int64_t start = counter++;
    if (isa_and_nonnull<tile::MapOp>(&op)) {
      positions[&op] = {start, start};
      continue;
    }
    for (Region &region : op.getRegions())
      for (Block &inner : region)
        number(inner);
    positions[&op] = {start, op.getNumRegions() ? counter++ : start};
  }
}

void BufferPlan::addValue(Value value, int64_t definition) {
  if (!tile::isTile(value.getType()) || (isSplat(value) && !needsMemory(value)))
    return;
  if (auto map = value.getDefiningOp<tile::MapOp>(); map && absorbingProduct(map))
    return; // never in memory
  if (auto load = value.getDefiningOp<tile::LoadOp>(); load && streamsRows(load, target))
    return;
  Range range{definition, definition};
  addUses(value, range);
  index[value] = places.size();
  Place place;
  place.life.push_back(range);
  place.bytes = TileShape::get(cast<RankedTensorType>(value.getType()), target).bytes();
  place.parent = places.size();
  places.push_back(std::move(place));
}

void BufferPlan::addValues(func::FuncOp function) {
  function.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (op->getParentOfType<tile::MapOp>() || op == function)
      return;
    auto [start, end] = positions.lookup(op);
    for (Value result : op->getResults())
      addValue(result, 2 * end + 1);
    for (Region &region : op->getRegions()) {
      if (region.empty() || isa<tile::MapOp>(op))
        continue;
      int64_t entry = 2 * start + 1;
      auto loop = dyn_cast<scf::WhileOp>(op);
      if (loop && &region == &loop.getAfter())
        entry = 2 * positions.lookup(loop.getConditionOp()).first + 1;
      for (Value argument : region.front().getArguments())
        addValue(argument, entry);
    }
  });
}

/// Extends `range` to the last read of `value`. A read inside a loop that does not
/// contain the definition happens again in every trip: the value lives to its end.
void BufferPlan::addUses(Value value, Range &range) {
  Region *home = value.getParentRegion();
  for (OpOperand &use : value.getUses()) {
    Operation *op = use.getOwner();
    // Rows are read where the product is: those to come, and those that it streams.
    auto load = dyn_cast<tile::LoadOp>(op);
    if (load && streamsRows(load, target))
      op = *load->user_begin();
    while (isa<tile::PrefetchOp>(op) && isa_and_nonnull<tile::MmaOp>(op->getNextNode()))
      op = op->getNextNode();
    if (auto map = dyn_cast<tile::MapOp>(op))
      if (tile::MmaOp product = absorbingProduct(map))
        op = product; // reads the map's operands in its place
    bool edge = isControlFlow(op);
    int64_t last = 2 * positions.lookup(op).first + (edge ? 0 : 1);
    for (Region *region = op->getParentRegion(); region != home; region = region->getParentRegion())
      if (!isa<scf::IfOp>(region->getParentOp()))
        last = std::max(last, 2 * positions.lookup(region->getParentOp()).second);
    range.second = std::max(range.second, last);
  }
}

unsigned BufferPlan::find(unsigned i) const {
  while (places[i].parent != i)
    i = places[i].parent = places[places[i].parent].parent;
  return i;
}

void BufferPlan::unite(Value a, Value b) {
  unsigned first = placeOf(a), second = placeOf(b);
  if (first == second)
    return;
  places[second].parent = first;
  llvm::append_range(places[first].life, places[second].life);
  places[first].bytes = std::max(places[first].bytes, places[second].bytes);
}

bool BufferPlan::tryMerge(Value a, Value b, int64_t touch) {
  if (!hasPlace(a) || !hasPlace(b) || a.getType() != b.getType())
    return false;
  if (samePlace(a, b))
    return true;
  for (Range x : places[placeOf(a)].life)
    for (Range y : places[placeOf(b)].life) {
      int64_t low = std::max(x.first, y.first), high = std::min(x.second, y.second);
      if (low <= high && !(low == touch && high == touch))
        return false;
    }
  unite(a, b);
  return true;
}

void BufferPlan::extend(Value value, Range range) {
  if (hasPlace(value))
    places[placeOf(value)].life.push_back(range);
}

void BufferPlan::mergeControlFlow(func::FuncOp function) {
  // First what must be one place: a loop's argument and its result, and the positions
  // at which copies into them happen. Then what may be: their sources.
  SmallVector<EdgeSet> edges = collectEdges(function);
  for (EdgeSet &set : edges)
    for (Edge &edge : set.edges)
      if (edge.alias && hasPlace(edge.target) && hasPlace(edge.alias))
        unite(edge.target, edge.alias);
  // Between a terminator and the point where control arrives nothing runs, so that the
  // copy's own position is all that it adds to the life of its target.
  for (EdgeSet &set : edges) {
    int64_t at = 2 * positions.lookup(set.op).first + 1;
    for (Edge &edge : set.edges)
      extend(edge.target, {at, at});
  }
  for (EdgeSet &set : edges)
    for (Edge &edge : set.edges)
      tryMerge(edge.target, edge.source);
  for (EdgeSet &set : edges) {
    SmallVector<Value> copied;
    for (Edge &edge : set.edges)
      if (hasPlace(edge.source) && !samePlace(edge.source, edge.target))
        copied.push_back(edge.source);
    if (copied.size() > 1)
      addTemporaries(set.op, copied, 2 * positions.lookup(set.op).first);
  }
}

void BufferPlan::addTemporaries(Operation *op, ValueRange values, int64_t position) {
  for (auto [i, value] : llvm::enumerate(values))
    addTemporary(op, i, TileShape::get(cast<RankedTensorType>(value.getType()), target).bytes(),
                 position);
}

void BufferPlan::addTemporary(Operation *op, unsigned i, int64_t bytes, int64_t position) {
  temporaries[{op, i}] = places.size();
  Place place;
  place.life.push_back({position, position + 1});
  place.bytes = bytes;
  place.parent = places.size();
  places.push_back(std::move(place));
}

/// Scratch for B of bf16 products whose pairs are not neighbours already; for few rows,
/// for the addresses of B's rows and a row of zeros, and where those are scores for sums and A
/// in another order.
void BufferPlan::addPacking(func::FuncOp function) {
  function.walk([&](tile::MmaOp mma) {
    auto type = cast<RankedTensorType>(mma.getB().getType());
    int64_t position = 2 * positions.lookup(mma).first;
    bool rows = takesRows(mma, target);
    if (rows || takesRowPairs(mma, target))
      addTemporary(mma, 0,
                   8 * llvm::alignTo(type.getDimSize(0), 8) +
                       4 * llvm::alignTo(type.getDimSize(1), 16),
                   position);
    else if (type.getElementType().isBF16() && !mma.getTransposeB())
      addTemporaries(mma, mma.getB(), position);
    if (rows && mma.getTransposeB()) {
      addTemporary(mma, 1, 4 * kPartialSums * target.lanes, position);
      if (splitsPairs(mma, target))
        addTemporary(mma, 2,
                     TileShape::get(cast<RankedTensorType>(mma.getA().getType()), target).bytes(),
                     position);
    }
  });
}

int64_t BufferPlan::temporary(Operation *op, unsigned i) const {
  return places[temporaries.lookup({op, i})].offset;
}

/// A product accumulates where its operand c dies, a map writes over a full operand.
void BufferPlan::mergeInPlace(func::FuncOp function) {
  function.walk([&](Operation *op) {
    int64_t touch = 2 * positions.lookup(op).first + 1;
    if (auto mma = dyn_cast<tile::MmaOp>(op)) {
      tile::MapOp scale = rowScaleOf(mma);
      Value start = scale ? scale.getInputs()[0] : mma.getC();
      if (start != mma.getA() && start != mma.getB())
        tryMerge(start, mma.getResult(), touch);
    } else if (auto map = dyn_cast<tile::MapOp>(op); map && !absorbingProduct(map)) {
      auto [rows, columns] = map.getSpace();
      for (auto [i, result] : llvm::enumerate(map.getResults())) {
        auto type = cast<RankedTensorType>(result.getType());
        if (type.getDimSize(0) != rows || type.getDimSize(1) != columns)
          continue;
        for (Value input : map.getInputs())
          if (tryMerge(input, result, touch))
            break;
      }
    }
  });
}

void BufferPlan::assignOffsets() {
  SmallVector<unsigned> order;
  for (unsigned i = 0; i < places.size(); ++i)
    if (find(i) == i)
      order.push_back(i);
  // Large places first: the small ones then fill the gaps.
  llvm::sort(order, [&](unsigned a, unsigned b) {
    return std::pair(-places[a].bytes, a) < std::pair(-places[b].bytes, b);
  });
  auto meet = [&](unsigned a, unsigned b) {
    for (Range x : places[a].life)
      for (Range y : places[b].life)
        if (std::max(x.first, y.first) <= std::min(x.second, y.second))
          return true;
    return false;
  };
  SmallVector<unsigned> placed;
  for (unsigned i : order) {
    int64_t size = llvm::alignTo(places[i].bytes, 64), at = 0;
    SmallVector<std::pair<int64_t, int64_t>> taken;
    for (unsigned other : placed)
      if (meet(i, other))
        taken.push_back(
            {places[other].offset, places[other].offset + llvm::alignTo(places[other].bytes, 64)});
    llvm::sort(taken);
    for (auto [begin, end] : taken) {
      if (at + size <= begin)
        break;
      at = std::max(at, end);
    }
    places[i].offset = at;
    placed.push_back(i);
    totalBytes = std::max(totalBytes, at + size);
  }
}

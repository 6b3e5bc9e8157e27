// tile-fuse-maps: fewer passes over tiles.
#include "passes/tile/Passes.h"

#include "dialect/tile/TileDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace llmopt::tile;

namespace llmopt::tile {
#define GEN_PASS_DEF_TILEFUSEMAPS
#include "passes/tile/Passes.h.inc"
} // namespace llmopt::tile

namespace {

/// A map under construction: its region takes ops of other maps by cloning.
class MapBuilder {
public:
  explicit MapBuilder(MLIRContext *context, Location loc) : builder(context), loc(loc) {
    row = block.addArgument(builder.getI32Type(), loc);
    column = block.addArgument(builder.getI32Type(), loc);
  }

  /// The region's element of `tile`; equal tiles share one.
  Value input(Value tile) {
    auto [it, added] = inputs.insert({tile, Value()});
    if (added)
      it->second = block.insertArgument(
          inputs.size() - 1, cast<RankedTensorType>(tile.getType()).getElementType(), loc);
    return it->second;
  }

  /// Clones the ops of `map`; elements that `known` does not hold become inputs. Returns
  /// what the map yields.
  SmallVector<Value> inlineMap(MapOp map,
                               const DenseMap<Value, Value> &known = DenseMap<Value, Value>()) {
    IRMapping mapping;
    Block &body = map.getBody().front();
    for (auto [tile, argument] : llvm::zip(map.getInputs(), body.getArguments())) {
      auto it = known.find(tile);
      if (it != known.end())
        mapping.map(argument, it->second);
      else if (!argument.use_empty())
        mapping.map(argument, input(tile));
    }
    mapping.map(map.getRowIndex(), row);
    mapping.map(map.getColumnIndex(), column);
    builder.setInsertionPointToEnd(&block);
    for (Operation &op : body.without_terminator())
      builder.clone(op, mapping);
    SmallVector<Value> yielded;
    for (Value value : body.getTerminator()->getOperands())
      yielded.push_back(mapping.lookupOrDefault(value));
    return yielded;
  }

  void addResult(Value replaced, Combiner combiner, Value yielded) {
    results.push_back(replaced);
    combiners.push_back(CombinerAttr::get(builder.getContext(), combiner));
    yields.push_back(yielded);
  }
  size_t operandCount() const { return inputs.size(); }

  /// Makes the op at `before` and gives it the uses of all results that it replaces.
  MapOp finish(Operation *before) {
    builder.setInsertionPointToEnd(&block);
    YieldOp::create(builder, loc, yields);
    builder.setInsertionPoint(before);
    bool plain = llvm::all_of(combiners, [](Attribute attr) {
      return cast<CombinerAttr>(attr).getValue() == Combiner::None;
    });
    SmallVector<Value> operands;
    for (auto &[tile, element] : inputs)
      operands.push_back(tile);
    auto map = MapOp::create(builder, loc, ValueRange(results).getTypes(), operands,
                             plain ? ArrayAttr() : builder.getArrayAttr(combiners));
    Block &body = map.getBody().emplaceBlock();
    for (BlockArgument argument : block.getArguments())
      argument.replaceAllUsesWith(body.addArgument(argument.getType(), loc));
    body.getOperations().splice(body.end(), block.getOperations());
    for (auto [old, now] : llvm::zip(results, map.getResults()))
      old.replaceAllUsesWith(now);
    return map;
  }

private:
  OpBuilder builder;
  Location loc;
  Block block;
  llvm::MapVector<Value, Value> inputs;
  Value row, column;
  SmallVector<Value> results, yields;
  SmallVector<Attribute> combiners;
};

bool readsMemory(MapOp map) { return !isMemoryEffectFree(map); }

/// Something between the two may write what a map's loads read.
bool writesBetween(Operation *first, Operation *last) {
  for (Operation *op = first->getNextNode(); op && op != last; op = op->getNextNode()) {
    auto effects = getEffectsRecursively(op);
    if (!effects || llvm::any_of(*effects, [](const MemoryEffects::EffectInstance &effect) {
          return isa<MemoryEffects::Write>(effect.getEffect());
        }))
      return true;
  }
  return false;
}

bool isFull(MapOp map, Value tile) {
  auto type = cast<RankedTensorType>(tile.getType());
  return std::pair(type.getDimSize(0), type.getDimSize(1)) == map.getSpace();
}

/// Repeating a handful of arithmetic ops costs less than storing and loading a tile.
bool isCheap(MapOp map) {
  constexpr int kMostOps = 4;
  int count = 0;
  for (Operation &op : map.getBody().front().without_terminator()) {
    if (!isa<arith::ArithDialect>(op.getDialect()) ||
        isa<arith::DivFOp, arith::RemFOp, arith::DivSIOp, arith::DivUIOp, arith::RemSIOp,
            arith::RemUIOp>(op))
      return false;
    count += !isa<arith::ConstantOp>(op);
  }
  return count <= kMostOps;
}

class Fuser {
public:
  explicit Fuser(func::FuncOp function) : function(function) {}

  void run() {
    function.walk([&](ReduceOp reduce) { absorbReduce(reduce); });
    for (bool changed = true; changed;) {
      changed = false;
      SmallVector<MapOp> maps;
      function.walk([&](MapOp map) { maps.push_back(map); });
      for (MapOp map : maps)
        if (tidy(map) || fuseInto(map)) {
          changed = true;
          break; // ops were replaced: collect again
        }
    }
  }

private:
  void absorbReduce(ReduceOp reduce);
  bool tidy(MapOp map);
  bool fuseInto(MapOp consumer);
  bool merge(MapOp producer, MapOp consumer);
  bool repeat(MapOp producer, MapOp consumer, Value tile);

  func::FuncOp function;
};

void Fuser::absorbReduce(ReduceOp reduce) {
  auto result = dyn_cast<OpResult>(reduce.getTile());
  auto producer = result ? dyn_cast<MapOp>(result.getOwner()) : MapOp();
  MapBuilder builder(reduce.getContext(), reduce.getLoc());
  bool fits = producer && producer->getBlock() == reduce->getBlock() && isFull(producer, result) &&
              producer.getCombiner(result.getResultNumber()) == Combiner::None;
  if (!fits) {
    builder.addResult(reduce.getResult(), reduce.getCombiner(), builder.input(reduce.getTile()));
    builder.finish(reduce);
    reduce.erase();
    return;
  }
  SmallVector<Value> yielded = builder.inlineMap(producer);
  for (auto [i, old] : llvm::enumerate(producer.getResults()))
    builder.addResult(old, producer.getCombiner(i), yielded[i]);
  builder.addResult(reduce.getResult(), reduce.getCombiner(), yielded[result.getResultNumber()]);
  builder.finish(producer);
  reduce.erase();
  producer.erase();
}

/// Splat operands become scalars; unused operands and results go. True when it did.
bool Fuser::tidy(MapOp map) {
  Block &body = map.getBody().front();
  bool useless = llvm::any_of(map.getResults(), [](Value result) { return result.use_empty(); });
  DenseMap<Value, Value> known;
  SmallVector<std::pair<Value, TypedAttr>> splats;
  for (auto [tile, argument] : llvm::zip(map.getInputs(), body.getArguments())) {
    DenseElementsAttr elements;
    useless |= argument.use_empty();
    if (matchPattern(tile, m_Constant(&elements)) && elements.isSplat())
      splats.push_back({tile, cast<TypedAttr>(elements.getSplatValue<Attribute>())});
  }
  if (llvm::all_of(map.getResults(), [](Value result) { return result.use_empty(); })) {
    map.erase();
    return true;
  }
  if (!useless && splats.empty())
    return false;
  // The extent of the space may rest on an operand alone: then it must stay.
  SmallVector<Value> kept;
  for (Value result : map.getResults())
    if (!result.use_empty())
      kept.push_back(result);
  OpBuilder constants(map);
  for (auto [tile, value] : splats)
    known[tile] = arith::ConstantOp::create(constants, map.getLoc(), value);
  MapBuilder builder(map.getContext(), map.getLoc());
  SmallVector<Value> yielded = builder.inlineMap(map, known);
  int64_t columns = map.getSpace().second;
  bool spans = false;
  for (auto [i, old] : llvm::enumerate(map.getResults()))
    if (!old.use_empty()) {
      builder.addResult(old, map.getCombiner(i), yielded[i]);
      spans |= map.getCombiner(i) == Combiner::None;
    }
  auto wide = [&](Value tile) {
    return cast<RankedTensorType>(tile.getType()).getDimSize(1) == columns;
  };
  if (!spans && columns != 1)
    for (Value tile : map.getInputs())
      if (wide(tile) && !known.contains(tile)) {
        builder.input(tile);
        spans = true;
        break;
      }
  if (!spans && columns != 1)
    return false; // only a splat says how wide it is: leave it
  if (builder.operandCount() == map.getInputs().size() && kept.size() == map.getNumResults())
    return false;
  builder.finish(map);
  map.erase();
  return true;
}

bool Fuser::fuseInto(MapOp consumer) {
  for (Value tile : consumer.getInputs()) {
    auto result = dyn_cast<OpResult>(tile);
    auto producer = result ? dyn_cast<MapOp>(result.getOwner()) : MapOp();
    if (!producer || producer == consumer || producer->getBlock() != consumer->getBlock() ||
        producer.getSpace() != consumer.getSpace() || !isFull(producer, tile) ||
        producer.getCombiner(result.getResultNumber()) != Combiner::None)
      continue;
    bool only = llvm::all_of(tile.getUsers(), [&](Operation *user) { return user == consumer; });
    if (only && merge(producer, consumer))
      return true;
    if (repeat(producer, consumer, tile))
      return true;
  }
  return false;
}

/// One map in place of two, at the consumer if all other users of the producer follow
/// it, or at the producer if the consumer's operands are there already.
bool Fuser::merge(MapOp producer, MapOp consumer) {
  bool late = true, early = true;
  for (Value result : producer.getResults())
    for (Operation *user : result.getUsers()) {
      Operation *place = producer->getBlock()->findAncestorOpInBlock(*user);
      late &= user == consumer || (place && consumer->isBeforeInBlock(place));
    }
  for (Value tile : consumer.getInputs()) {
    Operation *source = tile.getDefiningOp();
    if (source == producer &&
        producer.getCombiner(cast<OpResult>(tile).getResultNumber()) != Combiner::None)
      return false; // needs the whole row first
    early &= !source || source == producer || source->getBlock() != producer->getBlock() ||
             source->isBeforeInBlock(producer);
  }
  if ((readsMemory(producer) || readsMemory(consumer)) && writesBetween(producer, consumer))
    return false;
  // Scalars that the consumer's region captures must be there as well.
  consumer.getBody().walk([&](Operation *op) {
    for (Value operand : op->getOperands()) {
      Operation *source = operand.getDefiningOp();
      early &= !source || source->getBlock() != producer->getBlock() ||
               source->isBeforeInBlock(producer);
    }
  });
  if (!late && !early)
    return false;
  MapBuilder builder(producer.getContext(), consumer.getLoc());
  SmallVector<Value> made = builder.inlineMap(producer);
  DenseMap<Value, Value> known;
  for (auto [i, result] : llvm::enumerate(producer.getResults()))
    if (producer.getCombiner(i) == Combiner::None)
      known[result] = made[i];
  SmallVector<Value> yielded = builder.inlineMap(consumer, known);
  for (auto [i, result] : llvm::enumerate(producer.getResults()))
    if (llvm::any_of(result.getUsers(), [&](Operation *user) { return user != consumer; }))
      builder.addResult(result, producer.getCombiner(i), made[i]);
  for (auto [i, result] : llvm::enumerate(consumer.getResults()))
    builder.addResult(result, consumer.getCombiner(i), yielded[i]);
  builder.finish(late ? consumer : producer);
  consumer.erase();
  producer.erase();
  return true;
}

/// Computes `tile` again inside the consumer, if that lets it never be stored.
bool Fuser::repeat(MapOp producer, MapOp consumer, Value tile) {
  auto absorbs = [&](Operation *user) {
    auto map = dyn_cast<MapOp>(user);
    return map && map->getBlock() == producer->getBlock() && map.getSpace() == producer.getSpace();
  };
  if (!isCheap(producer) || !llvm::all_of(tile.getUsers(), absorbs))
    return false;
  MapBuilder builder(consumer.getContext(), consumer.getLoc());
  SmallVector<Value> made = builder.inlineMap(producer);
  DenseMap<Value, Value> known{{tile, made[cast<OpResult>(tile).getResultNumber()]}};
  SmallVector<Value> yielded = builder.inlineMap(consumer, known);
  for (auto [i, result] : llvm::enumerate(consumer.getResults()))
    builder.addResult(result, consumer.getCombiner(i), yielded[i]);
  builder.finish(consumer);
  consumer.erase();
  return true;
}

struct TileFuseMaps : llmopt::tile::impl::TileFuseMapsBase<TileFuseMaps> {
  void runOnOperation() override { Fuser(getOperation()).run(); }
};

} // namespace

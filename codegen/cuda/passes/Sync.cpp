// tile-gpu-sync; see Passes.td.
#include "codegen/cuda/Passes.h"
#include "codegen/cuda/passes/SharedAccess.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace llmopt::cuda {
#define GEN_PASS_DEF_TILEGPUSYNC
#include "codegen/cuda/Passes.h.inc"
} // namespace llmopt::cuda

using namespace mlir;
using namespace llmopt;
using cuda::SharedAccess;

namespace {

/// A buffer's slot `slot + ahead`; slot null: any.
struct Place {
  memref::AllocaOp buffer;
  Value slot;
  int64_t ahead;
  bool writes;
  bool operator==(const Place &) const = default;
};

/// What other threads may still be doing, and how old the copies under way are.
struct State {
  SmallVector<Place> pending;
  llvm::MapVector<Value, int64_t> ages;

  void add(const Place &place) {
    if (!llvm::is_contained(pending, place))
      pending.push_back(place);
  }
  /// The state where two ways meet.
  void join(const State &other) {
    for (const Place &place : other.pending)
      add(place);
    for (auto [token, age] : other.ages) {
      auto [entry, isNew] = ages.insert({token, age});
      entry->second = std::min(entry->second, age);
    }
  }
  bool operator==(const State &other) const {
    auto within = [](const State &a, const State &b) {
      return llvm::all_of(a.pending,
                          [&](const Place &place) { return llvm::is_contained(b.pending, place); });
    };
    auto sameAge = [&](const std::pair<Value, int64_t> &entry) {
      auto found = other.ages.find(entry.first);
      return found != other.ages.end() && found->second == entry.second;
    };
    return within(*this, other) && within(other, *this) && ages.size() == other.ages.size() &&
           llvm::all_of(ages, sameAge);
  }
};

int64_t begin(memref::AllocaOp buffer) {
  return buffer->getAttrOfType<IntegerAttr>(tile::kOffsetAttr).getInt();
}

bool overlap(Place a, Place b) {
  if (a.buffer == b.buffer) {
    int64_t slots = a.buffer.getType().getDimSize(0);
    bool comparable = a.slot && a.slot == b.slot;
    return !comparable || (a.ahead - b.ahead) % slots == 0;
  }
  return begin(a.buffer) < begin(b.buffer) + cuda::bufferBytes(b.buffer.getType()) &&
         begin(b.buffer) < begin(a.buffer) + cuda::bufferBytes(a.buffer.getType());
}

class Synchroniser {
public:
  void run(func::FuncOp function) {
    State state;
    walk(&function.front(), state);
  }

private:
  void walk(Block *block, State &state) {
    for (Operation &op : llvm::make_early_inc_range(*block))
      visit(&op, state);
  }

  void visit(Operation *op, State &state) {
    if (isa<tile::BarrierOp>(op)) {
      state.pending.clear();
      return;
    }
    if (auto get = dyn_cast<tile::GetOp>(op))
      return visitGet(get, state);
    if (auto loop = dyn_cast<scf::ForOp>(op))
      return visitFor(loop, state);
    if (auto loop = dyn_cast<scf::WhileOp>(op))
      return visitWhile(loop, state);
    if (auto branch = dyn_cast<scf::IfOp>(op))
      return visitIf(branch, state);
    access(op, state);
  }

  void barrierBefore(Operation *op, State &state) {
    OpBuilder b(op);
    tile::BarrierOp::create(b, op->getLoc());
    state.pending.clear();
  }

  void access(Operation *op, State &state) {
    SmallVector<SharedAccess> accesses = cuda::sharedAccesses(op);
    auto conflicts = [&](const SharedAccess &access) {
      Place place{access.buffer, access.slot, access.ahead, access.writes};
      return llvm::any_of(state.pending, [&](const Place &other) {
        return (place.writes || other.writes) && overlap(place, other);
      });
    };
    if (llvm::any_of(accesses, conflicts))
      barrierBefore(op, state);
    // A barrier inside lies between the writes and the reads of the exchange.
    if (cuda::exchangesInside(op))
      state.pending.clear();
    for (const SharedAccess &access : accesses)
      if (!cuda::exchangesInside(op) || !access.writes)
        state.add({access.buffer, access.slot, access.ahead, access.writes});
    if (auto copy = dyn_cast<tile::CopyAsyncOp>(op)) {
      for (auto &[token, age] : state.ages)
        ++age;
      state.ages[copy.getToken()] = 0;
    }
  }

  /// The wait is each thread's own; the barrier after it makes all copies visible.
  void visitGet(tile::GetOp get, State &state) {
    auto buffer = get.getBuffer().getDefiningOp<memref::AllocaOp>();
    Place place{buffer, get.getSlot(), 0, false};
    bool written = llvm::any_of(
        state.pending, [&](const Place &other) { return other.writes && overlap(place, other); });
    if (Value token = get.getToken()) {
      int64_t age = state.ages.lookup(token);
      if (get.getPending())
        age = std::min<int64_t>(age, *get.getPending());
      get.setPending(age);
      written = true;
      state.ages.erase(token);
    }
    Operation *next = get->getNextNode();
    if (!written)
      return;
    state.pending.clear();
    if (isa<tile::BarrierOp>(next))
      return;
    OpBuilder b(get->getContext());
    b.setInsertionPointAfter(get);
    tile::BarrierOp::create(b, get.getLoc());
  }

  /// `state` with slots renamed for the next iteration of `loop`: i ahead 1 becomes i.
  static State nextIteration(State state, scf::ForOp loop, ArrayRef<Value> yielded) {
    for (Place &place : state.pending)
      if (place.slot == loop.getInductionVar())
        --place.ahead;
    State result;
    for (const Place &place : state.pending)
      result.add(place);
    for (auto [argument, value] : llvm::zip(loop.getRegionIterArgs(), yielded))
      if (auto age = state.ages.find(value); age != state.ages.end())
        result.ages[argument] = age->second;
    return result;
  }

  /// Places that are named by a value of `region` are any slot outside it.
  static void leave(State &state, Region &region) {
    State outside;
    for (Place place : state.pending) {
      if (place.slot && region.isAncestor(place.slot.getParentRegion()))
        place.slot = Value(), place.ahead = 0;
      outside.add(place);
    }
    outside.ages = state.ages;
    state = outside;
  }

  void visitFor(scf::ForOp loop, State &state) {
    State entry = state;
    for (auto [argument, init] : llvm::zip(loop.getRegionIterArgs(), loop.getInitArgs()))
      if (auto age = state.ages.find(init); age != state.ages.end())
        entry.ages[argument] = age->second;
    // Before the loop, slots are named by its lower bound: the first induction variable.
    for (Place &place : entry.pending)
      if (place.slot == loop.getLowerBound())
        place.slot = loop.getInductionVar();
    SmallVector<Value> yielded(loop.getBody()->getTerminator()->getOperands());
    for (;;) {
      State out = entry;
      walk(loop.getBody(), out);
      State again = entry;
      again.join(nextIteration(out, loop, yielded));
      if (again == entry) {
        entry.join(out);
        break;
      }
      entry = again;
    }
    leave(entry, loop.getRegion());
    state = entry;
  }

  void visitWhile(scf::WhileOp loop, State &state) {
    State entry = state;
    for (;;) {
      State out = entry;
      walk(loop.getBeforeBody(), out);
      walk(loop.getAfterBody(), out);
      leave(out, loop.getAfter());
      State again = entry;
      again.join(out);
      if (again == entry)
        break;
      entry = again;
    }
    state = entry;
  }

  void visitIf(scf::IfOp branch, State &state) {
    State other = state;
    walk(branch.thenBlock(), state);
    leave(state, branch.getThenRegion());
    if (branch.elseBlock()) {
      walk(branch.elseBlock(), other);
      leave(other, branch.getElseRegion());
    }
    state.join(other);
  }
};

/// Stores of scalars, with the arithmetic that serves nothing else, move into a branch
/// that one thread takes.
void electStores(func::FuncOp function) {
  SmallVector<memref::StoreOp> stores;
  function.walk([&](memref::StoreOp store) {
    if (!store->getParentOfType<tile::MapOp>())
      stores.push_back(store);
  });
  for (memref::StoreOp store : stores) {
    OpBuilder b(store);
    Value one = tile::ElectOp::create(b, store.getLoc(), b.getI1Type());
    auto branch = scf::IfOp::create(b, store.getLoc(), one, /*withElseRegion=*/false);
    store->moveBefore(branch.thenBlock()->getTerminator());
    for (bool moved = true; moved;) {
      moved = false;
      for (Operation &op : *branch.thenBlock())
        for (Value operand : op.getOperands()) {
          Operation *source = operand.getDefiningOp();
          bool movable = source && source->getBlock() == branch->getBlock() &&
                         (isPure(source) || isa<memref::LoadOp>(source)) &&
                         llvm::all_of(source->getUsers(), [&](Operation *user) {
                           return user->getBlock() == branch.thenBlock();
                         });
          if (!movable)
            continue;
          source->moveBefore(branch.thenBlock(), branch.thenBlock()->begin());
          moved = true;
          break;
        }
    }
  }
}

class SyncPass : public llmopt::cuda::impl::TileGpuSyncBase<SyncPass> {
public:
  void runOnOperation() override {
    if (!getOperation()->hasAttr(tile::kKernelAttr))
      return;
    Synchroniser().run(getOperation());
    electStores(getOperation());
  }
};

} // namespace

// tile-gpu-sync; see Passes.td.
#include "codegen/cuda/Passes.h"
#include "codegen/cuda/passes/CopyGroups.h"
#include "codegen/cuda/passes/SharedAccess.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/UB/IR/UBOps.h"

#include <limits>
#include <set>
#include <utility>

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

/// An access that a barrier lies behind.
struct Passed {
  Place place;
  Operation *barrier; ///< the last one; null: inside an operation
  bool operator==(const Passed &) const = default;
};

/// Age of a copy that was never begun, which nothing waits for: turns before a loop's first carry
/// its token (tile-gpu-pipeline).
constexpr int64_t kNeverBegun = std::numeric_limits<int64_t>::max();

/// Age of a copy whose group is open: 0 when that is closed.
constexpr int64_t kOpen = -1;

/// What other threads may still be doing, and how old the copies under way are: how many groups of
/// copies were begun after theirs.
struct State {
  SmallVector<Place> pending;
  SmallVector<Passed> passed; ///< what was done before the last barriers
  llvm::MapVector<Value, int64_t> ages;

  void add(const Place &place) {
    if (!llvm::is_contained(pending, place))
      pending.push_back(place);
  }
  void addPassed(const Passed &entry) {
    if (!llvm::is_contained(passed, entry))
      passed.push_back(entry);
  }
  /// The token's age; where nothing is known of it, that of the latest copy.
  int64_t ageOf(Value token) const {
    auto found = ages.find(token);
    if (found != ages.end())
      return found->second;
    return token.getDefiningOp<ub::PoisonOp>() ? kNeverBegun : 0;
  }
  /// `argument` of a loop gets what `value` is in `from`.
  void carry(Value argument, Value value, const State &from) {
    if (isa<tile::TokenType>(argument.getType()))
      ages[argument] = from.ageOf(value);
  }
  /// All threads have come to `barrier`.
  void meet(Operation *barrier) {
    SmallVector<Passed> before = std::exchange(passed, {});
    for (const Passed &entry : before)
      addPassed({entry.place, barrier});
    for (const Place &place : pending)
      addPassed({place, barrier});
    pending.clear();
  }
  /// The state where two ways meet.
  void join(const State &other) {
    for (const Place &place : other.pending)
      add(place);
    for (const Passed &entry : other.passed)
      addPassed(entry);
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
    auto passedIn = [](const State &a, const State &b) {
      return llvm::all_of(a.passed,
                          [&](const Passed &entry) { return llvm::is_contained(b.passed, entry); });
    };
    return within(*this, other) && within(other, *this) && passedIn(*this, other) &&
           passedIn(other, *this) && ages.size() == other.ages.size() &&
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

std::string nameOf(memref::AllocaOp buffer) {
  auto name = dyn_cast<NameLoc>(buffer->getLoc());
  return name ? name.getName().str() : "a tile";
}

/// "k", "k and v", "k, v and q".
std::string listed(const std::set<std::string> &names) {
  std::string text;
  for (const auto &[i, name] : llvm::enumerate(names))
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + name;
  return text;
}

/// What a barrier is there for: names of buffers.
struct Reason {
  std::set<std::string> there, done;

  std::string text() const {
    std::string shown, left;
    if (!there.empty())
      shown = listed(there) + (there.size() > 1 ? " are" : " is") + " there for all threads";
    if (!done.empty())
      left = "all are done with " + listed(done) +
             (done.size() > 1 ? ", which are overwritten next" : ", which is overwritten next");
    return "Barrier: " + shown + (shown.empty() || left.empty() ? "" : "; ") + left + ".";
  }
};

class Synchroniser {
public:
  void run(func::FuncOp function) {
    State state;
    walk(&function.front(), state);
    // All barriers stand: once more, to see what each is there for.
    reasons.clear();
    State again;
    walk(&function.front(), again);
    for (auto &[barrier, reason] : reasons)
      barrier->setAttr(tile::kNoteAttr, StringAttr::get(function.getContext(), reason.text()));
  }

private:
  void walk(Block *block, State &state) {
    for (Operation &op : llvm::make_early_inc_range(*block))
      visit(&op, state);
  }

  void visit(Operation *op, State &state) {
    if (isa<tile::BarrierOp>(op))
      return state.meet(op);
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
    state.meet(tile::BarrierOp::create(b, op->getLoc()));
  }

  /// Notes which barriers stand between `place` and what it would conflict with.
  void explain(const Place &place, State &state) {
    llvm::erase_if(state.passed, [&](const Passed &entry) {
      if (!(place.writes || entry.place.writes) || !overlap(place, entry.place))
        return false;
      if (entry.barrier) {
        Reason &reason = reasons[entry.barrier];
        (place.writes ? reason.done : reason.there).insert(nameOf(entry.place.buffer));
      }
      return place.writes; // what follows conflicts with the write
    });
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
    for (const SharedAccess &access : accesses)
      explain({access.buffer, access.slot, access.ahead, access.writes}, state);
    // A barrier inside lies between the writes and the reads of the exchange.
    if (cuda::exchangesInside(op))
      state.meet(nullptr);
    for (const SharedAccess &access : accesses)
      if (!cuda::exchangesInside(op) || !access.writes)
        state.add({access.buffer, access.slot, access.ahead, access.writes});
    if (auto copy = dyn_cast<tile::CopyAsyncOp>(op)) {
      state.ages[copy.getToken()] = kOpen;
      if (!copy->hasAttr(cuda::kJoinsNextAttr))
        for (auto &[token, age] : state.ages)
          age += age != kNeverBegun;
    }
  }

  /// The wait is each thread's own; the barrier after it makes all copies visible. What the last
  /// walk says of `pending` holds: of a loop, that is the one of the fixpoint.
  void visitGet(tile::GetOp get, State &state) {
    auto buffer = get.getBuffer().getDefiningOp<memref::AllocaOp>();
    Place place{buffer, get.getSlot(), 0, false};
    bool written = llvm::any_of(
        state.pending, [&](const Place &other) { return other.writes && overlap(place, other); });
    if (Value token = get.getToken()) {
      int64_t age = state.ageOf(token);
      get.setPending(age == kNeverBegun ? 0 : age);
      written = true;
      state.ages.erase(token);
    }
    Operation *next = get->getNextNode();
    // Gets in a row wait one after another, and share the barrier.
    if (auto follows = dyn_cast<tile::GetOp>(next); follows && follows.getToken())
      return;
    if (!written || isa<tile::BarrierOp>(next))
      return;
    OpBuilder b(get->getContext());
    b.setInsertionPointAfter(get);
    state.meet(tile::BarrierOp::create(b, get.getLoc()));
  }

  /// `state` with slots renamed for the next iteration of `loop`: i ahead 1 becomes i.
  static State nextIteration(State state, scf::ForOp loop, ArrayRef<Value> yielded) {
    for (Place &place : state.pending)
      if (place.slot == loop.getInductionVar())
        --place.ahead;
    State result;
    for (const Place &place : state.pending)
      result.add(place);
    for (Passed entry : state.passed) {
      int64_t slots = entry.place.buffer.getType().getDimSize(0);
      if (entry.place.slot == loop.getInductionVar())
        entry.place.ahead = (entry.place.ahead - 1 + slots) % slots;
      result.addPassed(entry);
    }
    for (auto [argument, value] : llvm::zip(loop.getRegionIterArgs(), yielded))
      result.carry(argument, value, state);
    return result;
  }

  /// Places that are named by a value of `region` are any slot outside it.
  static void leave(State &state, Region &region) {
    State outside;
    auto moved = [&](Place place) {
      if (place.slot && region.isAncestor(place.slot.getParentRegion()))
        place.slot = Value(), place.ahead = 0;
      return place;
    };
    for (const Place &place : state.pending)
      outside.add(moved(place));
    for (const Passed &entry : state.passed)
      outside.addPassed({moved(entry.place), entry.barrier});
    outside.ages = state.ages;
    state = outside;
  }

  void visitFor(scf::ForOp loop, State &state) {
    State entry = state;
    for (auto [argument, init] : llvm::zip(loop.getRegionIterArgs(), loop.getInitArgs()))
      entry.carry(argument, init, state);
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

  llvm::MapVector<Operation *, Reason> reasons;
};

/// Stores of scalars, with the arithmetic that serves nothing else, move into a branch
/// that one thread takes; neighbours into the same.
void electStores(func::FuncOp function) {
  SmallVector<memref::StoreOp> stores;
  function.walk([&](memref::StoreOp store) {
    if (!store->getParentOfType<tile::MapOp>())
      stores.push_back(store);
  });
  scf::IfOp last;
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
    if (!last || last->getNextNode() != one.getDefiningOp()) {
      last = branch;
      continue;
    }
    Block *body = branch.thenBlock();
    last.thenBlock()->getOperations().splice(last.thenBlock()->getTerminator()->getIterator(),
                                             body->getOperations(), body->begin(),
                                             body->getTerminator()->getIterator());
    branch.erase();
    one.getDefiningOp()->erase();
  }
}

/// Gets in a row wait once, the first of them as the strictest does.
void shareWaits(func::FuncOp function) {
  auto follower = [](tile::GetOp get) {
    auto next = dyn_cast<tile::GetOp>(get->getNextNode());
    return next && next.getToken() ? next : tile::GetOp();
  };
  function.walk([&](tile::GetOp get) {
    if (!get.getToken())
      return;
    for (tile::GetOp next = follower(get); next; next = follower(next)) {
      get.setPending(std::min(*get.getPending(), *next.getPending()));
      next.getTokenMutable().clear();
      next.removePendingAttr();
    }
  });
}

class SyncPass : public llmopt::cuda::impl::TileGpuSyncBase<SyncPass> {
public:
  void runOnOperation() override {
    if (!getOperation()->hasAttr(tile::kKernelAttr))
      return;
    cuda::groupCopies(getOperation());
    Synchroniser().run(getOperation());
    shareWaits(getOperation());
    electStores(getOperation());
  }
};

} // namespace

// tile-gpu-pipeline; see Passes.td.
#include "codegen/cuda/Passes.h"
#include "codegen/cuda/passes/LoopAttrs.h"
#include "codegen/cuda/passes/Slices.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/UB/IR/UBOps.h"
#include "llvm/ADT/SetVector.h"

namespace llmopt::cuda {
#define GEN_PASS_DEF_TILEGPUPIPELINE
#include "codegen/cuda/Passes.h.inc"
} // namespace llmopt::cuda

using namespace mlir;
using namespace llmopt;

namespace {

/// One copy of the loop and its wait.
struct Staged {
  tile::CopyAsyncOp copy;
  tile::GetOp get;
  SmallVector<Operation *> slice;
};

class LoopPipeliner {
public:
  LoopPipeliner(scf::ForOp loop, int64_t stages) : loop(loop), stages(stages) {}

  void run() {
    if (loop->hasAttr(tile::kOnceAttr) || !collect())
      return;
    first = loop.getLowerBound();
    // Tokens of the copies under way, oldest first: those of one turn after another.
    SmallVector<Value> tokens;
    OpBuilder b(loop);
    // What the turns before the first wait for was never begun, and they read nothing.
    Value none = ub::PoisonOp::create(b, loop.getLoc(), tile::TokenType::get(b.getContext()));
    for (int64_t ahead = 0; ahead + 1 < stages; ++ahead)
      for (size_t i = 0; i < copies.size(); ++i)
        tokens.push_back(none);
    carryTokens(tokens);
    beginCopies(tokens.size());
    skipFirstTurns();
    loop->setAttr(cuda::kAtLeastOnceAttr, b.getUnitAttr());
    for (Staged &staged : copies) {
      auto old = cast<MemRefType>(staged.copy.getBuffer().getType());
      SmallVector<int64_t> shape(old.getShape());
      shape[0] = stages;
      staged.copy.getBuffer().setType(
          MemRefType::get(shape, old.getElementType(), old.getLayout(), old.getMemorySpace()));
      staged.copy.erase();
    }
    eraseUnused();
  }

private:
  bool collect() {
    for (Operation &op : *loop.getBody()) {
      if (isa<LoopLikeOpInterface>(op))
        return false; // the inner loop needs the memory more
      auto copy = dyn_cast<tile::CopyAsyncOp>(op);
      if (!copy)
        continue;
      FailureOr<SmallVector<Operation *>> slice = cuda::addressSlice(copy);
      if (failed(slice) || !copy.getToken().hasOneUse() || dependsOnCarried(copy, *slice) ||
          llvm::any_of(*slice, readsMemory))
        return false;
      auto get = dyn_cast<tile::GetOp>(*copy.getToken().user_begin());
      if (!get || get->getBlock() != loop.getBody())
        return false;
      copies.push_back({copy, get, *slice});
    }
    llvm::sort(copies, [](const Staged &a, const Staged &b) {
      tile::GetOp get = a.get, other = b.get;
      return get->isBeforeInBlock(other);
    });
    return !copies.empty();
  }

  /// Reads that nothing guards beyond the last iteration.
  static bool readsMemory(Operation *op) {
    return op->walk([](memref::LoadOp) { return WalkResult::interrupt(); }).wasInterrupted();
  }

  bool dependsOnCarried(Operation *copy, ArrayRef<Operation *> slice) {
    auto uses = [&](Operation *op) {
      return op
          ->walk([&](Operation *inner) {
            for (Value operand : inner->getOperands())
              if (llvm::is_contained(loop.getRegionIterArgs(), operand))
                return WalkResult::interrupt();
            return WalkResult::advance();
          })
          .wasInterrupted();
    };
    return uses(copy) || llvm::any_of(slice, uses);
  }

  /// Addresses that only the copies in place had a use for.
  void eraseUnused() {
    llvm::SetVector<Operation *> all;
    for (Staged &staged : copies)
      all.insert(staged.slice.begin(), staged.slice.end());
    SmallVector<Operation *> ordered = all.takeVector();
    llvm::sort(ordered, [](Operation *a, Operation *b) { return b->isBeforeInBlock(a); });
    for (Operation *op : ordered)
      if (op->use_empty())
        op->erase();
  }

  Location named(StringRef name) {
    return NameLoc::get(StringAttr::get(loop.getContext(), name), loop.getLoc());
  }
  static std::string nameOf(Staged &staged) {
    auto name = dyn_cast<NameLoc>(staged.copy.getBuffer().getLoc());
    return name ? name.getName().str() : "the tile";
  }

  /// What `stages - 1` turns of the loop add to its variable.
  Value lead(OpBuilder &b) {
    Value turns = arith::ConstantIndexOp::create(b, loop.getLoc(), stages - 1);
    return b.createOrFold<arith::MulIOp>(loop.getLoc(), turns, loop.getStep());
  }

  /// The loop begins `stages - 1` turns earlier and carries `tokens` behind what it carried.
  void carryTokens(ValueRange tokens) {
    OpBuilder b(loop);
    SmallVector<Value> inits(loop.getInitArgs());
    llvm::append_range(inits, tokens);
    Value start = arith::SubIOp::create(b, loop.getLoc(), first, lead(b));
    auto carried =
        scf::ForOp::create(b, loop.getLoc(), start, loop.getUpperBound(), loop.getStep(), inits);
    carried->setDiscardableAttrs(loop->getDiscardableAttrDictionary());
    Block *body = loop.getBody();
    SmallVector<Value> arguments(
        carried.getBody()->getArguments().take_front(body->getNumArguments()));
    if (!carried.getBody()->empty())
      carried.getBody()->back().erase();
    for (auto [old, argument] : llvm::zip(body->getArguments(), arguments)) {
      argument.setLoc(old.getLoc());
      old.replaceAllUsesWith(argument);
    }
    carried.getBody()->getOperations().splice(carried.getBody()->end(), body->getOperations());
    for (auto [old, result] : llvm::zip(loop.getResults(), carried.getResults()))
      old.replaceAllUsesWith(result);
    loop.erase();
    loop = carried;
  }

  /// At the head of the body: the waits for this turn's tiles, then the copies for a later one.
  void beginCopies(size_t tokenCount) {
    size_t kept = loop.getNumRegionIterArgs() - tokenCount;
    SmallVector<Value> next(loop.getRegionIterArgs().drop_front(kept));
    Operation *head = &loop.getBody()->front();
    while (llvm::any_of(copies, [&](Staged &staged) { return staged.get == head; }))
      head = head->getNextNode();
    std::string names;
    for (auto [i, staged] : llvm::enumerate(copies)) {
      names += (i == 0 ? "" : " and ") + nameOf(staged);
      staged.get.getTokenMutable().assign(next[i]);
      staged.get.getSlotMutable().assign(loop.getInductionVar());
      staged.get->moveBefore(head);
    }
    next.erase(next.begin(), next.begin() + copies.size());

    OpBuilder b(head);
    Value later = arith::AddIOp::create(b, named("next_tile"), loop.getInductionVar(), lead(b));
    later.getDefiningOp()->setAttr(
        tile::kNoteAttr, b.getStringAttr("Begin the copies of " + names + " for a later tile."));
    Value exists = arith::CmpIOp::create(b, named("more"), arith::CmpIPredicate::slt, later,
                                         loop.getUpperBound());
    IRMapping clones;
    clones.map(loop.getInductionVar(), later);
    for (Staged &staged : copies)
      next.push_back(begin(b, staged, clones, exists));
    loop.getBody()->getTerminator()->insertOperands(kept, next);
    bodyBegin = head;
  }

  /// The copy of the iteration that `clones` maps to, at the builder's place.
  Value begin(OpBuilder &b, Staged &staged, IRMapping &clones, Value exists) {
    for (Operation *op : staged.slice) {
      if (op->getNumResults() && clones.contains(op->getResult(0)))
        continue; // an earlier copy has it, too
      if (auto rows = dyn_cast<tile::PagedRowsOp>(op)) {
        // There is no table beyond the last iteration.
        Value count = clones.lookupOrDefault(rows.getCount());
        Value &some = counts[count];
        if (!some)
          some = arith::SelectOp::create(b, named("next_count"), exists, count,
                                         arith::ConstantIndexOp::create(b, loop.getLoc(), 0));
        auto cloned = cast<tile::PagedRowsOp>(b.clone(*op, clones));
        cloned.getCountMutable().assign(some);
      } else {
        b.clone(*op, clones);
      }
      Operation *cloned = clones.lookup(op->getResult(0)).getDefiningOp();
      if (auto name = dyn_cast<NameLoc>(op->getLoc()))
        cloned->setLoc(named(("next_" + name.getName().getValue()).str()));
    }
    auto copy = cast<tile::CopyAsyncOp>(b.clone(*staged.copy, clones));
    copy.getSlotMutable().assign(loop.getInductionVar());
    copy.setAhead(stages - 1);
    copy.getConditionMutable().assign(exists);
    return copy.getToken();
  }

  /// The turns before the first one begin copies and do nothing else.
  void skipFirstTurns() {
    auto yield = cast<scf::YieldOp>(loop.getBody()->getTerminator());
    OpBuilder b(bodyBegin);
    Value early = arith::CmpIOp::create(b, loop.getLoc(), arith::CmpIPredicate::slt,
                                        loop.getInductionVar(), first);
    size_t kept = loop.getNumRegionIterArgs() - copies.size() * (stages - 1);
    ValueRange arguments = loop.getRegionIterArgs().take_front(kept);
    SmallVector<Value> made(yield.getOperands().take_front(kept));
    auto branch = scf::IfOp::create(b, loop.getLoc(), ValueRange(arguments).getTypes(), early,
                                    /*withElseRegion=*/true);
    b.setInsertionPointToStart(branch.thenBlock());
    scf::YieldOp::create(b, loop.getLoc(), arguments);
    Block *rest = branch.elseBlock();
    rest->getOperations().splice(rest->end(), loop.getBody()->getOperations(),
                                 bodyBegin->getIterator(), yield->getIterator());
    b.setInsertionPointToEnd(rest);
    scf::YieldOp::create(b, loop.getLoc(), made);
    for (auto [i, result] : llvm::enumerate(branch.getResults()))
      yield.setOperand(i, result);
  }

  scf::ForOp loop;
  int64_t stages;
  SmallVector<Staged> copies;
  Value first;                    ///< the first iteration
  Operation *bodyBegin = nullptr; ///< the first operation of the body that is no copy's
  DenseMap<Value, Value> counts;  ///< rows that have addresses: none beyond the last iteration
};

class PipelinePass : public llmopt::cuda::impl::TileGpuPipelineBase<PipelinePass> {
public:
  using TileGpuPipelineBase::TileGpuPipelineBase;

  void runOnOperation() override {
    if (stages < 2 || !getOperation()->hasAttr(tile::kKernelAttr))
      return;
    SmallVector<scf::ForOp> loops;
    getOperation().walk([&](scf::ForOp loop) { loops.push_back(loop); });
    for (scf::ForOp loop : loops)
      LoopPipeliner(loop, stages).run();
  }
};

} // namespace

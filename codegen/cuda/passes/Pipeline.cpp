// tile-gpu-pipeline; see Passes.td.
#include "codegen/cuda/Passes.h"
#include "codegen/cuda/passes/Slices.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/SetVector.h"

namespace llmopt::cuda {
#define GEN_PASS_DEF_TILEGPUPIPELINE
#include "codegen/cuda/Passes.h.inc"
} // namespace llmopt::cuda

using namespace mlir;
using namespace llmopt;

namespace {

/// The iteration that copies are begun for at one place of the text: they share its arithmetic.
struct Ahead {
  Value iteration, exists; ///< exists: i1, false beyond the last one
  IRMapping clones;
  DenseMap<Value, Value> counts; ///< rows that have addresses: none beyond the last iteration
};

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
    // Tokens of the copies under way, oldest first, for each staged copy.
    SmallVector<Value> tokens;
    for (int64_t ahead = 0; ahead + 1 < stages; ++ahead) {
      Ahead start;
      for (Staged &staged : copies)
        tokens.push_back(before(start, staged, ahead));
    }
    scf::ForOp carried = withTokens(tokens);
    size_t first = carried.getNumRegionIterArgs() - tokens.size();
    SmallVector<Value> next(carried.getRegionIterArgs().drop_front(first));
    for (auto [i, staged] : llvm::enumerate(copies)) {
      staged.get.getTokenMutable().assign(next[i]);
      staged.get.getSlotMutable().assign(carried.getInductionVar());
    }
    next.erase(next.begin(), next.begin() + copies.size());
    Ahead later;
    for (Staged &staged : copies)
      next.push_back(within(later, staged, carried));
    carried.getBody()->getTerminator()->insertOperands(first, next);
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

  /// The copy for the iteration of `where`, at the builder's place.
  Value clone(OpBuilder &b, Ahead &where, Staged &staged, Value slot, int64_t ahead,
              StringRef prefix) {
    IRMapping &mapping = where.clones;
    mapping.map(loop.getInductionVar(), where.iteration);
    for (Operation *op : staged.slice) {
      if (op->getNumResults() && mapping.contains(op->getResult(0)))
        continue; // an earlier copy has it, too
      Operation *cloned = b.clone(*op, mapping);
      if (auto name = dyn_cast<NameLoc>(op->getLoc()))
        cloned->setLoc(named((prefix + name.getName().getValue()).str()));
      auto rows = dyn_cast<tile::PagedRowsOp>(cloned);
      if (!rows)
        continue;
      // There is no table beyond the last iteration.
      Value &count = where.counts[rows.getCount()];
      if (!count) {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPoint(rows);
        Value none = arith::ConstantIndexOp::create(b, loop.getLoc(), 0);
        count = arith::SelectOp::create(b, named((prefix + "count").str()), where.exists,
                                        rows.getCount(), none);
      }
      rows.getCountMutable().assign(count);
    }
    auto copy = cast<tile::CopyAsyncOp>(b.clone(*staged.copy, mapping));
    copy.getSlotMutable().assign(slot);
    copy.setAhead(ahead);
    copy.getConditionMutable().assign(where.exists);
    return copy.getToken();
  }

  Value at(OpBuilder &b, Value base, int64_t ahead) {
    if (ahead == 0)
      return base;
    Location loc = loop.getLoc();
    Value steps = arith::ConstantIndexOp::create(b, loc, ahead);
    return arith::AddIOp::create(b, named("next_tile"), base,
                                 b.createOrFold<arith::MulIOp>(loc, steps, loop.getStep()));
  }

  Value before(Ahead &start, Staged &staged, int64_t ahead) {
    OpBuilder b(loop);
    if (!start.iteration) {
      start.iteration = at(b, loop.getLowerBound(), ahead);
      start.exists = arith::CmpIOp::create(b, named("any"), arith::CmpIPredicate::slt,
                                           start.iteration, loop.getUpperBound());
      std::string names;
      for (Staged &other : copies)
        names += (names.empty() ? "" : " and ") + nameOf(other);
      note(start.exists,
           "Begin the copies of " + names + " for " +
               (ahead == 0 ? "the first tile." : "tile " + std::to_string(ahead + 1) + "."));
    }
    return clone(b, start, staged, loop.getLowerBound(), ahead, "start_");
  }

  Location named(StringRef name) {
    return NameLoc::get(StringAttr::get(loop.getContext(), name), loop.getLoc());
  }
  static void note(Value value, const std::string &text) {
    value.getDefiningOp()->setAttr(tile::kNoteAttr, StringAttr::get(value.getContext(), text));
  }
  static std::string nameOf(Staged &staged) {
    auto name = dyn_cast<NameLoc>(staged.copy.getBuffer().getLoc());
    return name ? name.getName().str() : "the tile";
  }

  Value within(Ahead &later, Staged &staged, scf::ForOp carried) {
    note(staged.get.getTile(), "Wait for " + nameOf(staged) + "; begin its copy for a later tile.");
    OpBuilder b(carried.getContext());
    b.setInsertionPointAfter(staged.get);
    if (!later.iteration) {
      later.iteration = at(b, carried.getInductionVar(), stages - 1);
      later.exists = arith::CmpIOp::create(b, named("more"), arith::CmpIPredicate::slt,
                                           later.iteration, carried.getUpperBound());
    }
    return clone(b, later, staged, carried.getInductionVar(), stages - 1, "next_");
  }

  scf::ForOp withTokens(ValueRange tokens) {
    OpBuilder b(loop);
    SmallVector<Value> inits(loop.getInitArgs());
    llvm::append_range(inits, tokens);
    auto carried = scf::ForOp::create(b, loop.getLoc(), loop.getLowerBound(), loop.getUpperBound(),
                                      loop.getStep(), inits);
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
    induction = carried.getInductionVar();
    loop.erase();
    loop = carried;
    return carried;
  }

  scf::ForOp loop;
  int64_t stages;
  SmallVector<Staged> copies;
  Value induction;
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

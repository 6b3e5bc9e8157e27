// tile-gpu-pipeline; see Passes.td.
#include "codegen/cuda/Passes.h"
#include "codegen/cuda/passes/LoopAttrs.h"
#include "codegen/cuda/passes/RowTurns.h"
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
  SmallVector<Operation *> slice; ///< what its addresses are made of
};

/// What takes a register of a thread at most for each of its rows.
constexpr unsigned kNarrowBits = 32;

/// What addresses are read from, as the thread that reads it has it: pages, before they are given
/// to other lanes or become addresses.
void findReads(Value rows, llvm::SetVector<Value> &reads) {
  auto convert = rows.getDefiningOp<tile::ConvertOp>();
  Value made = convert && cuda::isFromLanes(convert) ? convert.getTile() : rows;
  unsigned bits = cast<RankedTensorType>(made.getType()).getElementTypeBitWidth();
  if (bits <= kNarrowBits && cuda::isRead(made))
    reads.insert(made);
  else if (auto map = made.getDefiningOp<tile::MapOp>())
    for (Value input : map.getInputs())
      findReads(input, reads);
}

class LoopPipeliner {
public:
  LoopPipeliner(scf::ForOp loop, int64_t stages, bool readsAhead)
      : loop(loop), stages(stages), readsAhead(readsAhead) {}

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
    if (readsAhead)
      for (Staged &staged : copies)
        findReads(staged.copy.getRows(), reads);
    kept = loop.getNumRegionIterArgs();
    SmallVector<Value> carried;
    for (Value read : reads) // nothing is known in the first turn, which copies nothing
      carried.push_back(noRows(b, read));
    carried.append(tokens);
    carry(carried);
    beginCopies();
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

  /// What `turns` turns of the loop add to its variable.
  Value lead(OpBuilder &b, int64_t turns) {
    Value count = arith::ConstantIndexOp::create(b, loop.getLoc(), turns);
    return b.createOrFold<arith::MulIOp>(loop.getLoc(), count, loop.getStep());
  }

  static Value noRows(OpBuilder &b, Value read) {
    auto type = cast<RankedTensorType>(read.getType());
    Attribute none = b.getIntegerAttr(type.getElementType(), -1);
    return arith::ConstantOp::create(b, read.getLoc(), SplatElementsAttr::get(type, none));
  }

  /// The loop begins as many turns earlier as copies, and what is read for them, run ahead, and
  /// carries `more` behind what it carried.
  void carry(ValueRange more) {
    OpBuilder b(loop);
    SmallVector<Value> inits(loop.getInitArgs());
    llvm::append_range(inits, more);
    Value start = arith::SubIOp::create(b, loop.getLoc(), first,
                                        lead(b, reads.empty() ? stages - 1 : stages));
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
    noteStart(carried);
    loop.erase();
    loop = carried;
  }

  /// Behind what the loop's note says.
  void noteStart(scf::ForOp carried) {
    auto note = carried->getAttrOfType<StringAttr>(tile::kNoteAttr);
    int64_t turns = reads.empty() ? stages - 1 : stages;
    std::string text = note ? note.getValue().str() + " " : "";
    text += turns == 1 ? "The loop begins a turn before the first tile, to begin its copies."
                       : "The loop begins " + std::to_string(turns) +
                             " turns before the first tile, to begin its copies.";
    if (!reads.empty())
      text += " A turn computes its tile, begins the copies of tile + " +
              std::to_string(stages - 1) + ", and looks up the " + readNames() + " of tile + " +
              std::to_string(stages) + ".";
    carried->setAttr(tile::kNoteAttr, StringAttr::get(carried.getContext(), text));
  }

  /// At the head of the body: the waits for this turn's tiles, then the copies for a later one,
  /// then what is read for the copies of the next turn.
  void beginCopies() {
    ValueRange arguments = loop.getRegionIterArgs();
    ValueRange known = arguments.slice(kept, reads.size());
    SmallVector<Value> tokens(arguments.drop_front(kept + reads.size()));
    Operation *head = &loop.getBody()->front();
    while (llvm::any_of(copies, [&](Staged &staged) { return staged.get == head; }))
      head = head->getNextNode();
    std::string names;
    for (auto [i, staged] : llvm::enumerate(copies)) {
      names += (i == 0 ? "" : " and ") + nameOf(staged);
      staged.get.getTokenMutable().assign(tokens[i]);
      staged.get.getSlotMutable().assign(loop.getInductionVar());
      staged.get->moveBefore(head);
    }
    tokens.erase(tokens.begin(), tokens.begin() + copies.size());

    OpBuilder b(head);
    Turn turn = turnOf(b, "next", stages - 1,
                       "Begin the copies of " + names + " for " +
                           (stages == 2 ? "the next tile." : "a later tile."));
    if (!reads.empty()) { // nothing has been read for the turn before the first
      Value wanted =
          arith::CmpIOp::create(b, loop.getLoc(), arith::CmpIPredicate::sle, first, turn.variable);
      turn.exists = arith::AndIOp::create(b, named("more"), wanted, turn.exists);
    }
    for (auto [read, argument] : llvm::zip(reads, known)) {
      argument.setLoc(named(("next_" + readName(read)).str()));
      turn.clones.map(read, argument);
    }
    for (Staged &staged : copies)
      tokens.push_back(begin(b, staged, turn));
    SmallVector<Value> next;
    if (!reads.empty()) {
      Turn later = turnOf(b, "later", stages,
                          "Look up the " + readNames() +
                              " of the tile after it: its copies, a turn later, need not wait.");
      for (Value read : reads)
        next.push_back(lookUp(b, read, later));
    }
    next.append(tokens);
    loop.getBody()->getTerminator()->insertOperands(kept, next);
    bodyBegin = head;
  }

  static StringRef readName(Value read) {
    auto name = dyn_cast<NameLoc>(read.getLoc());
    return name ? name.getName().getValue() : StringRef("rows");
  }
  std::string readNames() {
    std::string names;
    for (Value read : reads)
      names += (names.empty() ? "" : " and ") + readName(read).str();
    return names;
  }

  /// What one turn of the loop does for another.
  struct Turn {
    std::string prefix; ///< of names
    Value variable, exists;
    IRMapping clones;
    DenseMap<Value, Value> counts; ///< rows that have addresses: none beyond the last iteration
  };

  Turn turnOf(OpBuilder &b, StringRef prefix, int64_t turns, const Twine &note) {
    Turn turn;
    turn.prefix = prefix.str();
    turn.variable = arith::AddIOp::create(b, named((prefix + "_tile").str()),
                                          loop.getInductionVar(), lead(b, turns));
    turn.variable.getDefiningOp()->setAttr(tile::kNoteAttr, b.getStringAttr(note));
    turn.exists =
        arith::CmpIOp::create(b, reads.empty() ? named("more") : loop.getLoc(),
                              arith::CmpIPredicate::slt, turn.variable, loop.getUpperBound());
    turn.clones.map(loop.getInductionVar(), turn.variable);
    return turn;
  }

  /// The operations of `slice` for `turn`, at the builder's place.
  void clone(OpBuilder &b, ArrayRef<Operation *> slice, Turn &turn) {
    for (Operation *op : slice) {
      if (op->getNumResults() && turn.clones.contains(op->getResult(0)))
        continue; // an earlier copy has it, too
      if (auto rows = dyn_cast<tile::PagedRowsOp>(op)) {
        // There is no table beyond the last iteration.
        Value count = turn.clones.lookupOrDefault(rows.getCount());
        Value &some = turn.counts[count];
        if (!some)
          some = arith::SelectOp::create(b, named(turn.prefix + "_count"), turn.exists, count,
                                         arith::ConstantIndexOp::create(b, loop.getLoc(), 0));
        auto cloned = cast<tile::PagedRowsOp>(b.clone(*op, turn.clones));
        cloned.getCountMutable().assign(some);
      } else {
        b.clone(*op, turn.clones);
      }
      Operation *cloned = turn.clones.lookup(op->getResult(0)).getDefiningOp();
      if (auto name = dyn_cast<NameLoc>(op->getLoc()))
        cloned->setLoc(named(turn.prefix + "_" + name.getName().str()));
    }
  }

  Value begin(OpBuilder &b, Staged &staged, Turn &turn) {
    SmallVector<Value> known(reads.begin(), reads.end());
    clone(b, *cuda::addressSlice(staged.copy, known), turn);
    auto copy = cast<tile::CopyAsyncOp>(b.clone(*staged.copy, turn.clones));
    copy.getSlotMutable().assign(loop.getInductionVar());
    copy.setAhead(stages - 1);
    copy.getConditionMutable().assign(turn.exists);
    return copy.getToken();
  }

  Value lookUp(OpBuilder &b, Value read, Turn &turn) {
    SmallVector<Operation *> slice = *cuda::addressSlice(read.getDefiningOp());
    slice.push_back(read.getDefiningOp());
    clone(b, slice, turn);
    return turn.clones.lookup(read);
  }

  /// The turns before the first one begin copies and do nothing else.
  void skipFirstTurns() {
    auto yield = cast<scf::YieldOp>(loop.getBody()->getTerminator());
    OpBuilder b(bodyBegin);
    Value early = arith::CmpIOp::create(b, loop.getLoc(), arith::CmpIPredicate::slt,
                                        loop.getInductionVar(), first);
    ValueRange arguments = loop.getRegionIterArgs().take_front(kept);
    SmallVector<Value> made(yield.getOperands().take_front(kept));
    auto branch = scf::IfOp::create(b, loop.getLoc(), ValueRange(arguments).getTypes(), early,
                                    /*withElseRegion=*/true);
    branch->setAttr(tile::kNoteAttr,
                    b.getStringAttr("Before the first tile there is nothing to compute."));
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
  bool readsAhead;
  SmallVector<Staged> copies;
  llvm::SetVector<Value> reads;   ///< what is read for addresses and carried to the next turn
  Value first;                    ///< the first iteration
  size_t kept = 0;                ///< values that the loop carried before
  Operation *bodyBegin = nullptr; ///< the first operation of the body that is no copy's
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
      LoopPipeliner(loop, stages, readsAhead).run();
  }
};

} // namespace

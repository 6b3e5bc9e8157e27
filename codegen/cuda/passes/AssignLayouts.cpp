// tile-gpu-assign-layouts; see Passes.td.
#include "codegen/cuda/Passes.h"
#include "codegen/cuda/passes/LayoutGroups.h"
#include "codegen/cuda/passes/Products.h"
#include "codegen/cuda/passes/RowTurns.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace llmopt::cuda {
#define GEN_PASS_DEF_TILEGPUASSIGNLAYOUTS
#include "codegen/cuda/Passes.h.inc"
} // namespace llmopt::cuda

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cuda;
using tile::Layout;
using tile::LayoutDim;

namespace {

/// Cheap to compute again in another layout: addresses and constants.
bool isRepeatable(Operation *op) {
  if (op->getNumResults() != 1 || !tile::isTile(op->getResult(0).getType()))
    return false;
  if (isa<arith::ConstantOp, tile::StridedRowsOp, tile::PagedRowsOp>(op))
    return true;
  auto map = dyn_cast<tile::MapOp>(op);
  if (!map || map.getSpace().second != 1)
    return false;
  return llvm::all_of(map.getInputs(), [](Value input) {
    return input.getDefiningOp() && isRepeatable(input.getDefiningOp());
  });
}

/// Gives every use of a repeatable producer a producer of its own.
void splitUses(func::FuncOp function) {
  SmallVector<Operation *> producers;
  function.walk([&](Operation *op) {
    if (isRepeatable(op))
      producers.push_back(op);
  });
  for (Operation *op : llvm::reverse(producers)) {
    SmallVector<OpOperand *> uses;
    for (OpOperand &use : op->getResult(0).getUses())
      uses.push_back(&use);
    for (OpOperand *use : llvm::drop_begin(uses)) {
      Operation *copy = op->clone();
      op->getBlock()->getOperations().insertAfter(op->getIterator(), copy);
      use->set(copy->getResult(0));
    }
  }
}

class AssignLayoutsPass : public llmopt::cuda::impl::TileGpuAssignLayoutsBase<AssignLayoutsPass> {
public:
  using TileGpuAssignLayoutsBase::TileGpuAssignLayoutsBase;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function->hasAttr(tile::kKernelAttr))
      return;
    WalkResult whole = function.walk([](tile::LoadOp load) {
      if (!load.getApart())
        return WalkResult::advance();
      load.emitOpError() << "names the rows of one of " << load.getSlices()
                         << " slices; CUDA kernels take the addresses of all of them";
      return WalkResult::interrupt();
    });
    if (whole.wasInterrupted())
      return signalPassFailure();
    // All rows are computed: the warps of a block walk together.
    function.walk([](tile::UsedRowsOp rows) { rows.erase(); });
    function->setAttr(tile::kWarpsAttr, OpBuilder(function).getI64IntegerAttr(warps));
    if (failed(placeOperands(function, warps)))
      return signalPassFailure();
    placeStores(function);
    splitUses(function);
    LayoutGroups groups(function, warps);
    groups.solve();
    applyLayouts(function, groups);
    handOutRows(function);
    WalkResult sound = function.walk([&](tile::MmaOp mma) {
      return failed(verifyProduct(mma, warps)) ? WalkResult::interrupt() : WalkResult::advance();
    });
    if (sound.wasInterrupted())
      signalPassFailure();
  }
};

} // namespace

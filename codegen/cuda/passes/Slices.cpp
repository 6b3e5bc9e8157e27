// See Slices.h.
#include "codegen/cuda/passes/Slices.h"
#include "codegen/cuda/passes/RowTurns.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace llmopt;

namespace {

/// Arithmetic, constants, row addresses, and maps over them.
bool isAddressArithmetic(Operation *op) {
  if (isa<tile::StridedRowsOp, tile::PagedRowsOp, memref::LoadOp>(op))
    return true;
  if (auto map = dyn_cast<tile::MapOp>(op))
    return map.getSpace().second == 1;
  if (auto convert = dyn_cast<tile::ConvertOp>(op))
    return cuda::isFromLanes(convert);
  return isPure(op) && op->getNumRegions() == 0 && op->getDialect()->getNamespace() != "tile";
}

bool collect(Operation *op, Block *block, ArrayRef<Value> known,
             llvm::SetVector<Operation *> &slice) {
  bool sound = true;
  auto visit = [&](Value operand) {
    Operation *source = operand.getDefiningOp();
    if (!source || source->getBlock() != block || slice.contains(source) ||
        llvm::is_contained(known, operand))
      return;
    sound &= isAddressArithmetic(source) && collect(source, block, known, slice);
    slice.insert(source);
  };
  llvm::for_each(op->getOperands(), visit);
  op->walk([&](Operation *inner) {
    if (inner != op)
      llvm::for_each(inner->getOperands(), visit);
  });
  return sound;
}

} // namespace

FailureOr<SmallVector<Operation *>> cuda::addressSlice(Operation *op, ArrayRef<Value> known) {
  llvm::SetVector<Operation *> slice;
  if (!collect(op, op->getBlock(), known, slice))
    return failure();
  SmallVector<Operation *> ordered(slice.begin(), slice.end());
  llvm::sort(ordered, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return ordered;
}

// See SharedAccess.h.
#include "codegen/cuda/passes/SharedAccess.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace llmopt;

namespace {

memref::AllocaOp bufferOf(Value value) { return value.getDefiningOp<memref::AllocaOp>(); }

Value scratchOf(Operation *op) {
  if (auto reduce = dyn_cast<tile::ReduceColumnsOp>(op))
    return reduce.getScratch();
  return {};
}

} // namespace

bool cuda::exchangesInside(Operation *op) { return bool(scratchOf(op)); }

SmallVector<cuda::SharedAccess> cuda::sharedAccesses(Operation *op) {
  SmallVector<SharedAccess> accesses;
  if (auto copy = dyn_cast<tile::CopyAsyncOp>(op))
    accesses.push_back(
        {bufferOf(copy.getBuffer()), copy.getSlot(), int64_t(copy.getAhead()), true});
  if (auto put = dyn_cast<tile::PutOp>(op))
    accesses.push_back({bufferOf(put.getBuffer()), Value(), 0, true});
  if (Value scratch = scratchOf(op)) {
    accesses.push_back({bufferOf(scratch), Value(), 0, true});
    accesses.push_back({bufferOf(scratch), Value(), 0, false});
  }
  for (Value operand : op->getOperands()) {
    if (!tile::sharedOf(operand))
      continue;
    if (auto get = operand.getDefiningOp<tile::GetOp>())
      accesses.push_back({bufferOf(get.getBuffer()), get.getSlot(), 0, false});
  }
  return accesses;
}

int64_t cuda::slotBytes(MemRefType buffer) {
  auto space = cast<tile::SharedAttr>(buffer.getMemorySpace());
  return llvm::alignTo(buffer.getDimSize(1), 16) * space.getPitch();
}

int64_t cuda::bufferBytes(MemRefType buffer) {
  return llvm::alignTo(buffer.getDimSize(0) * slotBytes(buffer), 128);
}

// See Counts.h.
#include "codegen/cuda/Counts.h"
#include "codegen/cuda/passes/Products.h"
#include "codegen/cuda/passes/RowTurns.h"
#include "dialect/tile/TileDialect.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cuda;

namespace {

RankedTensorType typeOf(Value tile) { return cast<RankedTensorType>(tile.getType()); }

int64_t registersOf(Value tile) { return tile::fragmentOf(tile).getLayout().registerCount(); }

/// Steps of 16 along the depth of a product.
int64_t stepsOf(Value first) { return llvm::divideCeil(typeOf(first).getDimSize(1), 16); }

void add(InstructionCounts &counts, tile::MmaOp mma) {
  if (!onTensorCores(mma))
    return;
  int64_t columns = llvm::divideCeil(typeOf(mma.getResult()).getDimSize(1), 8);
  int64_t rows = registersOf(mma.getResult()) / (4 * columns), steps = stepsOf(mma.getA());
  counts.products += rows * columns * steps;
  counts.matrixLoads += llvm::divideCeil(columns, 2) * steps; // two blocks of columns at once
  if (tile::sharedOf(mma.getA()))
    counts.matrixLoads += rows * steps;
}

void add(InstructionCounts &counts, tile::ConvertOp convert) {
  if (loadsByMatrix(convert))
    counts.matrixLoads += registersOf(convert.getResult()) / 8; // four registers of two elements
}

void add(InstructionCounts &counts, tile::CopyAsyncOp copy) {
  auto space =
      cast<tile::SharedAttr>(cast<MemRefType>(copy.getBuffer().getType()).getMemorySpace());
  int64_t rows = isByTurn(copy) ? 1 : registersOf(copy.getRows());
  counts.wideCopies +=
      rows * space.getLayout().chunks() / lanesOfRow(tile::fragmentOf(copy.getRows()).getLayout());
}

} // namespace

InstructionCounts cuda::impliedBy(func::FuncOp kernel) {
  InstructionCounts counts;
  kernel.walk([&](Operation *op) {
    if (auto mma = dyn_cast<tile::MmaOp>(op))
      add(counts, mma);
    else if (auto convert = dyn_cast<tile::ConvertOp>(op))
      add(counts, convert);
    else if (auto copy = dyn_cast<tile::CopyAsyncOp>(op))
      add(counts, copy);
  });
  return counts;
}

InstructionCounts cuda::foundIn(StringRef ptx) {
  return {int64_t(ptx.count("mma.sync.aligned.m16n8k16")), int64_t(ptx.count("ldmatrix.sync")),
          int64_t(ptx.count("cp.async.cg.shared.global"))};
}

// tile-gpu-allocate; see Passes.td.
#include "codegen/cuda/Passes.h"
#include "codegen/cuda/passes/Products.h"
#include "codegen/cuda/passes/SharedAccess.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Interfaces/LoopLikeInterface.h"

namespace llmopt::cuda {
#define GEN_PASS_DEF_TILEGPUALLOCATE
#include "codegen/cuda/Passes.h.inc"
} // namespace llmopt::cuda

using namespace mlir;
using namespace llmopt;

namespace {

struct Buffer {
  memref::AllocaOp alloca;
  int64_t first = -1, last = -1; ///< in use, as places in the walk
  int64_t bytes = 0, offset = 0;
};

struct Loop {
  Operation *op;
  int64_t begin, end;
};

class AllocatePass : public llmopt::cuda::impl::TileGpuAllocateBase<AllocatePass> {
public:
  using TileGpuAllocateBase::TileGpuAllocateBase;

  void runOnOperation() override {
    if (!getOperation()->hasAttr(tile::kKernelAttr))
      return;
    number(&getOperation().front());
    getOperation().walk([&](tile::CopyAsyncOp copy) { carry(copy); });
    for (bool changed = true; changed;) {
      changed = false;
      for (Buffer &buffer : buffers)
        for (const Loop &loop : loops)
          changed |= extend(buffer, loop);
    }
    place();
    if (failed(check()) || failed(checkReads()))
      signalPassFailure();
  }

private:
  Buffer &bufferFor(memref::AllocaOp alloca) {
    for (Buffer &buffer : buffers)
      if (buffer.alloca == alloca)
        return buffer;
    buffers.push_back({alloca, -1, -1, cuda::bufferBytes(alloca.getType()), 0});
    return buffers.back();
  }

  void touch(memref::AllocaOp alloca) {
    Buffer &buffer = bufferFor(alloca);
    if (buffer.first < 0)
      buffer.first = place_;
    buffer.last = place_;
  }

  void number(Block *block) {
    for (Operation &op : *block) {
      ++place_;
      for (const cuda::SharedAccess &access : cuda::sharedAccesses(&op))
        touch(access.buffer);
      if (auto get = dyn_cast<tile::GetOp>(op))
        touch(get.getBuffer().getDefiningOp<memref::AllocaOp>());
      int64_t begin = place_;
      for (Region &region : op.getRegions())
        for (Block &inner : region)
          number(&inner);
      if (isa<LoopLikeOpInterface>(op))
        loops.push_back({&op, begin, ++place_});
    }
  }

  /// A copy for a later turn of a loop is under way until the loop ends.
  void carry(tile::CopyAsyncOp copy) {
    if (copy.getAhead() == 0)
      return;
    Buffer &buffer = bufferFor(copy.getBuffer().getDefiningOp<memref::AllocaOp>());
    for (const Loop &loop : loops)
      if (loop.op == copy->getParentOfType<LoopLikeOpInterface>()) {
        buffer.first = std::min(buffer.first, loop.begin);
        buffer.last = std::max(buffer.last, loop.end);
      }
  }

  /// A loop with accesses inside, and others outside, is in the buffer's time as a whole.
  static bool extend(Buffer &buffer, const Loop &loop) {
    bool overlaps = buffer.first <= loop.end && buffer.last >= loop.begin;
    bool within = buffer.first > loop.begin && buffer.last < loop.end;
    if (!overlaps || within || (buffer.first <= loop.begin && buffer.last >= loop.end))
      return false;
    buffer.first = std::min(buffer.first, loop.begin);
    buffer.last = std::max(buffer.last, loop.end);
    return true;
  }

  /// First fit, in order of first use.
  void place() {
    llvm::sort(buffers, [](const Buffer &a, const Buffer &b) { return a.first < b.first; });
    OpBuilder b(getOperation());
    for (size_t i = 0; i < buffers.size(); ++i) {
      Buffer &buffer = buffers[i];
      for (bool moved = true; moved;) {
        moved = false;
        for (size_t j = 0; j < i; ++j) {
          Buffer &other = buffers[j];
          bool sameTime = buffer.first <= other.last && other.first <= buffer.last;
          bool samePlace = buffer.offset < other.offset + other.bytes &&
                           other.offset < buffer.offset + buffer.bytes;
          if (sameTime && samePlace) {
            buffer.offset = other.offset + other.bytes;
            moved = true;
          }
        }
      }
      total = std::max(total, buffer.offset + buffer.bytes);
      buffer.alloca->setAttr(tile::kOffsetAttr, b.getI64IntegerAttr(buffer.offset));
    }
    for (Buffer &buffer : buffers)
      buffer.alloca->setAttr(tile::kNoteAttr, b.getStringAttr(lifeOf(buffer)));
    getOperation()->setAttr(tile::kSharedBytesAttr, b.getI64IntegerAttr(total));
  }

  static std::string nameOf(const Buffer &buffer) {
    auto name = dyn_cast<NameLoc>(memref::AllocaOp(buffer.alloca)->getLoc());
    return name ? name.getName().str() : "a tile";
  }

  /// "k: 2 slots of 16384 bytes; there before: q; after: acc_all_parts."
  std::string lifeOf(const Buffer &buffer) {
    std::string before, after;
    for (const Buffer &other : buffers) {
      bool samePlace =
          buffer.offset < other.offset + other.bytes && other.offset < buffer.offset + buffer.bytes;
      if (other.alloca == buffer.alloca || !samePlace)
        continue;
      std::string &list = other.last < buffer.first ? before : after;
      list += (list.empty() ? "" : ", ") + nameOf(other);
    }
    int64_t slots = memref::AllocaOp(buffer.alloca).getType().getDimSize(0);
    std::string text = nameOf(buffer) + ": ";
    if (slots > 1)
      text += std::to_string(slots) + " slots of ";
    text += std::to_string(buffer.bytes / slots) + " bytes";
    if (!before.empty())
      text += "; there before: " + before;
    if (!after.empty())
      text += "; there later: " + after;
    return text + ".";
  }

  LogicalResult check() {
    if (total <= budget)
      return success();
    InFlightDiagnostic error = getOperation().emitError()
                               << "kernel '" << getOperation().getName() << "' needs " << total
                               << " bytes of shared memory in a block; the target has "
                               << int64_t(budget)
                               << "; smaller tiles need less (schedule(rows = ..., keys = ...))";
    for (Buffer &buffer : buffers)
      error.attachNote(buffer.alloca.getLoc())
          << buffer.bytes << " bytes at " << buffer.offset << " for " << buffer.alloca.getType();
    return error;
  }

  /// A read beyond its buffer is one of the next buffer, which no barrier is placed for.
  LogicalResult checkReads() {
    auto warps = getOperation()->getAttrOfType<IntegerAttr>(tile::kWarpsAttr);
    WalkResult sound = getOperation().walk([&](Operation *op) {
      auto read = cuda::matrixRead(op, warps ? warps.getInt() : 1);
      if (!read || read->covered <= read->rows || op->hasAttr(cuda::kBoundedAttr))
        return WalkResult::advance();
      op->emitOpError() << "reads " << read->covered << " rows of a tile of " << read->rows
                        << " in shared memory, and is not '" << cuda::kBoundedAttr << "'";
      return WalkResult::interrupt();
    });
    return failure(sound.wasInterrupted());
  }

  std::vector<Buffer> buffers;
  std::vector<Loop> loops;
  int64_t place_ = 0, total = 0;
};

} // namespace

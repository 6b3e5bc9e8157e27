#include "runtime/device/sim/ops/Ops.h"

namespace llmopt::sim {

const OpTable &opTable() {
  static const OpTable table = [] {
    OpTable ops;
    addIntegerOps(ops);
    addMultiplyOps(ops);
    addCarryOps(ops);
    addLogicOps(ops);
    addBitFieldOps(ops);
    addFloatOps(ops);
    addFloatFunctionOps(ops);
    addCompareOps(ops);
    addConvertOps(ops);
    addMoveOps(ops);
    addMemoryOps(ops);
    addAtomicOps(ops);
    addAsyncCopyOps(ops);
    addCollectiveOps(ops);
    addMatrixOps(ops);
    addMatrixMoveOps(ops);
    addControlOps(ops);
    addBarrierOps(ops);
    addMBarrierOps(ops);
    addClusterOps(ops);
    addWgmmaOps(ops);
    addWmmaOps(ops);
    return ops;
  }();
  return table;
}

} // namespace llmopt::sim

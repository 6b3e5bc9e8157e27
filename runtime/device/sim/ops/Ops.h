// The families of instructions. Each adds its opcodes to the table; its file
// holds how they are decoded and what they do.
#pragma once

#include "runtime/device/sim/decode/InstDecoder.h"

namespace llmopt::sim {

void addIntegerOps(OpTable &table);
void addMultiplyOps(OpTable &table);
void addCarryOps(OpTable &table);
void addLogicOps(OpTable &table);
void addBitFieldOps(OpTable &table);
void addFloatOps(OpTable &table);
void addFloatFunctionOps(OpTable &table);
void addCompareOps(OpTable &table);
void addConvertOps(OpTable &table);
void addMoveOps(OpTable &table);
void addMemoryOps(OpTable &table);
void addAtomicOps(OpTable &table);
void addAsyncCopyOps(OpTable &table);
void addCollectiveOps(OpTable &table);
void addMatrixOps(OpTable &table);
void addMatrixMoveOps(OpTable &table);
void addControlOps(OpTable &table);
void addBarrierOps(OpTable &table);
void addMBarrierOps(OpTable &table);
void addClusterOps(OpTable &table);
void addWgmmaOps(OpTable &table);
void addWmmaOps(OpTable &table);

// Opcodes that work on integers and on floats: the integer family decodes them
// and hands over what is a float.
runtime::Status decodeFloatArithmetic(InstDecoder &decoder, ptx::Type type);
// barrier.cluster.
runtime::Status decodeClusterBarrier(InstDecoder &decoder);
// add, sub and mad with .cc.
runtime::Status decodeCarry(InstDecoder &decoder, ptx::Type type);

} // namespace llmopt::sim

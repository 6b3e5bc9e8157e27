// A builder with the few idioms that vector code is made of.
#pragma once

#include "codegen/cpu/CpuIsa.h"
#include "codegen/cpu/tovector/Buffers.h"

#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace llmopt::cpu {

/// A tile in memory: memref<outer x inner>, see TileShape.
struct Buffer {
  mlir::Value memory;
  TileShape shape;
  /// Of a tile whose lanes run over rows: the rows to compute (tile.used_rows), whole vectors;
  /// null: all.
  mlir::Value firstRow = {}, endRow = {};
};

class Emit : public mlir::ImplicitLocOpBuilder {
public:
  Emit(mlir::Location loc, mlir::OpBuilder &builder, const CpuIsa &isa)
      : ImplicitLocOpBuilder(loc, builder), target(isa) {}

  const CpuIsa &target;

  // Index arithmetic; a zero or one is not emitted.
  mlir::Value idx(int64_t value);
  mlir::Value add(mlir::Value a, int64_t b);
  mlir::Value add(mlir::Value a, mlir::Value b);
  mlir::Value mul(mlir::Value a, mlir::Value b);
  mlir::Value minIndex(mlir::Value a, mlir::Value b);
  mlir::Value maxIndex(mlir::Value a, mlir::Value b);

  using Body = llvm::function_ref<void(mlir::Value)>;
  using CarryBody =
      llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value, mlir::ValueRange)>;
  /// for (i = low; i < high; i += step); a single constant trip is emitted without a loop.
  void loop(int64_t low, int64_t high, int64_t step, Body body);
  void loop(mlir::Value low, mlir::Value high, int64_t step, Body body);
  llvm::SmallVector<mlir::Value> loop(int64_t low, int64_t high, int64_t step,
                                      mlir::ValueRange inits, CarryBody body);
  /// Over a run's elements in memory, as far as they are to be computed: rows where lanes run over
  /// rows (two elements each in pairs), columns elsewhere.
  void overLanes(const Buffer &buffer, int64_t step, Body body);
  void branch(mlir::Value condition, llvm::function_ref<void()> yes, llvm::function_ref<void()> no);

  mlir::VectorType vec(int64_t lanes, mlir::Type element);
  mlir::Value splat(mlir::Value scalar, int64_t lanes);
  mlir::Value zero(mlir::Type type); ///< of a scalar or vector type
  mlir::Value constant(mlir::Type type, double value);
  mlir::Value iota(int64_t lanes, mlir::Value first); ///< i32 first, first + 1, …
  mlir::Value fma(mlir::Value a, mlir::Value b, mlir::Value c);

  /// `lanes` elements of run `outer` from `inner` on. i1 tiles are bytes in memory.
  mlir::Value loadVector(const Buffer &buffer, mlir::Value outer, mlir::Value inner, int64_t lanes);
  void storeVector(mlir::Value vector, const Buffer &buffer, mlir::Value outer, mlir::Value inner);
  /// Stores two neighbouring columns of a tile of pairs.
  void storePair(mlir::Value first, mlir::Value second, const Buffer &buffer, mlir::Value column,
                 mlir::Value row);
  mlir::Value loadElement(const Buffer &buffer, mlir::Value row, mlir::Value column);
  void storeElement(mlir::Value value, const Buffer &buffer, mlir::Value row, mlir::Value column);
  void fill(const Buffer &buffer, mlir::Value scalar);
  void copy(const Buffer &from, const Buffer &to);

  /// Memory indices of element (row, column).
  llvm::SmallVector<mlir::Value, 2> indices(const Buffer &buffer, mlir::Value row,
                                            mlir::Value column);

  /// Float conversion of a scalar or vector to another width; none when equal.
  mlir::Value convert(mlir::Value value, mlir::Type element);
  /// Bool to byte and back, for i1 tiles.
  mlir::Value toMemory(mlir::Value value, const TileShape &shape);
  mlir::Value fromMemory(mlir::Value value, const TileShape &shape);
};

/// Splits `count` into powers of two, at most `most` each: the vectors of a row.
llvm::SmallVector<std::pair<int64_t, int64_t>> chunks(int64_t count, int64_t most);

} // namespace llmopt::cpu

// Builds one kernel function: its arguments, entry values, and index arithmetic that reads
// like arithmetic. Shared by the lowerings of all attn ops.
#pragma once

#include "dialect/tile/TextAttrs.h"
#include "dialect/tile/TileDialect.h"
#include "passes/attn/Signature.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <cstddef>
#include <functional>
#include <type_traits>

namespace llmopt {

/// A field of a plan's record (runtime/bundle/WorkItem.h).
struct RecordField {
  llvm::StringRef record, field; ///< as the header spells them
  unsigned bytes, offset, size;  ///< of the record; of the field in it
  bool isSigned;
};

#define LLMOPT_FIELD(record, field)                                                                \
  ::llmopt::RecordField {                                                                          \
    #record, #field, unsigned(sizeof(bundle::record)), unsigned(offsetof(bundle::record, field)),  \
        unsigned(sizeof(bundle::record::field)), std::is_signed_v<decltype(bundle::record::field)> \
  }

class KernelBuilder {
public:
  /// Creates `@name` at the end of `module`, with one argument for each slot and the
  /// worker, and stands at its start; `finish` ends the body.
  KernelBuilder(mlir::ModuleOp module, mlir::Location loc, const Signature &signature,
                llvm::StringRef name);
  void finish();

  mlir::OpBuilder b;
  mlir::Location loc;
  const Signature &signature;
  mlir::func::FuncOp func;

  /// This kernel's place, with a name for the value made there: targets that print text
  /// use it.
  mlir::Location named(llvm::StringRef name);
  /// `value`, made by an operation, with this name.
  static mlir::Value called(llvm::StringRef name, mlir::Value value);
  /// `value`'s operation, or the loop that it is an argument of, with this note.
  static mlir::Value noted(llvm::StringRef note, mlir::Value value);

  /// A constant of a plan's records in text: "work_item::kv_head".
  static std::string constantName(llvm::StringRef record, llvm::StringRef name);

  // Arguments.
  mlir::Value slot(int buffer, bundle::SlotKind kind, unsigned dim = 0);
  mlir::Value pointer(bundle::BufferRole role) { return pointer(signature.findBuffer(role)); }
  mlir::Value pointer(int buffer) { return slot(buffer, bundle::SlotKind::Pointer); }
  mlir::Value stride(int buffer, unsigned dim) {
    return slot(buffer, bundle::SlotKind::Stride, dim);
  }
  mlir::Value worker();
  /// Run-time scalar `index` of the signature: f32, or index for integers. Loaded once,
  /// at the start of the function.
  mlir::Value scalar(int index);

  // Index arithmetic.
  mlir::Value idx(int64_t value);
  mlir::Value add(mlir::Value x, mlir::Value y);
  mlir::Value sub(mlir::Value x, mlir::Value y);
  mlir::Value mul(mlir::Value x, mlir::Value y);
  mlir::Value min(mlir::Value x, mlir::Value y);
  mlir::Value max(mlir::Value x, mlir::Value y);
  mlir::Value floorDiv(mlir::Value x, int64_t positive);
  mlir::Value cmp(mlir::arith::CmpIPredicate predicate, mlir::Value x, mlir::Value y);
  mlir::Value select(mlir::Value condition, mlir::Value x, mlir::Value y);
  mlir::Value toI32(mlir::Value index);
  mlir::Value f32(double value);

  /// `field` of record `record` in an array of such records, as index.
  mlir::Value field(bundle::BufferRole role, mlir::Value record, const RecordField &field);
  /// Number of head `head` in a buffer with one a head: f32, or i32. A wider integer beyond what
  /// 32 bits hold counts as the nearest that they hold: no position reaches it.
  mlir::Value perHead(int buffer, mlir::Value head);
  /// Entry `entry` of an array of unsigned 32-bit numbers, as index.
  mlir::Value entry(bundle::BufferRole role, mlir::Value entry);

  /// for (i = lo; i < hi; i += step) body(i).
  void forEach(llvm::StringRef name, mlir::Value lo, mlir::Value hi, int64_t step,
               std::function<void(mlir::Value)> body);
  /// The same with loop-carried values; returns the last ones.
  llvm::SmallVector<mlir::Value>
  forEach(mlir::Value lo, mlir::Value hi, mlir::ValueRange init,
          std::function<llvm::SmallVector<mlir::Value>(mlir::Value, mlir::ValueRange)> body);
  /// This worker's range of items: [offsets[worker], offsets[worker + 1]).
  std::pair<mlir::Value, mlir::Value> range(bundle::BufferRole offsets);

  // Tiles.
  mlir::RankedTensorType tileType(int64_t rows, int64_t columns, mlir::Type element);
  mlir::Value splat(int64_t rows, int64_t columns, double value);
  mlir::Type elementType(int buffer);

  using MapBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(
      mlir::OpBuilder &, mlir::ValueRange elements, mlir::Value row, mlir::Value column)>;
  /// tile.map over `inputs` with one result of `type` for each yielded value.
  mlir::Value map(mlir::RankedTensorType type, mlir::ValueRange inputs, MapBody body);
  mlir::Value reduce(tile::Combiner combiner, mlir::Value tile);

private:
  std::vector<mlir::Value> scalars;
};

} // namespace llmopt

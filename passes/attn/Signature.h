// The arrays, run-time numbers and parameter slots of a spec function. The lowering makes
// kernel arguments of them and codegen the bundle's tables: one definition for both.
#pragma once

#include "dialect/attn/AttnDialect.h"
#include "runtime/bundle/Program.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace llmopt {

/// A number's place: scalar slot `scalar`, or per-head buffer `buffer`.
struct NumberSlot {
  int scalar = -1;
  int buffer = -1;
  bool isFloat = false;
};

class Signature {
public:
  /// Fails with a diagnostic on a function that is no spec: see attn::specOps.
  static mlir::FailureOr<Signature> of(mlir::func::FuncOp spec);

  std::vector<bundle::Buffer> buffers;
  std::vector<bundle::Slot> slots;
  std::vector<bundle::Scalar> scalars;

  attn::AttentionOp attention;
  attn::MergeOp merge;
  attn::AppendOp append;

  /// Index of the buffer with this role (and, for operands of args, this name), or -1.
  int findBuffer(bundle::BufferRole role) const;
  int findArg(unsigned arg) const { return args[arg]; }
  int findSlot(int buffer, bundle::SlotKind kind, unsigned dim = 0) const;

  /// Place of a number of the attention op; `owner` null: the scale.
  NumberSlot number(mlir::Attribute owner, unsigned index) const;
  /// Scalar slot of a captured scalar function argument, or -1.
  int captured(mlir::BlockArgument argument) const;

private:
  int addBuffer(llvm::StringRef name, bundle::BufferRole role, mlir::Type element,
                llvm::ArrayRef<int64_t> extents, bool output = false);
  int addPlanBuffer(llvm::StringRef name, bundle::BufferRole role, bundle::ElementType element);
  void addTensor(llvm::StringRef name, bundle::BufferRole role, mlir::Type type,
                 bool output = false);
  void addCache(attn::KvCacheType cache);
  void addAttention();
  void addArgs();
  void addNumbers();
  void addCaptured();
  void addPlan();
  /// A number of this type; `value` null: one that each call gives.
  int addScalar(llvm::StringRef name, mlir::Type type, mlir::Attribute value);

  struct NumberEntry {
    mlir::Attribute owner;
    unsigned index;
    NumberSlot slot;
  };
  std::vector<NumberEntry> numbers;
  std::vector<int> args;       ///< operand of args -> buffer, -1 for scalars
  std::vector<int> scalarArgs; ///< operand of args -> scalar, -1 for tensors
  std::vector<std::pair<unsigned, int>> capturedScalars; ///< function argument -> scalar
};

/// Whether an item may hold rows of several sequences that share its keys: pages and ragged
/// queries, and scores that depend on positions, head and key alone.
bool mayMixSequences(const Signature &signature);

/// Key intervals of the attention's mask over the signature's scalar slots; all keys when
/// it has no mask.
attn::MaskBounds boundsOf(const Signature &signature);

} // namespace llmopt

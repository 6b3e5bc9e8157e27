// One pair of query and key, and what masks and scores may look up about its op.
#pragma once

#include "dialect/attn/AttnDialect.h"
#include "dialect/reference/Array.h"

#include "llvm/Support/Error.h"

#include <vector>

namespace llmopt::reference {

/// A query and a key of one sequence and query head.
struct Pair {
  int64_t batch = 0;
  int64_t head = 0;          ///< query head
  int64_t queryIndex = 0;    ///< counted from 0 in its sequence
  int64_t queryPosition = 0; ///< queryIndex + (keyLength - queryLength); may be negative
  int64_t keyIndex = 0;      ///< counted from 0 in its sequence
  int64_t key = 0;           ///< key position: keyIndex, unless there is a tree
  int64_t queryLength = 0;
  int64_t keyLength = 0;
  uint64_t treeSet = 0; ///< of the query: bit k is the sequence's query k (attn::TreeAttr)
};

/// A run-time number: one value, or one for each query head.
struct Number {
  std::vector<double> values;
  double of(int64_t head) const { return values.size() == 1 ? values[0] : values[size_t(head)]; }
};

/// An op with the arrays bound to its operands.
struct Context {
  mutable attn::AttentionOp op; ///< its accessors are not const
  const Inputs &inputs;

  llvm::Expected<Array> array(const std::string &name) const;
  /// Operand `index` of the op's `args`.
  llvm::Expected<Array> argument(unsigned index) const;
  /// Number `index` of `owner` (see attn::NumberUse), whose attribute is `value`: an
  /// argument's array, or the literal unless the caller overrides it by name.
  /// Floats are float32 values. Fails where one for all heads is below what the use allows.
  llvm::Expected<Number> number(mlir::Attribute owner, unsigned index, mlir::Attribute value) const;
};

/// A literal of the op that a caller may override, by a name of its own: that of the
/// attn::NumberUse, with _1, _2, ... where others of the name come before it.
struct LiteralNumber {
  std::string name;
  attn::NumberUse use;
};
std::vector<LiteralNumber> literalNumbers(attn::AttentionOp op);

llvm::Error error(const llvm::Twine &message);

} // namespace llmopt::reference

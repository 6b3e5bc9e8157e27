// A mask as text and, written independently, as a predicate; and what is needed to
// compare the two by brute force.
#pragma once

#include "dialect/attn/AttnDialect.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <functional>
#include <string>
#include <vector>

namespace llmopt::attn::test {

struct Shape {
  int queries, keys;
};

/// What a predicate may look at for one query.
struct Row {
  Shape shape;
  int index = 0; ///< of the query, from 0
  int head = 0;
  int position() const { return index + shape.keys - shape.queries; }
};

using Predicate = std::function<bool(const Row &, int key)>;

/// The test's "tensor" behind dense<argN>.
inline bool denseElement(int head, int query, int key) {
  return (query * 7 + key * 3 + head) % 5 < 2;
}

/// The test's trees: of each query its own bit and those of its ancestors, and, to be hard,
/// sets that are no tree at all.
enum class TreeShape { Chain, Causal, Binary, Fan, TwoBranches, Arbitrary };
inline uint64_t treeSet(TreeShape shape, int query) {
  if (shape == TreeShape::Causal)
    return ~uint64_t(0);
  if (shape == TreeShape::Arbitrary)
    return uint64_t(query + 1) * 0x9e3779b97f4a7c15u;
  int parent = shape == TreeShape::Chain    ? query - 1
               : shape == TreeShape::Binary ? (query - 1) / 2
               : shape == TreeShape::Fan    ? 0
                                            : query - 2;
  uint64_t own = uint64_t(1) << query;
  return query == 0 ? own : own | treeSet(shape, parent < 0 ? 0 : parent);
}

struct Arg {
  std::string type;            ///< "i32", "tensor<4xi32>", "tensor<?x?x?x?xi1>"
  std::vector<int64_t> values; ///< of a number: one, or one a head
};

struct MaskSpec {
  std::string text; ///< of the mask clause
  Predicate sees;
  std::vector<std::string> regions = {}; ///< bodies of `where` regions, over %b %h %i %j
  std::vector<Arg> args = {};
  TreeShape tree = TreeShape::Causal;
};

inline constexpr int kHeads = 4;

/// The op with a spec's mask, and its numbers in slots.
class ParsedMask {
public:
  ParsedMask(mlir::MLIRContext &context, MaskSpec spec);

  const MaskSpec spec;
  AttentionOp op;
  MaskAttrInterface mask;

  /// Value of a number for `head`.
  int64_t numberOf(const NumberUse &use, int head) const;
  /// Slot of a number among op.getNumbers().
  unsigned slotOf(mlir::Attribute owner, unsigned index) const;

private:
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

/// How integer defaults enter bounds: folded in, or as run-time slots.
enum class Defaults { Folded, RunTime };

/// A context that parses attn.
mlir::MLIRContext &testContext();

} // namespace llmopt::attn::test

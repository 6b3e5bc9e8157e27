// Which sequences begin with the same pages, kept as block tables change.
//
// A tree over the tables of one layer group: below a node are the tables that begin with the
// same pages up to the node's end, two or more. A change of a table moves its leaf and compares
// only pages behind the node where the table was known to part; nothing is scanned anew.
//
//   prefixes.change(slot, index, count, tables);     // entries [index, index + count) are new
//   shape.prefix = prefixes.nodeOf(slot);            // BatchShape::prefixes = prefixes.nodes()
#pragma once

#include "runtime/plan/Plan.h"

#include <span>
#include <vector>

namespace llmopt::runtime {

class SharedPrefixes {
public:
  SharedPrefixes() = default;
  /// Tables of `slots` sequences with `columns` entries each.
  SharedPrefixes(uint32_t slots, uint32_t columns, uint32_t pageSize);

  /// Entries [index, index + count) of a slot's table have changed; `tables` holds all of them,
  /// slot after slot. A sequence's pages end with the last change, or before its first -1.
  void change(uint32_t slot, uint32_t index, uint32_t count, std::span<const int32_t> tables);

  /// The deepest node above a slot's table, or kNoPrefix.
  uint32_t nodeOf(uint32_t slot) const {
    uint32_t parent = nodes[slot].parent;
    return parent == kRoot || parent == kNoPrefix ? kNoPrefix : parent - slots;
  }
  const std::vector<PrefixNode> &prefixes() const { return list; }

  /// Entries that were compared so far: to see that nothing is scanned again and again.
  uint64_t compared() const { return comparisons; }
  /// For tests: the tree agrees with the tables.
  bool agrees(std::span<const int32_t> tables) const;

private:
  /// Leaves are the slots; then come inner nodes, whose id in `list` is theirs less `slots`.
  static constexpr uint32_t kRoot = kNoPrefix - 1;
  struct Node {
    uint32_t parent = kNoPrefix; ///< kNoPrefix: not in the tree
    uint32_t firstChild = kNoPrefix, next = kNoPrefix, previous = kNoPrefix;
    uint32_t end = 0; ///< columns
  };

  bool isLeaf(uint32_t node) const { return node < slots; }
  uint32_t endOf(uint32_t node) const { return node == kRoot ? 0 : nodes[node].end; }
  uint32_t &firstChildOf(uint32_t node) {
    return node == kRoot ? rootChild : nodes[node].firstChild;
  }
  uint32_t anySlotBelow(uint32_t node) const;
  void attach(uint32_t node, uint32_t parent);
  void detach(uint32_t node);
  uint32_t leave(uint32_t slot);
  void enter(uint32_t slot, uint32_t at, std::span<const int32_t> tables);
  uint32_t split(uint32_t child, uint32_t end);

  uint32_t slots = 0, columns = 0, pageSize = 1;
  std::vector<Node> nodes;
  std::vector<uint32_t> freeNodes;
  std::vector<PrefixNode> list;
  uint32_t rootChild = kNoPrefix;
  uint64_t comparisons = 0;
};

} // namespace llmopt::runtime

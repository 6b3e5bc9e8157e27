// Decides which shared keys become items of their own.
//
// The batch's sequences hang below the nodes of a tree: all below a node have the same pages up
// to the node's end. A node with two sequences or more may be one item for up to tileRows rows
// of them, instead of one for each sequence: K and V are read once, and each row has one more
// partial. It is used where the model's costs fall by it, from the root down, at most
// `levels` nodes on any way; what lies deeper stays with the private keys.
//
// Rows of one block (a node's sequences, as many as fit a tile) share the layout of their
// partials: column c of the block holds the c-th part of each row's keys, shared parts first.
#pragma once

#include "runtime/plan/RowTiles.h"

#include <span>
#include <string_view>
#include <vector>

namespace llmopt::runtime {

/// What became of a batch's shared keys.
enum class CascadeAnswer : uint8_t {
  Used,
  Off,           ///< levels 0
  NothingShared, ///< no two sequences of the batch, or less than a key tile
  Unsupported,   ///< the program's scores or mask need each row's own sequence
  Hidden,        ///< the mask hides the shared keys from some rows
  NoGain,        ///< the model's cost would not fall
  NoRoom,        ///< for partials
};
inline constexpr size_t kCascadeAnswers = size_t(CascadeAnswer::NoRoom) + 1;
std::string_view toString(CascadeAnswer answer);

struct CascadeRule {
  uint32_t levels = 0;
  int64_t splitKeys = 0;  ///< cut at multiples of it only; 0: at key tiles
  uint64_t blockRows = 0; ///< room: rows of all blocks of a head
  uint64_t leastGain = 0; ///< units that all nodes together must save
};

class Cascade {
public:
  Cascade() = default;
  /// `sequences` of a batch and nodes of its tree, at most.
  Cascade(size_t sequences, size_t nodes);

  /// Appends the blocks and tiles of all sequences that share keys and marks these in
  /// `placed`. Anything but Used leaves all as it was.
  CascadeAnswer build(PlanContext &context, const BatchShape &batch,
                      std::span<const uint32_t> firstRows, const CascadeRule &rule,
                      std::vector<RowBlock> &blocks, std::vector<RowTile> &tiles,
                      std::vector<uint8_t> &placed);

  /// The sequences whose query tokens make up the rows of the blocks, in order.
  std::span<const uint32_t> rowOrder() const { return blockOrder; }
  /// Tiles that read shared keys; each has a sequence record of its own, in this order.
  std::span<const uint32_t> sharedTiles() const { return shared; }
  void clear() { blockOrder.clear(), shared.clear(); }

private:
  struct Node {
    uint32_t stamp = 0; ///< of the batch that the rest is about
    uint32_t firstChild = 0, nextSibling = 0, firstSequence = 0;
    uint32_t begin = 0, end = 0; ///< of its sequences in `order`
  };
  /// The sequences [first, last) of `order`, whose keys before `fromKey` are other items.
  struct Part {
    uint32_t node, first, last, level;
    int64_t fromKey;
  };
  struct Build;

  bool connect(const PlanContext &context, const BatchShape &batch);
  void arrange(uint32_t node);
  void place(Build &build, const Part &part);
  void placeChild(Build &build, const Part &part);
  void placePrivate(Build &build, uint32_t sequence, const Part &part);
  int64_t sharedEnd(Build &build, const Part &part) const;
  bool worthwhile(Build &build, const Part &part, int64_t end, uint32_t rows);

  std::vector<Node> nodes;
  std::vector<uint32_t> nextSequence, order, blockOrder, shared;
  std::vector<RowCut> cuts;
  std::vector<uint32_t> roots;
  uint32_t stamp = 0;
};

} // namespace llmopt::runtime

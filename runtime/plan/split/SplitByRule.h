// Splits of the other policies: a fixed number, at absolute key positions, or none. A tile's
// parts depend on the tile alone; then they are dealt as wholes (DealItems.h).
#pragma once

#include "runtime/plan/RowTiles.h"
#include "runtime/plan/split/SplitRule.h"

#include <span>
#include <vector>

namespace llmopt::runtime {

/// A part of a row tile's keys.
struct Piece {
  uint32_t beginTile, endTile;
  uint32_t visibleTiles;
};

/// The parts of all row tiles, in their order.
class SplitByRule {
public:
  struct Room {
    uint64_t pieces = 0, tiles = 0; ///< of one head
  };
  SplitByRule() = default;
  explicit SplitByRule(const Room &room) : room(room) {
    list.reserve(room.pieces);
    counts.reserve(room.tiles);
    first.reserve(room.tiles + 1);
  }

  /// Cuts all tiles. Where there is no room the largest numbers of parts are lowered;
  /// ResourceExhausted when the plan is batch-invariant, since then room must not change any
  /// row's arithmetic. `lowered` says that it happened.
  Status cut(PlanContext &context, const BatchShape &batch, std::span<const uint32_t> firstRows,
             std::span<const RowBlock> blocks, std::span<const RowTile> tiles,
             const SplitRule &rule, uint64_t partialRows, bool &lowered);

  std::span<const Piece> of(size_t tile) const {
    return std::span(list).subspan(first[tile], first[tile + 1] - first[tile]);
  }
  size_t size() const { return list.size(); }

private:
  uint32_t countOf(PlanContext &context, const BatchShape &batch,
                   std::span<const uint32_t> firstRows, const RowTile &tile, const SplitRule &rule);
  void add(PlanContext &context, const BatchShape &batch, std::span<const uint32_t> firstRows,
           const RowTile &tile, const SplitRule &rule, uint32_t count, bool byLength);
  Status lower(const PlanContext &context, std::span<const RowBlock> blocks,
               std::span<const RowTile> tiles, uint64_t partialRows, uint32_t &cap) const;

  Room room;
  std::vector<Piece> list;
  std::vector<uint32_t> first;  ///< piece of each tile, and the end
  std::vector<uint32_t> counts; ///< of each tile, before it is lowered
};

} // namespace llmopt::runtime

// Deals whole items to workers, and tuples of items, which stay together. No worker gets more than
// the mean load and its largest one.
//
// The items go by size, the largest first, and each size fills up what the workers have left
// to the mean, in natural order: neighbours stay together, and the small ones even out what
// the large ones left uneven.
#pragma once

#include "runtime/plan/RowTiles.h"
#include "runtime/plan/split/SplitByRule.h"

#include <span>
#include <vector>

namespace llmopt::runtime {

class DealItems {
public:
  DealItems() = default;
  DealItems(uint32_t workers, uint32_t attends, uint64_t pieces, uint64_t items);

  /// Worker of each tuple: block after block, tuple of heads after tuple, tile after tile, part
  /// after part.
  std::span<const uint16_t> deal(const PlanContext &context, std::span<const RowBlock> blocks,
                                 std::span<const RowTile> tiles, const SplitByRule &pieces,
                                 uint32_t workers);
  /// Items of each worker in a kernel's list.
  std::span<const uint32_t> countsOf(uint32_t attend) const {
    return std::span(counts).subspan(attend * loads.size(), loads.size());
  }

private:
  /// One part, for all heads: tuples `first + unit * stride`.
  struct Lot {
    uint64_t cost; ///< of a tuple
    uint32_t first, stride, attend;
    uint32_t heads; ///< of a tuple
  };
  static constexpr uint32_t kSizes = 512;

  template <bool Tuples>
  std::span<const uint16_t> dealLots(const PlanContext &context, std::span<const RowBlock> blocks,
                                     std::span<const RowTile> tiles, const SplitByRule &pieces,
                                     uint32_t workers);
  template <bool Tuples>
  void collect(const PlanContext &context, std::span<const RowBlock> blocks,
               std::span<const RowTile> tiles, const SplitByRule &pieces);
  template <bool Tuples> void fill(std::span<const Lot> lots, uint32_t kvHeads, uint64_t mean);

  std::vector<Lot> lots, sorted;
  std::vector<uint32_t> sizeEnds, counts;
  std::vector<uint64_t> loads;
  std::vector<uint16_t> workerOf;
  uint32_t tuples = 0;
};

} // namespace llmopt::runtime

// How one byte budget is cut so that every layer group can use (nearly) all of it.
//
// Memory is one range of bytes, cut into slabs. A slab belongs to no group or to
// one and holds that group's pages; it can change its group when none of its pages
// is held. When all groups have pages of the same size, a slab is one page: pages
// move between groups one by one. Otherwise a slab is the smallest that leaves each
// group at least 98 % of the budget, if there is one.
//
// Inside, a page is a frame: (slab, place in it), dense over all groups, so that
// bookkeeping is paid once and not for each group. A PageId is what kernels see:
// the page of group g with id p starts at byte p * pageBytes(g) of the range.
//
// Example: pages of 3 and 2 bytes, 60 bytes. A slab of 6 bytes holds 2 or 3 pages;
// slab 4 (bytes 24 to 29) is page 8 and 9 of the first group or 12 to 14 of the second.
#pragma once

#include "runtime/kv/Groups.h"
#include "runtime/kv/StepTables.h"

#include <cstdint>
#include <span>
#include <vector>

namespace llmopt::runtime::kv {

using Frame = uint32_t;
inline constexpr Frame kNoFrame = UINT32_MAX;

struct PoolLayout {
  std::vector<GroupSpec> groups;
  uint64_t budgetBytes = 0, slabBytes = 0;
  uint32_t slabs = 0;
  uint32_t framesPerSlab = 0;         ///< of the group with the smallest pages
  std::vector<uint32_t> pagesPerSlab; ///< for each group

  bool equalPages = false; ///< of all groups: a slab is a page
  uint32_t frames() const { return slabs * framesPerSlab; }
  /// Most pages that the group can have at once.
  uint32_t capacity(uint32_t group) const { return slabs * pagesPerSlab[group]; }

  PageId pageOf(uint32_t group, Frame frame) const {
    if (equalPages)
      return static_cast<PageId>(frame);
    uint64_t slab = frame / framesPerSlab, place = frame % framesPerSlab;
    return static_cast<PageId>(firstPage(group, slab) + place);
  }
  Frame frameOf(uint32_t group, PageId page) const {
    if (equalPages)
      return static_cast<Frame>(page);
    uint64_t slab = static_cast<uint64_t>(page) * groups[group].pageBytes() / slabBytes;
    return static_cast<Frame>(slab * framesPerSlab + static_cast<uint64_t>(page) -
                              firstPage(group, slab));
  }

private:
  /// The first page that starts in the slab.
  uint64_t firstPage(uint32_t group, uint64_t slab) const {
    uint64_t bytes = groups[group].pageBytes();
    return (slab * slabBytes + bytes - 1) / bytes;
  }
};

/// `groups` must be valid. ResourceExhausted when the budget has no room for a page
/// of each group, or for more than 2^31 - 2 pages.
StatusOr<PoolLayout> layOut(std::span<const GroupSpec> groups, uint64_t budgetBytes);

} // namespace llmopt::runtime::kv

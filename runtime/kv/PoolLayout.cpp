#include "runtime/kv/PoolLayout.h"

#include "runtime/kv/Admission.h"

#include <algorithm>
#include <numeric>

namespace llmopt::runtime::kv {

namespace {

constexpr double kWantedShare = 0.98;
/// Slabs of up to this many of the largest pages are looked at.
constexpr uint64_t kMostPagesOfSlab = 256;

/// Pages of `bytes` that lie within any slab, whatever its place: a slab that is no
/// multiple of the page loses up to one at its ends.
uint64_t pagesIn(uint64_t slabBytes, uint64_t bytes) {
  if (slabBytes % bytes == 0)
    return slabBytes / bytes;
  // Slabs start at multiples of slabBytes: the gap before the first whole page is at
  // most bytes - gcd.
  uint64_t gap = bytes - std::gcd(slabBytes, bytes);
  return slabBytes > gap ? (slabBytes - gap) / bytes : 0;
}

/// Share of the budget that the group which fares worst can use.
double worstShare(std::span<const GroupSpec> groups, uint64_t budgetBytes, uint64_t slabBytes) {
  double worst = 1;
  for (const GroupSpec &group : groups) {
    uint64_t used = budgetBytes / slabBytes * pagesIn(slabBytes, group.pageBytes());
    worst = std::min(worst, static_cast<double>(used) * static_cast<double>(group.pageBytes()) /
                                static_cast<double>(budgetBytes));
  }
  return worst;
}

/// The slab of the best value: what the worst group can use, less half a slab for each
/// group, which a group in need of one more page may leave unused. The first slab with
/// the wanted share ends the search. 0 when the largest page does not fit.
uint64_t chooseSlab(std::span<const GroupSpec> groups, uint64_t budgetBytes, uint64_t largest) {
  uint64_t best = 0;
  double bestValue = -1e9, share = 0;
  for (uint64_t pages = 1;
       pages <= kMostPagesOfSlab && pages * largest <= budgetBytes && share < kWantedShare;
       ++pages) {
    uint64_t bytes = pages * largest;
    share = worstShare(groups, budgetBytes, bytes);
    double value =
        share - static_cast<double>(groups.size() * bytes) / (2 * static_cast<double>(budgetBytes));
    if (share > 0 && value > bestValue) {
      best = bytes;
      bestValue = value;
    }
  }
  return best;
}

} // namespace

StatusOr<PoolLayout> layOut(std::span<const GroupSpec> groups, uint64_t budgetBytes) {
  PoolLayout layout;
  layout.groups.assign(groups.begin(), groups.end());
  layout.budgetBytes = budgetBytes;
  uint64_t largest = std::ranges::max(groups, {}, &GroupSpec::pageBytes).pageBytes();
  layout.equalPages = std::ranges::all_of(
      groups, [&](const GroupSpec &group) { return group.pageBytes() == largest; });
  layout.slabBytes = layout.equalPages ? largest : chooseSlab(groups, budgetBytes, largest);
  uint64_t slabs = layout.slabBytes ? budgetBytes / layout.slabBytes : 0, perSlab = 0;
  for (const GroupSpec &group : groups) {
    uint64_t pages = layout.slabBytes ? pagesIn(layout.slabBytes, group.pageBytes()) : 0;
    layout.pagesPerSlab.push_back(static_cast<uint32_t>(pages));
    perSlab = std::max(perSlab, pages);
  }
  // Each group has to get a slab of its own, or no sequence could run.
  uint64_t needed = groups.size();
  if (slabs < needed || std::ranges::count(layout.pagesPerSlab, 0u) > 0)
    return makeStatus(StatusCode::ResourceExhausted,
                      "a budget of {} bytes has no room for a page of each of {} layer groups; "
                      "give at least {} bytes",
                      budgetBytes, groups.size(), needed * std::max(layout.slabBytes, 2 * largest));
  if (slabs * perSlab > kMostPages)
    return makeStatus(StatusCode::ResourceExhausted,
                      "a budget of {} bytes holds {} pages; at most {} are allowed; give less, or "
                      "use larger pages",
                      budgetBytes, slabs * perSlab, kMostPages);
  layout.slabs = static_cast<uint32_t>(slabs);
  layout.framesPerSlab = static_cast<uint32_t>(perSlab);
  return layout;
}

} // namespace llmopt::runtime::kv

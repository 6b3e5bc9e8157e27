// Pools of pages of unequal sizes: which group has which slab.
#include "runtime/kv/Pool.h"
#include "runtime/kv/PrefixCache.h"

namespace llmopt::runtime::kv {

namespace {

bool isHeld(PageState state) { return state != PageState::Free && state != PageState::Cached; }

} // namespace

/// Beyond what is free and cached in slabs that have to stay anyway.
uint32_t Pool::slabsNeeded(uint32_t group, uint32_t pages) const {
  uint32_t own = count(group, PageState::Free) - idleFree[group] + count(group, PageState::Cached) -
                 idleCached[group];
  if (pages <= own)
    return 0;
  uint32_t each = shape.pagesPerSlab[group];
  return (pages - own + each - 1) / each;
}

void Pool::prepare(const Demand &demand) {
  if (shape.equalPages)
    return;
  std::array<uint32_t, kMaxGroups> wanted = {};
  for (uint32_t g = 0; g < groups(); ++g)
    wanted[g] = slabsNeeded(g, demand.take[g]);
  for (uint32_t g = 0; g < groups(); ++g)
    for (; wanted[g] > 0; --wanted[g]) {
      if (unassigned == 0)
        if (uint32_t oldest = oldestIdleSlab(kMaxGroups); oldest != kNoFrame)
          reclaimSlab(oldest);
      assignSlab(g);
    }
}

bool Pool::assignSlab(uint32_t group) {
  if (unassigned == 0)
    return false;
  uint32_t s = unassignedHead;
  unassignedHead = slab[s].freeHead;
  --unassigned;
  slab[s].freeHead = kNoFrame;
  slab[s].held = slab[s].cached = slab[s].carved = 0;
  slab[s].group = static_cast<uint8_t>(group);
  counts[group][static_cast<uint32_t>(PageState::Free)] += shape.pagesPerSlab[group];
  ++slabCount[group];
  linkPartial(s);
  return true;
}

void Pool::unassign(uint32_t s) {
  uint32_t group = slab[s].group;
  counts[group][static_cast<uint32_t>(PageState::Free)] -= shape.pagesPerSlab[group];
  --slabCount[group];
  if (slab[s].partial)
    unlinkPartial(s);
  if (slab[s].idle)
    unlinkIdle(s);
  slab[s].group = kMaxGroups;
  slab[s].freeHead = unassignedHead;
  unassignedHead = s;
  ++unassigned;
}

/// The slab that nobody holds for the longest time.
uint32_t Pool::oldestIdleSlab(uint32_t exceptGroup) const {
  uint32_t best = kNoFrame;
  for (uint32_t g = 0; g < groups(); ++g) {
    uint32_t list = shape.slabs + groups() + g, s = slab[list].idleNext;
    if (g != exceptGroup && s != list && (best == kNoFrame || slab[s].stamp < slab[best].stamp))
      best = s;
  }
  return best;
}

/// Evicts all its pages; the last one takes the slab from its group.
void Pool::reclaimSlab(uint32_t s) {
  for (uint32_t i = 0; i < shape.framesPerSlab && slab[s].group != kMaxGroups; ++i) {
    Frame f = s * shape.framesPerSlab + i;
    if (i < slab[s].carved && state(f) == PageState::Cached)
      evict(f);
  }
}

void Pool::slabMoved(Frame f, PageState from, PageState to) {
  uint32_t s = f / shape.framesPerSlab;
  Slab &item = slab[s];
  uint32_t g = item.group, each = shape.pagesPerSlab[g];
  if (item.idle) {
    --idleSlabs[g];
    idleFree[g] -= each - item.cached;
    idleCached[g] -= item.cached;
  }
  item.held = item.held - isHeld(from) + isHeld(to);
  item.cached = item.cached - (from == PageState::Cached) + (to == PageState::Cached);
  if (item.held > 0) {
    if (item.idle)
      unlinkIdle(s);
    return;
  }
  if (item.cached == 0) {
    unassign(s);
    return;
  }
  ++idleSlabs[g];
  idleFree[g] += each - item.cached;
  idleCached[g] += item.cached;
  if (!item.idle) {
    item.stamp = clock;
    linkIdle(s);
  }
}

void Pool::linkIdle(uint32_t s) {
  uint32_t list = shape.slabs + groups() + slab[s].group;
  slab[s].idlePrev = slab[list].idlePrev;
  slab[s].idleNext = list;
  slab[slab[list].idlePrev].idleNext = s;
  slab[list].idlePrev = s;
  slab[s].idle = true;
}

void Pool::unlinkIdle(uint32_t s) {
  slab[slab[s].idlePrev].idleNext = slab[s].idleNext;
  slab[slab[s].idleNext].idlePrev = slab[s].idlePrev;
  slab[s].idle = false;
}

void Pool::linkPartial(uint32_t s) {
  uint32_t list = shape.slabs + slab[s].group;
  slab[s].partialPrev = slab[list].partialPrev;
  slab[s].partialNext = list;
  slab[slab[list].partialPrev].partialNext = s;
  slab[list].partialPrev = s;
  slab[s].partial = true;
}

void Pool::unlinkPartial(uint32_t s) {
  slab[slab[s].partialPrev].partialNext = slab[s].partialNext;
  slab[slab[s].partialNext].partialPrev = slab[s].partialPrev;
  slab[s].partial = false;
}

} // namespace llmopt::runtime::kv

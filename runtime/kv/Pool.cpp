#include "runtime/kv/Pool.h"

#include "runtime/kv/Mutants.h"
#include "runtime/kv/PrefixCache.h"

#include <algorithm>

namespace llmopt::runtime::kv {

namespace {

/// Stamps are renewed before the clock gets near the end of 32 bits.
constexpr uint32_t kClockLimit = uint32_t{3} << 30;
constexpr uint32_t kClockStep = uint32_t{1} << 31;

} // namespace

std::string_view toString(PageState state) {
  switch (state) {
  case PageState::Free:
    return "free";
  case PageState::Cached:
    return "cached";
  case PageState::Used:
    return "used";
  case PageState::Pending:
    return "pending";
  case PageState::Swapping:
    return "swapping";
  case PageState::Pinned:
    return "pinned";
  }
  return "unknown";
}

Pool::Pool(PoolLayout layout, uint32_t maxSteps)
    : shape(std::move(layout)), steps(maxSteps + 1), hitBonus(shape.frames() / 2),
      frame(size_t{shape.frames()} + 2 * shape.groups.size() + steps) {
  for (uint32_t head = shape.frames(); head < frame.size(); ++head)
    frame[head].prev = frame[head].next = head;
  if (shape.equalPages) {
    counts[0][static_cast<uint32_t>(PageState::Free)] = shape.frames();
    return;
  }
  slab.resize(size_t{shape.slabs} + 2 * shape.groups.size());
  for (uint32_t s = 0; s < slab.size(); ++s)
    slab[s].partialPrev = slab[s].partialNext = slab[s].idlePrev = slab[s].idleNext = s;
  // The first slab is given first.
  for (uint32_t s = shape.slabs; s-- > 0;) {
    slab[s].freeHead = unassignedHead;
    unassignedHead = s;
  }
  unassigned = shape.slabs;
}

// ---- Taking and giving back

bool Pool::feasible(const Demand &demand) const {
  if (shape.equalPages) {
    uint64_t wanted = 0;
    for (uint32_t g = 0; g < groups(); ++g)
      wanted += demand.take[g];
    return wanted <= uint64_t{count(PageState::Free)} + count(PageState::Cached);
  }
  uint64_t wanted = 0, idle = 0;
  for (uint32_t g = 0; g < groups(); ++g) {
    wanted += slabsNeeded(g, demand.take[g]);
    idle += idleSlabs[g];
  }
  return wanted <= unassigned + idle;
}

Frame Pool::take(uint32_t group) {
  Frame f;
  if (!shape.equalPages) {
    f = takeFromSlabs(group);
    if (f == kNoFrame)
      return f;
    frame[f].group = group & 15;
    move(f, PageState::Used);
  } else {
    constexpr auto kFree = static_cast<uint32_t>(PageState::Free);
    if (freeHead != kNoFrame) {
      f = freeHead;
      freeHead = frame[f].next;
      --counts[0][kFree]; // free pages count for group 0
    } else if (carved < shape.frames()) {
      f = carved++;
      --counts[0][kFree];
    } else if ((f = takeCached()) == kNoFrame) {
      return f;
    }
    frame[f].group = group & 15;
    frame[f].state = static_cast<uint8_t>(PageState::Used);
    ++counts[group][static_cast<uint32_t>(PageState::Used)];
  }
  Info &info = frame[f];
  info.refs = 1;
  info.stamp = 0;
  info.hit = 0;
  ++takenPages;
  if (++clock == kClockLimit)
    renewStamps();
  return f;
}

/// With equal pages: the next victim, no longer counted in any state.
Frame Pool::takeCached() {
  uint64_t key = 0;
  Frame f = victim(0, key);
  if (f == kNoFrame)
    return f;
  if (!cache->isOnlyPage(f, *this)) { // others of its node go with it
    evict(f);
    f = freeHead;
    freeHead = frame[f].next;
    --counts[0][static_cast<uint32_t>(PageState::Free)];
    return f;
  }
  fetchVictims(f);
  Info &info = frame[f];
  ++evictedPages;
  evictedHitPages += info.hit;
  cache->lost(info.node);
  unlink(f);
  info.node = kNoNode;
  --counts[info.group][info.state];
  return f;
}

Frame Pool::takeFromSlabs(uint32_t group) {
  Frame f = popFree(group);
  while (f == kNoFrame) {
    if (!evictFor(group))
      return f;
    f = popFree(group);
  }
  return f;
}

void Pool::undoRef(Frame f, PageState before) {
  Info &info = frame[f];
  if (--info.refs > 0)
    return;
  frame[info.prev].next = f;
  frame[info.next].prev = f;
  if (shape.equalPages) {
    move(f, before);
    return;
  }
  uint32_t s = f / shape.framesPerSlab;
  Slab old = slab[s];
  move(f, before);
  if (!old.idle && slab[s].idle) { // it left the list at these neighbours
    unlinkIdle(s);
    slab[s].idlePrev = old.idlePrev;
    slab[s].idleNext = old.idleNext;
    slab[s].stamp = old.stamp;
    slab[old.idlePrev].idleNext = s;
    slab[old.idleNext].idlePrev = s;
    slab[s].idle = true;
  }
}

/// The last owner went.
void Pool::release(Frame f) {
  Info &info = frame[f];
  assert(state(f) == PageState::Used && "a page is released during a copy or transfer");
  if (info.stamp > completed && !mutant(Mutant::EarlyFree)) {
    move(f, PageState::Pending);
    link(pendingList(info.stamp), f);
  } else {
    settle(f);
  }
}

void Pool::touch(Frame f, StepId step) {
  Info &info = frame[f];
  if (info.refs > 0) {
    info.stamp = std::max(info.stamp, step);
    return;
  }
  if (state(f) == PageState::Pending && info.stamp >= step)
    return;
  unlink(f);
  if (state(f) == PageState::Cached)
    move(f, PageState::Pending);
  info.stamp = step;
  link(pendingList(step), f);
}

void Pool::completeStep(StepId step) {
  completed = step;
  if (mutant(Mutant::LateFree))
    return;
  uint32_t list = pendingList(step);
  while (frame[list].next != list) {
    Frame f = frame[list].next;
    unlink(f);
    settle(f);
  }
}

void Pool::settle(Frame f) {
  Info &info = frame[f];
  if (info.node == kNoNode) {
    free(f);
    return;
  }
  info.stamp = clock;
  move(f, PageState::Cached);
  link(cachedList(info.group, info.hit), f);
}

/// Of pages of unequal size: ends in its slab's list of free pages.
void Pool::freeInSlab(Frame f) {
  move(f, PageState::Free);
  uint32_t s = f / shape.framesPerSlab;
  if (slab[s].group == kMaxGroups)
    return; // its slab went as a whole
  frame[f].next = slab[s].freeHead;
  slab[s].freeHead = f;
  if (!slab[s].partial)
    linkPartial(s);
}

Frame Pool::popFree(uint32_t group) {
  uint32_t list = shape.slabs + group, s = slab[list].partialNext;
  if (s == list)
    return kNoFrame;
  Frame f = slab[s].freeHead;
  if (f != kNoFrame)
    slab[s].freeHead = frame[f].next;
  else
    f = s * shape.framesPerSlab + slab[s].carved++;
  if (slab[s].freeHead == kNoFrame && slab[s].carved == shape.pagesPerSlab[group])
    unlinkPartial(s);
  return f;
}

// ---- Eviction

Frame Pool::victim(uint32_t group, uint64_t &key) const {
  Frame best = kNoFrame;
  uint32_t first = shape.equalPages ? 0 : group, last = shape.equalPages ? groups() : group + 1;
  for (uint32_t g = first; g < last; ++g)
    for (bool hit : {false, true}) {
      uint32_t list = cachedList(g, hit);
      Frame f = mutant(Mutant::HeadsFirst) ? frame[list].prev : frame[list].next;
      if (f == list)
        continue;
      uint64_t candidate = frame[f].stamp + (hit ? hitBonus : 0);
      if (best == kNoFrame || candidate < key) {
        best = f;
        key = candidate;
      }
    }
  return best;
}

/// Makes room for one page of the group, of pages of unequal size. False when nothing can go.
bool Pool::evictFor(uint32_t group) {
  uint64_t key = 0;
  if (assignSlab(group))
    return true;
  Frame own = victim(group, key);
  uint32_t other = oldestIdleSlab(group);
  if (own != kNoFrame && (other == kNoFrame || key <= slab[other].stamp)) {
    evict(own);
    return true;
  }
  if (other == kNoFrame)
    return false;
  reclaimSlab(other);
  return assignSlab(group);
}

/// Evictions come in runs, and each looks at lines that have been left alone for long: of the
/// victims to come, each is taken a step further. What a step looks at was fetched some steps
/// before.
void Pool::fetchVictims(Frame f) {
  auto at = [&](uint32_t i) { return coming[(firstComing + i) % kComing]; };
  if (comingCount && at(0) == f) {
    ++firstComing;
    --comingCount;
  } else {
    comingCount = 0; // another list, or another order
  }
  Frame last = comingCount ? at(comingCount - 1) : f;
  for (int hops = 0; hops < 2 && comingCount < kComing; ++hops) {
    last = frame[last].next;
    if (last >= shape.frames())
      break;
    coming[(firstComing + comingCount++) % kComing] = last;
    fetch(last);
  }
  auto nodeAt = [&](uint32_t i) { return i < comingCount ? frame[at(i)].node : kNoNode; };
  if (uint32_t node = nodeAt(5); node != kNoNode)
    cache->fetchNode(node);
  if (uint32_t node = nodeAt(3); node != kNoNode)
    cache->fetchLinks(node);
  if (uint32_t node = nodeAt(1); node != kNoNode)
    cache->fetchChain(node);
}

void Pool::evict(Frame f) {
  fetchVictims(f);
  ++evictedPages;
  evictedHitPages += frame[f].hit;
  cache->evicted(f, *this);
}

/// Keeps differences of stamps up to 2^30; older pages become equally old.
void Pool::renewStamps() {
  auto renew = [](uint32_t &stamp) { stamp -= std::min(stamp, kClockStep); };
  for (uint32_t g = 0; g < groups(); ++g)
    for (bool hit : {false, true})
      for (uint32_t list = cachedList(g, hit), f = frame[list].next; f != list; f = frame[f].next)
        renew(frame[f].stamp);
  for (uint32_t s = 0; s < shape.slabs && !shape.equalPages; ++s)
    renew(slab[s].stamp);
  clock -= kClockStep;
}

// ---- States

uint32_t Pool::count(PageState state) const {
  uint32_t sum = 0;
  for (uint32_t g = 0; g < groups(); ++g)
    sum += count(g, state);
  return sum;
}

uint32_t Pool::available(uint32_t group) const {
  if (shape.equalPages)
    return count(PageState::Free) + count(PageState::Cached);
  uint32_t others = unassigned;
  for (uint32_t g = 0; g < groups(); ++g)
    others += g == group ? 0 : idleSlabs[g];
  return count(group, PageState::Free) + count(group, PageState::Cached) +
         others * shape.pagesPerSlab[group];
}

bool Pool::isFree(uint32_t group, PageId page) const {
  Frame f = shape.frameOf(group, page);
  if (state(f) != PageState::Free)
    return false;
  return shape.equalPages || slab[f / shape.framesPerSlab].group == group ||
         slab[f / shape.framesPerSlab].group == kMaxGroups;
}

uint64_t Pool::bytes() const { return frame.size() * sizeof(Info) + slab.size() * sizeof(Slab); }

} // namespace llmopt::runtime::kv

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
  Frame f = popFree(group);
  while (f == kNoFrame) {
    if (!evictFor(group))
      return kNoFrame;
    f = popFree(group);
  }
  Info &info = frame[f];
  if (shape.equalPages) { // free pages count for group 0
    --counts[0][static_cast<uint32_t>(PageState::Free)];
    info.group = group & 15;
    info.state = static_cast<uint8_t>(PageState::Used);
    ++counts[group][static_cast<uint32_t>(PageState::Used)];
  } else {
    info.group = group & 15;
    move(f, PageState::Used);
  }
  info.refs = 1;
  info.stamp = 0;
  info.hit = 0;
  ++takenPages;
  if (++clock == kClockLimit)
    renewStamps();
  return f;
}

PageState Pool::tryRef(Frame f) {
  Info &info = frame[f];
  auto before = static_cast<PageState>(info.state);
  if (info.refs++ == 0) {
    unlink(f); // leaves the frame's own links as they were
    move(f, PageState::Used);
  }
  return before;
}

void Pool::confirmRef(Frame f, PageState before) {
  if (before == PageState::Cached) {
    frame[f].stamp = 0;
    ++revivedPages;
  }
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

void Pool::addRef(Frame f) { confirmRef(f, tryRef(f)); }

void Pool::dropRef(Frame f, StepId lastStep) {
  Info &info = frame[f];
  assert(info.refs > 0 && "a page without owner is released");
  info.stamp = std::max(info.stamp, lastStep);
  if (--info.refs > 0)
    return;
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

/// Ends in the list of free pages; its links are free to use.
void Pool::free(Frame f) {
  Info &info = frame[f];
  info.hit = 0;
  if (freedPages)
    freedPages->push_back({info.group, pageOf(f)});
  move(f, PageState::Free);
  if (shape.equalPages) {
    --counts[info.group][static_cast<uint32_t>(PageState::Free)];
    ++counts[0][static_cast<uint32_t>(PageState::Free)];
    info.group = 0;
    info.next = freeHead;
    freeHead = f;
    return;
  }
  uint32_t s = f / shape.framesPerSlab;
  if (slab[s].group == kMaxGroups)
    return; // its slab went as a whole
  info.next = slab[s].freeHead;
  slab[s].freeHead = f;
  if (!slab[s].partial)
    linkPartial(s);
}

Frame Pool::popFree(uint32_t group) {
  if (shape.equalPages) {
    if (freeHead != kNoFrame) {
      Frame f = freeHead;
      freeHead = frame[f].next;
      return f;
    }
    return carved < shape.frames() ? carved++ : kNoFrame;
  }
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

/// Makes room for one page of the group. False when nothing can go.
bool Pool::evictFor(uint32_t group) {
  uint64_t key = 0;
  if (shape.equalPages) {
    Frame f = victim(group, key);
    if (f == kNoFrame)
      return false;
    evict(f);
    return true;
  }
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
/// next three in the list, each is taken a step further.
void Pool::fetchVictims(Frame f) const {
  auto after = [&](Frame at) { return frame[at].next; };
  Frame next = after(f);
  if (next >= shape.frames())
    return;
  cache->fetchLinks(frame[next].node);
  if ((next = after(next)) >= shape.frames())
    return;
  cache->fetchNode(frame[next].node);
  if ((next = after(next)) < shape.frames())
    fetch(next);
}

void Pool::evict(Frame f) {
  fetchVictims(f);
  ++evictedPages;
  evictedHitPages += frame[f].hit;
  cache->evicted(f, *this);
}

void Pool::hash(Frame f, uint32_t node, uint32_t nodeSlot) {
  frame[f].node = node;
  frame[f].nodeSlot = static_cast<uint8_t>(nodeSlot);
}

void Pool::unhash(Frame f) {
  Info &info = frame[f];
  info.node = kNoNode;
  info.hit = 0;
  if (state(f) == PageState::Cached) {
    unlink(f);
    free(f);
  }
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

void Pool::move(Frame f, PageState to) {
  Info &info = frame[f];
  auto from = static_cast<PageState>(info.state);
  --counts[info.group][static_cast<uint32_t>(from)];
  ++counts[info.group][static_cast<uint32_t>(to)];
  info.state = static_cast<uint8_t>(to) & 7;
  if (!shape.equalPages)
    slabMoved(f, from, to);
}

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

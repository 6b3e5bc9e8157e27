#include "runtime/kv/Pool.h"

#include "runtime/kv/Mutants.h"
#include "runtime/kv/PrefixCache.h"

#include <algorithm>

namespace llmopt::runtime::kv {

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

Pool::Pool(PoolLayout layout, uint32_t maxSteps, uint32_t clock)
    : shape(std::move(layout)), steps(maxSteps + 1), clock(clock), hitBonus(shape.frames() / 2),
      frame(size_t{shape.frames()} + 2 * shape.groups.size() + steps) {
  newest.fill(shape.frames());
  fetched.fill(shape.frames());
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
  passVictim(f);
  Info &info = frame[f];
  ++evictedPages;
  evictedHitPages += info.hit;
  cache->lost(info.node);
  unlink(f);
  info.node = kNoNode;
  --counts[info.group][info.state];
  return f;
}

void Pool::take(uint32_t group, std::span<Frame> out) {
  size_t i = 0;
  // Free ones first, as `take` does.
  while (i < out.size() && (!shape.equalPages || freeHead != kNoFrame || carved < shape.frames()))
    out[i++] = take(group);
  i += takeVictims(out.subspan(i));
  while (i < out.size())
    out[i++] = take(group);
}

/// The next victims, each the only page of its node: then the order of eviction is known before
/// the first one goes, and what each one looks at is fetched while others go. Gives how many it
/// took: none where it has to be done page by page.
uint32_t Pool::takeVictims(std::span<Frame> out) {
  uint32_t never = cachedList(0, false), hit = cachedList(0, true);
  uint32_t wanted = static_cast<uint32_t>(out.size());
  wanted = std::min(wanted, count(0, PageState::Cached));
  constexpr uint32_t kFew = 4; // then nothing can be fetched ahead
  if (wanted < kFew || groups() > 1 || clock >= kClockLimit - wanted ||
      mutant(Mutant::HeadsFirst) || !cache->isOnlyPage(frame[never].next, *this))
    return 0;
  Info *const all = frame.data();
  Frame a = all[never].next, b = all[hit].next;
  auto keyOf = [&](Frame f, uint32_t list, uint64_t bonus) {
    return f == list ? UINT64_MAX : all[f].stamp + bonus;
  };
  uint64_t keyOfHit = keyOf(b, hit, hitBonus);
  uint32_t hits = 0;
  // What a block of them looks at is fetched while the block before goes.
  constexpr uint32_t kBlock = 16;
  std::array<NodeId, kBlock> nodes, nodesBefore;
  for (uint32_t begin = 0, before = 0;; begin += before) {
    uint32_t count = std::min(wanted - begin, kBlock);
    for (uint32_t i = 0; i < count; ++i) {
      bool first = b == hit || keyOf(a, never, 0) <= keyOfHit;
      Frame f = out[begin + i] = first ? a : b;
      const Info &info = all[f];
      __builtin_prefetch(&all[info.later], 1);
      cache->fetchNode(nodes[i] = info.node);
      if (first) {
        a = info.next;
      } else {
        b = info.next;
        keyOfHit = keyOf(b, hit, hitBonus);
        ++hits;
      }
    }
    cache->lost(std::span<const NodeId>{nodesBefore.data(), before});
    for (uint32_t i = begin - before; i < begin; ++i) {
      Info &info = all[out[i]];
      info.node = kNoNode;
      info.refs = 1;
      info.stamp = 0;
      info.hit = 0;
      info.state = static_cast<uint8_t>(PageState::Used);
    }
    if (!count)
      break;
    nodesBefore = nodes;
    before = count;
  }
  auto dropFront = [&](uint32_t list, Frame next) {
    frame[list].next = next;
    frame[next].prev = list;
  };
  dropFront(never, a);
  dropFront(hit, b);
  counts[0][static_cast<uint32_t>(PageState::Cached)] -= wanted;
  counts[0][static_cast<uint32_t>(PageState::Used)] += wanted;
  evictedPages += wanted;
  evictedHitPages += hits;
  takenPages += wanted;
  clock += wanted;
  return wanted;
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

void Pool::dropRefs(std::span<const Frame> pages, StepId lastStep) {
  if (pages.empty())
    return;
  // Of small numbers the compiler thinks that they may be part of anything: what is looked at for
  // each page is in variables.
  Info *const all = frame.data();
  const bool plain = shape.equalPages;
  const StepId done = mutant(Mutant::EarlyFree) ? UINT32_MAX : completed;
  const uint32_t group = all[pages[0]].group, stamp = clock;
  const std::array<uint32_t, 2> lists = {cachedList(group, false), cachedList(group, true)};
  std::array<uint32_t, 2> last = {all[lists[0]].prev, all[lists[1]].prev};
  uint32_t settled = 0;
  // Others hold the head of a sequence and were here lately; its own tail was left alone.
  for (size_t i = pages.size() - std::min(pages.size(), kAhead); i < pages.size(); ++i)
    fetch(pages[i]);
  for (size_t i = pages.size(); i-- > 0;) {
    Frame f = pages[i];
    Info &info = all[f];
    if (info.stamp < lastStep)
      info.stamp = lastStep;
    assert(info.refs > 0 && "a page without owner is released");
    if (--info.refs > 0)
      continue;
    if (i >= kAhead)
      fetch(pages[i - kAhead]);
    if (info.stamp > done || info.node == kNoNode || !plain) {
      release(f); // not to these lists, but where pages are not equal: then none was before
      continue;
    }
    // As `settle`, but counted, and the ends of the lists linked, in the end.
    ++settled;
    info.stamp = stamp;
    info.state = static_cast<uint8_t>(PageState::Cached);
    uint32_t &end = last[info.hit];
    info.prev = end;
    all[end].next = f;
    end = f;
    if (!info.hit)
      note(f);
  }
  if (!settled)
    return;
  for (uint32_t hit : {0, 1}) {
    all[last[hit]].next = lists[hit];
    all[lists[hit]].prev = last[hit];
  }
  counts[group][static_cast<uint32_t>(PageState::Used)] -= settled;
  counts[group][static_cast<uint32_t>(PageState::Cached)] += settled;
}

void Pool::addHits(std::span<const Frame> pages) {
  Info *const all = frame.data();
  for (Frame f : pages) {
    Info &info = all[f];
    if (!info.refs) { // mostly others hold it, too
      reuse(f);
      continue;
    }
    ++info.refs;
    info.hit = 1;
  }
}

/// By a hit.
void Pool::reuse(Frame f) {
  addRef(f);
  markHit(f);
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
  uint32_t list = cachedList(info.group, info.hit);
  link(list, f);
  if (!info.hit)
    note(f);
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

/// A page is about to go: of those that come later this fetches one, and the node of another.
void Pool::passVictim(Frame f) {
  Frame &soon = fetched[passed++ % kSoon];
  if (frame[soon].node != kNoNode)
    cache->fetchNode(frame[soon].node);
  soon = frame[f].later;
  fetch(soon);
}

void Pool::evict(Frame f) {
  passVictim(f);
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

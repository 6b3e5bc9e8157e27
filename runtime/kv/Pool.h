// Pages of all layer groups out of one byte budget: who holds them, which state
// they are in, and in which order cached ones are given up.
//
// Eviction order. A cached page's key is its stamp (pages taken from the pool so
// far, when the page was released last), plus half the pool's pages if it was ever
// hit. The smallest key goes first; with equal keys pages never hit before pages
// that were, then lower groups before higher, then the page released first. A
// sequence releases its pages from the tail to the head, and a hit to a page is a
// hit to all before it, so tails go before heads. Only pages that nobody holds are
// in the order at all.
//
// All operations are O(1), apart from giving a slab to another group, which evicts
// the pages in it. Nothing is allocated after the constructor.
#pragma once

#include "runtime/kv/Admission.h"
#include "runtime/kv/LargePages.h"
#include "runtime/kv/PoolLayout.h"

#include <array>
#include <cassert>
#include <span>
#include <string_view>
#include <vector>

namespace llmopt::runtime::kv {

class PrefixCache;

inline constexpr uint32_t kNoNode = UINT32_MAX;

/// Each page is in one state.
enum class PageState : uint8_t {
  Free,     ///< holds nothing
  Cached,   ///< nobody's, found by the prefix cache, may be evicted
  Used,     ///< held by sequences
  Pending,  ///< nobody's, but an unfinished step may touch it
  Swapping, ///< held; a copy from or to host memory is under way
  Pinned,   ///< held; another machine may read or write it
};
inline constexpr uint32_t kPageStates = 6;

std::string_view toString(PageState state);

class Pool {
public:
  /// `maxSteps`: unfinished steps, the open one included. `clock`: pages that were taken before,
  /// for tests of its end.
  Pool(PoolLayout layout, uint32_t maxSteps, uint32_t clock = 0);

  /// Who is told when a page is evicted.
  void setCache(PrefixCache *owner) { cache = owner; }
  /// Marks the pool of host memory: the cache keeps the two apart.
  void setHost() { host = true; }
  bool isHost() const { return host; }

  const PoolLayout &layout() const { return shape; }
  uint32_t groups() const { return static_cast<uint32_t>(shape.groups.size()); }

  /// Pages taken at which stamps are renewed.
  static constexpr uint32_t kClockLimit = uint32_t{3} << 30;

  // ---- Taking and giving back

  /// Whether all these pages could be taken now, from what is free or evictable.
  bool feasible(const Demand &demand) const;
  /// Gives slabs to the groups that need some for a feasible demand. Call it before
  /// the first `take`; with equal pages it does nothing.
  void prepare(const Demand &demand);
  /// A page with one owner: a free one, else one by eviction. kNoFrame if there is none.
  Frame take(uint32_t group);
  /// As `take`, of as many pages; where one lacks, it and those after it are kNoFrame.
  void take(uint32_t group, std::span<Frame> pages);
  /// One more owner; a cached or pending page is used again.
  void addRef(Frame f) { confirmRef(f, tryRef(f)); }
  /// The same of a page that is hit.
  void addHit(Frame f) {
    if (frame[f].refs > 0) { // mostly: others hold it, too
      ++frame[f].refs;
      frame[f].hit = 1;
      return;
    }
    reuse(f);
  }
  /// One owner less. Steps up to `lastStep` may still touch the page.
  void dropRef(Frame f, StepId lastStep) {
    Info &info = frame[f];
    assert(info.refs > 0 && "a page without owner is released");
    if (lastStep > info.stamp)
      info.stamp = lastStep;
    if (--info.refs == 0)
      release(f);
  }
  /// As dropRef, of each, the last one first. All are of one group.
  void dropRefs(std::span<const Frame> pages, StepId lastStep);
  /// As addHit, of each.
  void addHits(std::span<const Frame> pages);
  /// Begins to load what `dropRef` will look at: pages of a sequence lie scattered.
  void fetch(Frame f) const { __builtin_prefetch(&frame[f], 1); }
  /// The open step reads the page: not to be given away before that step completes.
  void touch(Frame frame, StepId step);
  /// Pages that waited for this step become cached or free.
  void completeStep(StepId step);

  /// As addRef, but can be taken back exactly, in the reverse order, as long as no
  /// other function was called: a refused admission leaves the order as it was.
  /// `confirmRef` makes it final. Both get what `tryRef` returned.
  PageState tryRef(Frame f) {
    Info &info = frame[f];
    auto before = static_cast<PageState>(info.state);
    if (info.refs++ == 0) {
      unlink(f); // leaves the frame's own links as they were
      move(f, PageState::Used);
    }
    return before;
  }
  void undoRef(Frame frame, PageState before);
  void confirmRef(Frame f, PageState before) {
    if (before == PageState::Cached) {
      frame[f].stamp = 0;
      ++revivedPages;
    }
  }

  // ---- States

  PageState state(Frame f) const { return static_cast<PageState>(frame[f].state); }
  uint32_t refs(Frame f) const { return frame[f].refs; }
  uint32_t group(Frame f) const { return frame[f].group; }
  uint32_t node(Frame f) const { return frame[f].node; }
  uint32_t nodeSlot(Frame f) const { return frame[f].nodeSlot; }
  bool wasHit(Frame f) const { return frame[f].hit; }
  void markHit(Frame f) { frame[f].hit = 1; }
  /// Enters (from Used) or leaves (to Used) Swapping or Pinned; the caller is an owner.
  void setState(Frame f, PageState state) { move(f, state); }
  /// The page is the content of a place in a node of the prefix tree.
  void hash(Frame f, uint32_t node, uint32_t nodeSlot) {
    frame[f].node = node;
    frame[f].nodeSlot = static_cast<uint8_t>(nodeSlot);
  }
  /// It is not any more. A cached page is free then.
  void unhash(Frame f) {
    Info &info = frame[f];
    info.node = kNoNode;
    info.hit = 0;
    if (state(f) == PageState::Cached) {
      unlink(f);
      free(f);
    }
  }

  PageId pageOf(Frame f) const { return shape.pageOf(frame[f].group, f); }

  /// Pages of a group in a state. Free counts free pages of the group's own slabs;
  /// with equal pages the free ones are nobody's and count for group 0.
  uint32_t count(uint32_t group, PageState state) const {
    return counts[group][static_cast<uint32_t>(state)];
  }
  /// Of all groups.
  uint32_t count(PageState state) const;
  /// Slabs without a group; 0 with equal pages.
  uint32_t freeSlabs() const { return unassigned; }
  /// Slabs of a group; 0 with equal pages.
  uint32_t slabsOf(uint32_t group) const { return slabCount[group]; }
  /// Pages of the group that could be taken now without an eviction.
  uint32_t freePages(uint32_t group) const {
    return shape.equalPages
               ? count(PageState::Free)
               : count(group, PageState::Free) + unassigned * shape.pagesPerSlab[group];
  }
  /// Pages that the group could take now if no other wanted any.
  uint32_t available(uint32_t group) const;

  uint64_t taken() const { return takenPages; }
  uint64_t evicted() const { return evictedPages; }
  uint64_t evictedAfterHit() const { return evictedHitPages; }
  /// Times a cached page was used again; see PrefixCache's quick refusal.
  uint64_t revived() const { return revivedPages; }
  /// Bytes of bookkeeping.
  uint64_t bytes() const;

  /// First broken promise of the lists and counts. O(pages).
  Status check() const;
  /// Calls visit(frame) for the cached pages of a group in the order of eviction, of
  /// pages never hit (false) or of those that were.
  template <typename Visit> void forEachCached(uint32_t group, bool hit, Visit visit) const {
    uint32_t list = cachedList(group, hit);
    for (Frame f = frame[list].next; f != list; f = frame[f].next)
      if (!visit(f))
        return;
  }
  /// Whether nobody has the bytes of this page of the group.
  bool isFree(uint32_t group, PageId page) const;
  /// Set by the owner to hear of each page that became free, or null.
  std::vector<FreedPage> *freedPages = nullptr;

private:
  /// Twenty-four bytes a page.
  struct Info {
    uint16_t refs = 0;
    uint8_t state : 3 = 0, hit : 1 = 0, group : 4 = 0;
    uint8_t nodeSlot = 0;
    uint32_t prev = 0, next = 0;
    uint32_t node = kNoNode;
    /// Cached: the eviction stamp. Else: the last step that may touch the page.
    uint32_t stamp = 0;
    Frame later = 0; ///< a guess for prefetching: who was released kLater pages after it
  };
  static_assert(sizeof(Info) == 24);

  /// Of pages of unequal size only.
  struct Slab {
    uint32_t partialPrev = 0, partialNext = 0; ///< slabs of the group with free pages
    uint32_t idlePrev = 0, idleNext = 0;       ///< slabs of the group that nobody holds
    uint32_t freeHead = kNoFrame;
    uint32_t held = 0, cached = 0;      ///< pages neither free nor cached; cached pages
    uint32_t carved = 0;                ///< pages that were ever taken since it got its group
    uint32_t stamp = 0;                 ///< of the moment when the last held page was released
    uint8_t group = kMaxGroups;         ///< none
    bool partial = false, idle = false; ///< in that list
  };

  uint32_t cachedList(uint32_t group, bool hit) const {
    return shape.frames() + 2 * group + (hit ? 1 : 0);
  }
  uint32_t pendingList(StepId step) const { return shape.frames() + 2 * groups() + step % steps; }
  void link(uint32_t list, Frame f) { // at the end
    Info &item = frame[f], &head = frame[list];
    item.prev = head.prev;
    item.next = list;
    frame[head.prev].next = f;
    head.prev = f;
  }
  void unlink(Frame f) {
    frame[frame[f].prev].next = frame[f].next;
    frame[frame[f].next].prev = frame[f].prev;
  }
  /// Counts only; links are the caller's.
  void move(Frame f, PageState to) {
    Info &info = frame[f];
    auto from = static_cast<PageState>(info.state);
    --counts[info.group][static_cast<uint32_t>(from)];
    ++counts[info.group][static_cast<uint32_t>(to)];
    info.state = static_cast<uint8_t>(to) & 7;
    if (!shape.equalPages) [[unlikely]]
      slabMoved(f, from, to);
  }
  void reuse(Frame f);
  void release(Frame f);
  void settle(Frame f);
  /// Ends in the list of free pages; its links are free to use.
  void free(Frame f) {
    Info &info = frame[f];
    info.hit = 0;
    if (freedPages) [[unlikely]]
      freedPages->push_back({info.group, pageOf(f)});
    if (!shape.equalPages) [[unlikely]]
      return freeInSlab(f);
    // Free pages are nobody's and count for group 0.
    --counts[info.group][info.state];
    ++counts[0][static_cast<uint32_t>(PageState::Free)];
    info.state = static_cast<uint8_t>(PageState::Free);
    info.group = 0;
    info.next = freeHead;
    freeHead = f;
  }
  void freeInSlab(Frame f);
  Frame takeCached();
  uint32_t takeVictims(std::span<Frame> pages);
  Frame takeFromSlabs(uint32_t group);
  Frame popFree(uint32_t group);
  Frame victim(uint32_t group, uint64_t &key) const;
  bool evictFor(uint32_t group);
  void evict(Frame f);
  void passVictim(Frame f);
  void renewStamps();
  /// Stamps are renewed before the clock gets near the end of 32 bits.
  static constexpr uint32_t kClockStep = uint32_t{1} << 31;

  // Slabs.
  void slabMoved(Frame f, PageState from, PageState to);
  bool assignSlab(uint32_t group);
  uint32_t oldestIdleSlab(uint32_t exceptGroup) const;
  void reclaimSlab(uint32_t slab);
  void linkIdle(uint32_t slab);
  void unlinkIdle(uint32_t slab);
  void linkPartial(uint32_t slab);
  void unlinkPartial(uint32_t slab);
  void unassign(uint32_t slab);
  uint32_t slabsNeeded(uint32_t group, uint32_t pages) const;
  Status checkSlabs() const;

  PoolLayout shape;
  uint32_t steps;
  PrefixCache *cache = nullptr;
  bool host = false;
  StepId completed = 0;
  uint32_t clock = 0;
  uint64_t hitBonus = 0;
  std::vector<Info, LargePages<Info>> frame; ///< pages, then heads of the lists
  uint32_t freeHead = kNoFrame, carved = 0;
  std::array<std::array<uint32_t, kPageStates>, kMaxGroups> counts = {};
  uint64_t takenPages = 0, evictedPages = 0, evictedHitPages = 0, revivedPages = 0;

  static constexpr size_t kAhead = 8; ///< pages that are fetched
  /// Looking ahead in the order of pages never hit. Each names the next one, which has to be near
  /// before it can be read; so each also names one further on, as they were released.
  static constexpr uint32_t kLater = 32, kSoon = 8; ///< pages
  std::array<Frame, kLater> newest;                 ///< released last, a ring
  std::array<Frame, kSoon> fetched;                 ///< by the last evictions, a ring
  uint32_t released = 0, passed = 0;
  void note(Frame f) {
    Frame &before = newest[released++ % kLater];
    frame[before].later = f;
    before = f;
  }

  std::vector<Slab> slab; ///< slabs, then heads: partial of each group, idle of each group
  uint32_t unassigned = 0, unassignedHead = kNoFrame;
  std::array<uint32_t, kMaxGroups> slabCount = {}, idleSlabs = {}, idleFree = {}, idleCached = {};
};

} // namespace llmopt::runtime::kv

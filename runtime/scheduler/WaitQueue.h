// Waiting requests in the order of a policy.
//
// Where that is the order of arrival, nearly all come in order and leave at the front or, aborted,
// at the back: they lie in a ring, and coming and going looks at one place. A heap of a thousand
// is searched at each of its levels instead. Who comes back later than others have come (preempted,
// or its filter has answered) is in the heap. So calls take no longer than the heap's, on average:
// one that finds the ring full closes the gaps of those that left from its middle.
#pragma once

#include "runtime/scheduler/IndexedHeap.h"

#include <bit>

namespace llmopt::runtime {

class WaitQueue {
public:
  /// `byArrival`: keys are equal, and ties decide.
  WaitQueue(uint32_t slots, bool byArrival)
      : heap(slots), places(byArrival ? slots : 0, kAbsent),
        ring(byArrival ? std::bit_ceil(2 * slots) : 0), mask(uint32_t(ring.size()) - 1) {}

  bool empty() const { return begin == end && heap.empty(); }
  uint32_t size() const { return inRing + heap.size(); }
  bool contains(uint32_t slot) const { return isInRing(slot) || heap.contains(slot); }
  uint32_t top() const { return ringFirst() ? ring[begin & mask].slot : heap.top(); }

  void push(uint32_t slot, uint64_t key, uint64_t tie) {
    if (ring.empty() || (begin != end && tie < ring[(end - 1) & mask].tie))
      return heap.push(slot, key, tie);
    if (end - begin == ring.size()) [[unlikely]]
      closeGaps();
    places[slot] = end & mask;
    ring[end++ & mask] = {tie, slot};
    ++inRing;
  }
  uint32_t pop() {
    uint32_t slot = top();
    remove(slot);
    return slot;
  }
  void remove(uint32_t slot) {
    if (!isInRing(slot))
      return heap.remove(slot);
    ring[std::exchange(places[slot], kAbsent)].slot = kAbsent;
    --inRing;
    while (begin != end && ring[begin & mask].slot == kAbsent)
      ++begin;
    while (begin != end && ring[(end - 1) & mask].slot == kAbsent)
      --end;
  }
  void rekey(uint32_t slot, uint64_t key) {
    if (!isInRing(slot))
      heap.rekey(slot, key);
  }
  /// The slot at place i, in no particular order; not of a queue by arrival.
  uint32_t slotAt(uint32_t i) const { return heap.slotAt(i); }
  /// Calls visit(slot) for the first `count` in order, or nearly all of them: for fetching them.
  template <typename Visit> void forFirst(uint32_t count, Visit visit) const {
    count = std::min(count, IndexedHeap::kMostFirst);
    heap.forFirst(count, visit);
    for (uint32_t at = begin; at != end && at - begin < kMostLooked && count > 0; ++at)
      if (uint32_t slot = ring[at & mask].slot; slot != kAbsent) {
        visit(slot);
        --count;
      }
  }

private:
  static constexpr uint32_t kAbsent = UINT32_MAX;
  static constexpr uint32_t kMostLooked =
      4 * IndexedHeap::kMostFirst; ///< behind the first are gaps
  struct Entry {
    uint64_t tie = 0;
    uint32_t slot = kAbsent; ///< kAbsent: it has left
  };

  bool isInRing(uint32_t slot) const { return !places.empty() && places[slot] != kAbsent; }
  bool ringFirst() const {
    return begin != end && (heap.empty() || ring[begin & mask].tie < heap.topTie());
  }
  /// The ring has room for twice as many as there can be.
  void closeGaps() {
    uint32_t to = begin;
    for (uint32_t at = begin; at != end; ++at)
      if (Entry entry = ring[at & mask]; entry.slot != kAbsent) {
        places[entry.slot] = to & mask;
        ring[to++ & mask] = entry;
      }
    end = to;
  }

  IndexedHeap heap;             ///< those that are not in the ring
  std::vector<uint32_t> places; ///< of each slot in the ring
  std::vector<Entry> ring;      ///< ties ascend; the first and the last one are there
  uint32_t mask, begin = 0, end = 0, inRing = 0;
};

} // namespace llmopt::runtime

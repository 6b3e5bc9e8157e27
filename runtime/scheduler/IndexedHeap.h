// A 4-ary heap of slots ordered by (key, tie), with removal and re-keying of any slot in
// logarithmic time. All memory is reserved at construction.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace llmopt::runtime {

class IndexedHeap {
public:
  explicit IndexedHeap(uint32_t slots) : places(slots, kAbsent) { entries.reserve(slots); }

  bool empty() const { return entries.empty(); }
  uint32_t size() const { return uint32_t(entries.size()); }
  bool contains(uint32_t slot) const { return places[slot] != kAbsent; }
  uint32_t top() const { return entries[0].slot; }
  uint64_t topTie() const { return entries[0].tie; }
  uint64_t topKey() const { return entries[0].key; }

  void push(uint32_t slot, uint64_t key, uint64_t tie) {
    entries.push_back({key, tie, slot});
    up(size() - 1);
  }
  uint32_t pop() {
    uint32_t slot = top();
    remove(slot);
    return slot;
  }
  void remove(uint32_t slot) {
    uint32_t at = std::exchange(places[slot], kAbsent);
    Entry last = entries.back();
    entries.pop_back();
    if (at == size())
      return;
    entries[at] = last;
    places[last.slot] = at;
    settle(at);
  }
  void rekey(uint32_t slot, uint64_t key) {
    uint32_t at = places[slot];
    entries[at].key = key;
    settle(at);
  }
  /// The slot at place i, in no particular order.
  uint32_t slotAt(uint32_t i) const { return entries[i].slot; }

  /// Calls visit(slot) for the first `count` in order, at most kMostFirst.
  template <typename Visit> void forFirst(uint32_t count, Visit visit) const {
    std::array<uint32_t, 1 + kMostFirst *(kWays - 1)> open = {0}; // next ones of what was visited
    uint32_t opened = empty() ? 0 : 1;
    for (uint32_t i = 0; i < count && i < kMostFirst && opened; ++i) {
      uint32_t best = 0;
      for (uint32_t o = 1; o < opened; ++o)
        if (entries[open[o]].before(entries[open[best]]))
          best = o;
      uint32_t at = open[best];
      open[best] = open[--opened];
      visit(entries[at].slot);
      for (uint32_t next = at * kWays + 1; next <= at * kWays + kWays && next < size(); ++next)
        open[opened++] = next;
    }
  }
  static constexpr uint32_t kMostFirst = 8;

private:
  static constexpr uint32_t kAbsent = UINT32_MAX, kWays = 4;
  struct Entry {
    uint64_t key, tie;
    uint32_t slot;
    bool before(const Entry &other) const {
      return key != other.key ? key < other.key : tie < other.tie;
    }
  };

  void settle(uint32_t at) {
    if (at && entries[at].before(entries[(at - 1) / kWays]))
      up(at);
    else
      down(at);
  }
  void up(uint32_t at) {
    Entry moved = entries[at];
    while (at && moved.before(entries[(at - 1) / kWays])) {
      entries[at] = entries[(at - 1) / kWays];
      places[entries[at].slot] = at;
      at = (at - 1) / kWays;
    }
    entries[at] = moved;
    places[moved.slot] = at;
  }
  void down(uint32_t at) {
    Entry moved = entries[at];
    while (true) {
      uint32_t first = at * kWays + 1, best = first;
      if (first >= size())
        break;
      for (uint32_t i = first + 1; i < first + kWays && i < size(); ++i)
        if (entries[i].before(entries[best]))
          best = i;
      if (!entries[best].before(moved))
        break;
      entries[at] = entries[best];
      places[entries[at].slot] = at;
      at = best;
    }
    entries[at] = moved;
    places[moved.slot] = at;
  }

  std::vector<Entry> entries;
  std::vector<uint32_t> places; ///< of each slot in entries
};

} // namespace llmopt::runtime

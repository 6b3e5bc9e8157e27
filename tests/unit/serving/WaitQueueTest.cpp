#include "runtime/scheduler/WaitQueue.h"

#include <gtest/gtest.h>
#include <random>
#include <set>
#include <tuple>

using namespace llmopt::runtime;

// Whatever comes, leaves and comes back, in order or out of it: the first one is the first one.
TEST(WaitQueue, GivesTheSameAsASortedSet) {
  constexpr uint32_t kSlots = 60;
  for (bool byArrival : {true, false}) {
    std::mt19937 random(1);
    WaitQueue queue(kSlots, byArrival);
    std::set<std::tuple<uint64_t, uint64_t, uint32_t>> sorted;
    std::vector<std::pair<uint64_t, uint64_t>> keys(kSlots);
    std::vector<bool> inside(kSlots), came(kSlots);
    uint64_t arrivals = 0;
    auto push = [&](uint32_t slot) {
      queue.push(slot, keys[slot].first, keys[slot].second);
      sorted.insert({keys[slot].first, keys[slot].second, slot});
      inside[slot] = true;
    };
    auto gone = [&](uint32_t slot) {
      sorted.erase({keys[slot].first, keys[slot].second, slot});
      inside[slot] = false;
    };
    for (uint32_t call = 0; call < 50'000; ++call) {
      uint32_t slot = random() % kSlots, kind = random() % 8;
      if (kind < 3 && !inside[slot]) {
        // A new request, or one that was preempted and has its old place.
        if (!came[slot] || random() % 4)
          keys[slot] = {byArrival ? 0 : random() % 5, arrivals++};
        came[slot] = true;
        push(slot);
      } else if (kind == 3 && inside[slot]) {
        queue.remove(slot);
        gone(slot);
      } else if (kind == 4 && !byArrival && inside[slot]) {
        gone(slot);
        keys[slot].first = random() % 5;
        queue.rekey(slot, keys[slot].first);
        sorted.insert({keys[slot].first, keys[slot].second, slot});
        inside[slot] = true;
      } else if (kind > 5 && !sorted.empty()) {
        uint32_t first = std::get<2>(*sorted.begin());
        ASSERT_EQ(queue.pop(), first);
        gone(first);
      }
      ASSERT_EQ(queue.size(), sorted.size());
      ASSERT_EQ(queue.empty(), sorted.empty());
      ASSERT_EQ(queue.contains(slot), inside[slot]);
      if (!sorted.empty()) {
        ASSERT_EQ(queue.top(), std::get<2>(*sorted.begin()));
      }
      uint32_t seen = 0;
      queue.forFirst(5, [&](uint32_t next) { seen += inside[next]; });
      ASSERT_GE(seen, std::min<size_t>(1, sorted.size()));
      ASSERT_LE(seen, std::min<size_t>(10, sorted.size()));
    }
  }
}

// Who stays while all others pass leaves gaps between, which are closed when the ring is full.
TEST(WaitQueue, OneThatStaysDoesNotFillIt) {
  WaitQueue queue(8, true);
  queue.push(7, 0, 0);
  for (uint32_t i = 1; i < 1000; ++i) {
    queue.push(i % 7, 0, i);
    if (i > 3)
      queue.remove((i - 3) % 7);
    ASSERT_EQ(queue.top(), 7u);
  }
  EXPECT_EQ(queue.pop(), 7u);
  EXPECT_EQ(queue.pop(), 997u % 7);
  EXPECT_EQ(queue.size(), 2u);
}

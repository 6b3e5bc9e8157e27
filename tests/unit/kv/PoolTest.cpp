// The pool by itself: pages taken together are those that one by one would be, and the end of the
// clock's range changes nothing.
#include "runtime/kv/Pool.h"
#include "runtime/kv/PrefixCache.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

using namespace llmopt::runtime::kv;

namespace {

std::vector<GroupSpec> groupsOf(std::vector<uint64_t> pageBytes) {
  std::vector<GroupSpec> groups;
  for (uint64_t bytes : pageBytes)
    groups.push_back({.pageSize = 4, .dataBytes = bytes});
  return groups;
}

/// Random sequences of some pages in each group, all of them in the tree, some of them hit.
class Traffic {
public:
  Traffic(const std::vector<GroupSpec> &groups, bool together, uint32_t clock)
      : groups(uint32_t(groups.size())), together(together),
        pool(*layOut(groups, 200 * 256), 2, clock), cache({}, pool, nullptr, 8) {
    pool.setCache(&cache);
  }

  /// The pages in the order in which they were taken.
  std::vector<Frame> play(uint32_t seed) {
    std::mt19937 random(seed);
    Prompt prompt({}, {}, 4);
    NodeId root = cache.rootOf(prompt);
    cache.hold(root);
    for (uint32_t round = 0; round < 2000; ++round) {
      Demand demand;
      for (uint32_t g = 0; g < groups; ++g)
        demand.take[g] = 1 + random() % 20;
      while (held.size() > random() % 4 || (!held.empty() && !pool.feasible(demand)))
        releaseOldest();
      EXPECT_TRUE(pool.feasible(demand));
      start(demand, root, round, random() % 3 == 0);
      EXPECT_TRUE(pool.check().ok()) << pool.check().message();
    }
    return taken;
  }
  const Pool &pages() const { return pool; }

private:
  using Sequence = std::vector<std::vector<Frame>>;

  void start(const Demand &demand, NodeId root, uint32_t round, bool hit) {
    pool.prepare(demand);
    Sequence &sequence = held.emplace_back(groups);
    uint32_t longest = 0;
    for (uint32_t g = 0; g < groups; ++g) {
      std::vector<Frame> &own = sequence[g];
      own.resize(demand.take[g]);
      if (together)
        pool.take(g, own);
      else
        for (Frame &f : own)
          f = pool.take(g);
      taken.insert(taken.end(), own.begin(), own.end());
      longest = std::max(longest, demand.take[g]);
    }
    NodeId at = root;
    for (uint32_t i = 0; i < longest && at != kNoNode; ++i) {
      Token tokens[4] = {round, i, 0, 0};
      at = cache.childOf(at, tokens, {});
      for (uint32_t g = 0; g < groups && at != kNoNode; ++g)
        if (i < sequence[g].size()) {
          cache.attach(at, cache.slotOf(g, i), PageRef::device(sequence[g][i]));
          if (hit)
            pool.markHit(sequence[g][i]);
        }
    }
  }
  void releaseOldest() {
    for (std::vector<Frame> &own : held.front())
      for (size_t i = own.size(); i-- > 0;)
        pool.dropRef(own[i], 0);
    held.pop_front();
  }

  uint32_t groups;
  bool together;
  Pool pool;
  PrefixCache cache;
  std::deque<Sequence> held;
  std::vector<Frame> taken;
};

const std::vector<std::vector<uint64_t>> kGroups = {{256}, {256, 256}, {256, 64}};

} // namespace

TEST(KvPool, PagesTakenTogetherAreThoseTakenOneByOne) {
  for (const std::vector<uint64_t> &bytes : kGroups)
    for (uint32_t seed = 1; seed <= 5; ++seed) {
      Traffic together(groupsOf(bytes), true, 0), apart(groupsOf(bytes), false, 0);
      ASSERT_EQ(together.play(seed), apart.play(seed)) << bytes.size() << " groups, seed " << seed;
      EXPECT_GT(together.pages().evicted(), 1000u);
      EXPECT_EQ(together.pages().evicted(), apart.pages().evicted());
      EXPECT_EQ(together.pages().evictedAfterHit(), apart.pages().evictedAfterHit());
      EXPECT_EQ(together.pages().taken(), apart.pages().taken());
    }
}

// Stamps lose half of the clock's range then, and all keep their differences.
TEST(KvPool, TheEndOfTheClockChangesNoEviction) {
  for (const std::vector<uint64_t> &bytes : kGroups)
    for (uint32_t before : {1u, 700u, 701u, 5000u}) {
      Traffic fresh(groupsOf(bytes), true, 0),
          old(groupsOf(bytes), true, Pool::kClockLimit - before);
      ASSERT_EQ(fresh.play(3), old.play(3)) << bytes.size() << " groups, " << before << " before";
      EXPECT_GT(old.pages().taken(), before);
    }
}

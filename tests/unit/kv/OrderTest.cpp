// The order of eviction, and what it is worth on real traces (TraceTest.cpp).
#include "Order.h"

#include "Story.h"
#include "runtime/kv/Mutants.h"

using namespace kvtest;

namespace kvtest {

std::vector<uint32_t> hitsWhilePrefixIsEvicted() {
  Story story({fullGroup(4)}, 5);
  story.remember(text(0, 16)); // pages 0 to 3 cached, 4 free
  std::vector<uint32_t> hits;
  for (Token i = 1; i <= 5; ++i) {
    story.run(text(1000 * i, 4)); // keeps its page
    hits.push_back(story.hits(text(0, 17)));
  }
  return hits;
}

} // namespace kvtest

TEST(KvOrder, TailsGoBeforeHeads) {
  EXPECT_EQ(hitsWhilePrefixIsEvicted(), (std::vector<uint32_t>{16, 12, 8, 4, 0}));
}

TEST(KvOrder, PagesInUseStay) {
  Story story({fullGroup(4)}, 4);
  SequenceId a = story.run(text(0, 8));
  story.remember(text(100, 8));
  story.remember(text(200, 8));
  EXPECT_EQ(story.hits(text(0, 9)), 8u);
  EXPECT_EQ(story.hits(text(100, 9)), 0u);
  story.kv->finish(a);
}

TEST(KvOrder, TheLeastRecentlyReleasedGoesFirst) {
  Story story({fullGroup(4)}, 4);
  for (Token first : {0u, 100u, 200u, 300u})
    story.remember(text(first, 4));
  story.remember(text(400, 4));
  EXPECT_EQ(story.hits(text(0, 5)), 0u);
  EXPECT_EQ(story.hits(text(100, 5)), 4u);
  story.remember(text(500, 4));
  EXPECT_EQ(story.hits(text(100, 5)), 0u);
  EXPECT_EQ(story.hits(text(200, 5)), 4u);
}

// A page that was ever hit stays half a pool's worth of new pages longer.
TEST(KvOrder, PagesThatWereHitStayLonger) {
  Story story({fullGroup(4)}, 8);
  story.remember(text(0, 4));
  story.remember(text(0, 5)); // hits it
  uint32_t passed = 0;
  for (Token i = 1; story.hits(text(0, 5)) > 0 && i < 50; ++i, ++passed)
    story.remember(text(i * 1000, 4));
  // Seven free pages, then as many never hit as make up for the bonus of four.
  EXPECT_EQ(passed, 12u);
}

// The second level of the prefix cache, its reset and its events, as the scheduler runs them.
#include "Story.h"

using namespace llmopt::test;

namespace {

StoryOptions twoLevels(uint32_t demoteBelow) {
  StoryOptions options;
  options.pages = 16;
  options.hostPages = 16;
  options.demoteBelow = demoteBelow;
  options.cacheEvents = 256;
  return options;
}

/// A prompt of `tokens`, one token of answer, alone.
void serve(Story &story, char name, uint32_t stream, uint32_t tokens) {
  Ask ask;
  ask.prompt = tokens;
  ask.answer = 2;
  ask.stream = stream;
  story.add(name, ask);
  story.runOut();
  story.expectAnswer(name, 2);
}

uint64_t hitTokens(const Story &story) { return story.scheduler->metrics().prefixHits; }

std::vector<kv::CacheEvent> eventsOf(Story &story) {
  std::vector<kv::CacheEvent> events;
  for (kv::CacheEvent event; story.scheduler->nextCacheEvent(event);)
    events.push_back(event);
  return events;
}

} // namespace

TEST(CacheLevels, WhatIsAboutToBeEvictedIsHitInHostMemory) {
  for (uint32_t demoteBelow : {0u, 12u}) {
    Story story(twoLevels(demoteBelow));
    serve(story, 'A', 1, 32); // 8 pages
    serve(story, 'B', 2, 44); // 12 pages: 12 are free where A's tail has been copied, else 8
    serve(story, 'C', 1, 33);
    ServingMetrics all = story.scheduler->allMetrics();
    EXPECT_EQ(all.pagesDemoted > 0, demoteBelow > 0);
    EXPECT_EQ(all.hostPageHits > 0, demoteBelow > 0);
    if (demoteBelow)
      EXPECT_EQ(hitTokens(story), 32u) << "all of A's pages are somewhere";
    else
      EXPECT_LT(hitTokens(story), 32u);
    story.expectEmpty();
  }
}

TEST(CacheLevels, NothingIsCopiedWhereComputingIsCheaper) {
  StoryOptions options = twoLevels(12);
  options.pageSize = 1; // 32 us for the latency and a page against 20 us
  options.pages = 64;
  options.hostPages = 64;
  options.demoteBelow = 60;
  kv::GroupSpec group = llama8b(1).groups[0].group;
  group.dataBytes *= 8;
  options.groups = {group};
  Story story(options);
  serve(story, 'A', 1, 32);
  EXPECT_EQ(story.scheduler->allMetrics().pagesDemoted, 0u);
}

// No more is copied than lacks, however long the copies take.
TEST(CacheLevels, PagesOnTheirWayCountAsFree) {
  Story story(twoLevels(12));
  story.mover.finished = 0;
  serve(story, 'A', 1, 32);
  EXPECT_EQ(story.scheduler->allMetrics().pagesDemoted, 4u) << "8 of 16 pages were free";
  serve(story, 'B', 2, 8);
  EXPECT_EQ(story.scheduler->allMetrics().pagesDemoted, 6u);
  story.mover.finished = UINT64_MAX;
  EXPECT_EQ(story.launch(), "");
  story.expectEmpty();
  EXPECT_EQ(story.scheduler->metrics().pagesUsed, 0u) << "the gauges know that copies have ended";
}

// Host memory that is full of cached pages still takes those of a preempted request.
TEST(CacheLevels, PreemptedRequestsComeBeforeCachedPages) {
  StoryOptions options = twoLevels(16);
  options.hostPages = 8;
  options.scheduler.growthTokens = 0;
  Story story(options);
  serve(story, 'A', 1, 32);
  EXPECT_EQ(story.scheduler->allMetrics().pagesDemoted, 8u);
  for (char name : {'B', 'C'}) {
    Ask ask;
    ask.prompt = 28;
    ask.answer = 20;
    story.add(name, ask);
  }
  for (int i = 0; i < 1000 && !story.scheduler->idle(); ++i)
    story.step(); // none is launched while copies to host memory are all that goes on
  EXPECT_GT(story.scheduler->metrics().swapOuts, 0u);
  story.expectAnswer('B', 20);
  story.expectAnswer('C', 20);
  EXPECT_EQ(story.launch(), "") << "the last copies end";
  story.expectEmpty();
}

TEST(CacheLevels, AResetForgetsAllAndWhatRunsGoesOn) {
  StoryOptions options;
  options.scheduler.policy = PolicyKind::LongestPrefix;
  options.scheduler.maxRunning = 1;
  Story story(options);
  serve(story, 'A', 1, 32);
  Ask running, waiting, other;
  running.prompt = 33;
  running.answer = 6;
  running.stream = 1;
  waiting.prompt = 33;
  waiting.stream = 1;
  other.prompt = 8;
  story.add('B', running);
  story.step();
  EXPECT_EQ(story.at('B').computed, 33u);
  EXPECT_EQ(hitTokens(story), 32u);
  story.add('C', waiting);
  story.step(); // C's match is looked up
  EXPECT_EQ(story.at('C').matched, 32u);
  story.scheduler->resetCache();
  EXPECT_EQ(story.at('C').matched, 0u);
  story.add('D', other);
  story.runOut();
  story.expectAnswer('B', 6);
  story.expectAnswer('C', 4);
  EXPECT_EQ(hitTokens(story), 32u) << "neither A's pages nor B's are hit any more";
  serve(story, 'E', 1, 33);
  EXPECT_EQ(hitTokens(story), 64u) << "C's are: it was computed after the reset";
}

TEST(CacheLevels, ARouterHearsOfBlocksAndOfReset) {
  StoryOptions options = twoLevels(0);
  options.cacheEvents = 4;
  Story story(options);
  serve(story, 'A', 1, 9); // two whole blocks
  std::vector<kv::CacheEvent> events = eventsOf(story);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, kv::CacheEvent::Kind::Stored);
  EXPECT_EQ(events[1].parent, events[0].block);
  EXPECT_EQ(story.scheduler->lostCacheEvents(), 0u);
  serve(story, 'B', 2, 32); // eight: four are lost
  EXPECT_EQ(story.scheduler->lostCacheEvents(), 4u);
  EXPECT_EQ(eventsOf(story).size(), 4u);
  story.scheduler->resetCache();
  events = eventsOf(story);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, kv::CacheEvent::Kind::Cleared);
}

TEST(CacheLevels, MetricsNameThePagesOfEachGroup) {
  StoryOptions options = twoLevels(12);
  kv::GroupSpec full = llama8b(4).groups[0].group, window = full;
  window.kind = kv::GroupKind::Window;
  window.window = 8;
  options.groups = {window, full};
  options.pages = 32;
  Story story(options);
  serve(story, 'A', 1, 40);
  ServingMetrics all = story.scheduler->allMetrics();
  ASSERT_EQ(all.groupPages.size(), 2u);
  EXPECT_EQ(all.groupPages[1].used, 0u);
  EXPECT_GT(all.groupPages[1].cached, 0u);
  std::string text = prometheusText(all), json = jsonText(all);
  EXPECT_NE(text.find(fmt::format("llmopt:kv_group_pages_cached{{group=\"1\"}} {}\n",
                                  all.groupPages[1].cached)),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("llmopt:prefix_cache_demoted_pages_total "), std::string::npos);
  EXPECT_NE(json.find("\"kv_group_pages\""), std::string::npos);
}

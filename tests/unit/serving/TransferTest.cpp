// Prompts whose KV another machine writes: reserved, pinned, and then complete, failed, aborted,
// or known to have ended too late.
#include "tests/unit/serving/Story.h"

#include <algorithm>

using namespace llmopt::test;

namespace {

/// A connector whose peer the test plays.
struct FakeConnector : KvConnector {
  std::vector<IncomingKv> started;
  std::vector<kv::TransferId> cancelled;
  bool takes = true;
  bool start(const IncomingKv &incoming) override {
    if (takes)
      started.push_back(incoming);
    return takes;
  }
  void cancel(kv::TransferId transfer) override { cancelled.push_back(transfer); }
};

StoryOptions withConnector(FakeConnector &connector) {
  StoryOptions options;
  options.scheduler.connector = &connector;
  return options;
}

uint32_t pinned(const Story &story) { return story.blocks->pool().count(kv::PageState::Pinned); }

} // namespace

TEST(Transfers, TheRequestRunsBehindWhatThePeerWrote) {
  FakeConnector peer;
  Story story(withConnector(peer));
  story.add('A', {.prompt = 22, .answer = 3, .remote = 20});
  story.add('B', {.prompt = 8, .answer = 2});
  EXPECT_EQ(story.step(), "B:0+8!") << "A waits for its pages and keeps nobody";
  ASSERT_EQ(peer.started.size(), 1u);
  EXPECT_EQ(peer.started[0].request, story.handles['A']);
  EXPECT_EQ(peer.started[0].first, 0u);
  EXPECT_EQ(peer.started[0].count, 20u);
  EXPECT_EQ(story.blocks->pageAt(peer.started[0].sequence, 0, 4), 4);
  EXPECT_EQ(pinned(story), 5u);
  EXPECT_EQ(story.step(), "B:8+1!");
  EXPECT_EQ(story.step(), "") << "only the peer is at work";
  EXPECT_FALSE(story.scheduler->idle());
  EXPECT_TRUE(story.scheduler->transferDone(peer.started[0].transfer, 20));
  EXPECT_EQ(pinned(story), 0u);
  EXPECT_EQ(story.step(), "A:20+2!");
  story.add('C', {.prompt = 22, .answer = 1, .stream = 'A'});
  EXPECT_EQ(story.step(), "A:22+1! C:20+2!") << "what came is in the cache";
  story.runOut();
  story.expectAnswer('A', 3);
  EXPECT_EQ(story.scheduler->metrics().tokensTransferred, 20u);
  EXPECT_FALSE(story.scheduler->transferDone(peer.started[0].transfer, 20)) << "a late note";
  EXPECT_TRUE(peer.cancelled.empty());
  story.expectEmpty();
}

TEST(Transfers, OnlyWhatIsNotCachedHereIsAskedFor) {
  FakeConnector peer;
  Story story(withConnector(peer));
  story.add('A', {.prompt = 12, .answer = 1, .stream = 5});
  story.step();
  story.add('B', {.prompt = 30, .answer = 1, .stream = 5, .remote = 30});
  EXPECT_EQ(story.step(), "");
  EXPECT_EQ(peer.started.at(0).first, 12u);
  EXPECT_EQ(peer.started.at(0).count, 17u) << "the last token is run here";
  story.add('C', {.prompt = 12, .answer = 1, .stream = 5, .remote = 11});
  EXPECT_EQ(story.step(), "C:11+1!") << "all of it is cached";
  EXPECT_TRUE(story.scheduler->transferDone(peer.started[0].transfer, 10));
  EXPECT_EQ(story.step(), "B:22+8!") << "what did not come is computed";
  story.expectAnswer('B', 1);
  story.expectEmpty();
}

TEST(Transfers, WhatFailsOrIsNotTakenIsComputed) {
  FakeConnector peer;
  Story story(withConnector(peer));
  story.add('A', {.prompt = 20, .answer = 2, .remote = 16});
  EXPECT_EQ(story.step(), "");
  EXPECT_TRUE(story.scheduler->transferFailed(peer.started[0].transfer));
  EXPECT_EQ(story.step(), "A:0+20!");
  peer.takes = false;
  story.add('B', {.prompt = 20, .answer = 2, .remote = 16});
  EXPECT_EQ(story.step(), "A:20+1! B:0+20!");
  story.runOut();
  story.expectAnswer('A', 2);
  story.expectAnswer('B', 2);
  story.expectEmpty();
}

// A45 (sgl-project/sglang p#32564, p#35049): A owns pages 14 to 44, the write is in flight, A is
// aborted, B wants 32 pages: it waits until the write is known to have ended.
TEST(Transfers, AbortedPagesServeOthersOnlyWhenTheWriteHasEnded) {
  FakeConnector peer;
  StoryOptions options = withConnector(peer);
  options.pageSize = 1;
  options.pages = 48;
  options.cache = false;
  options.scheduler.growthTokens = 1;
  Story story(options);
  story.add('F', {.prompt = 14, .answer = 2}); // pages 0 to 13
  EXPECT_EQ(story.step(), "F:0+14!");
  story.add('A', {.prompt = 32, .answer = 1, .remote = 31});
  EXPECT_EQ(story.step(), "F:14+1!"); // and page 45, F's last
  kv::SequenceId a = peer.started.at(0).sequence;
  EXPECT_EQ(pinned(story), 31u);
  kv::PageId first = story.blocks->pageAt(a, 0, 0), last = story.blocks->pageAt(a, 0, 30);
  EXPECT_EQ(last - first, 30);
  story.now = 2'500'000'000;
  story.abort('A');
  EXPECT_EQ(peer.cancelled.size(), 1u);
  EXPECT_EQ(pinned(story), 31u);
  story.add('B', {.prompt = 32, .answer = 1});
  EXPECT_EQ(story.step(), "") << "B waits";
  story.add('C', {.prompt = 8, .answer = 1});
  EXPECT_EQ(story.step(), "C:0+8!") << "and keeps nobody out who fits";
  story.now = 6'000'000'000;
  EXPECT_TRUE(story.scheduler->transferDone(peer.started[0].transfer, 31)) << "too late";
  EXPECT_EQ(pinned(story), 0u);
  EXPECT_EQ(story.step(), "B:0+32!");
  story.expectAnswer('B', 1);
  story.expectEmpty();
}

// vllm-project/vllm#46283: the note comes when the slot of the transfer serves another one.
TEST(Transfers, ALateNoteDoesNothingToTheNext) {
  FakeConnector peer;
  Story story(withConnector(peer));
  story.add('A', {.prompt = 20, .answer = 1, .remote = 16});
  story.step();
  EXPECT_TRUE(story.scheduler->transferFailed(peer.started[0].transfer));
  story.runOut();
  story.add('B', {.prompt = 20, .answer = 1, .remote = 16});
  story.step();
  ASSERT_EQ(peer.started.size(), 2u);
  EXPECT_EQ(peer.started[1].transfer.slot, peer.started[0].transfer.slot);
  EXPECT_FALSE(story.scheduler->transferDone(peer.started[0].transfer, 16));
  EXPECT_EQ(story.step(), "") << "B's has not ended";
  EXPECT_TRUE(story.scheduler->transferDone(peer.started[1].transfer, 16));
  EXPECT_EQ(story.step(), "B:16+4!");
  story.expectEmpty();
}

// Preempted or lost with its device while it receives: begun anew without the peer.
TEST(Transfers, APreemptedReceiverComputesItsPrompt) {
  for (bool lost : {false, true}) {
    FakeConnector peer;
    StoryOptions options = withConnector(peer);
    options.hostPages = 64;
    Story story(options);
    story.add('A', {.prompt = 20, .answer = 3, .remote = 16});
    story.step();
    if (lost) {
      ASSERT_TRUE(story.device->reopen().ok());
      story.scheduler->deviceLost(true, story.now);
    } else {
      EXPECT_TRUE(story.scheduler->preempt(story.handles['A']));
      EXPECT_EQ(pinned(story), 4u);
    }
    EXPECT_EQ(peer.cancelled.size(), 1u);
    story.checkAll();
    EXPECT_EQ(story.step(), "A:0+20!");
    EXPECT_EQ(story.scheduler->transferDone(peer.started[0].transfer, 16), !lost);
    story.runOut();
    story.expectAnswer('A', 3);
    story.expectEmpty();
  }
}

TEST(Transfers, SamplesShareWhatThePeerWrote) {
  FakeConnector peer;
  Story story(withConnector(peer));
  story.addSamples("AB", {.prompt = 20, .answer = 2, .remote = 20});
  EXPECT_EQ(story.step(), "");
  EXPECT_EQ(peer.started.at(0).count, 19u);
  EXPECT_TRUE(story.scheduler->transferDone(peer.started[0].transfer, 19));
  EXPECT_EQ(story.step(), "A:19+1! B:19+1!");
  story.runOut();
  story.expectAnswer('B', 2);
  story.expectEmpty();
}

// Stories about host memory and about other machines. The copies here run when the
// story says so.
#include "Story.h"

using namespace kvtest;

namespace {

struct Copies : PageMover {
  struct Call {
    std::vector<PageMove> moves;
    StepId after;
    bool out;
  };
  EventId copyOut(std::span<const PageMove> moves, StepId after) override {
    calls.push_back({{moves.begin(), moves.end()}, after, true});
    return calls.size();
  }
  EventId copyIn(std::span<const PageMove> moves, StepId after) override {
    calls.push_back({{moves.begin(), moves.end()}, after, false});
    return calls.size();
  }
  bool done(EventId event) override { return event <= finished; }

  std::vector<Call> calls;
  EventId finished = 0;
};

ManagerOptions withHost(uint64_t pages, uint64_t hostPages) {
  ManagerOptions options = optionsFor({fullGroup(4, 1 << 20)}, pages);
  options.hostBytes = ManagerOptions::bytesForPages(options.groups, hostPages);
  return options;
}

} // namespace

TEST(KvSwap, PagesAreFreeWhenTheCopyIsDone) {
  Copies copies;
  Story story(withHost(4, 8), &copies);
  SequenceId a = story.run(text(0, 15)); // 0 1 2 3
  EXPECT_EQ(story.kv->swapOut(a), Reply::Ok);
  EXPECT_EQ(story.kv->swapOut(a), Reply::SwappedOut) << "twice changes nothing";
  ASSERT_EQ(copies.calls.size(), 1u);
  EXPECT_EQ(copies.calls[0].after, 1u) << "behind the last step that wrote";
  EXPECT_EQ(story.count(PageState::Swapping), 4u);
  std::vector<Token> other = text(100, 4);
  Prompt prompt = story.prompt(other);
  story.open();
  EXPECT_EQ(story.kv->admit(prompt, 4).reply, Reply::TemporaryLack);
  EXPECT_EQ(story.kv->reserve(a, 1), Reply::SwappedOut);
  copies.finished = 1;
  story.kv->poll();
  EXPECT_EQ(story.count(PageState::Swapping), 0u);
  EXPECT_EQ(story.count(PageState::Cached), 3u) << "whole pages can still be hit";
  EXPECT_EQ(story.kv->admit(prompt, 4).reply, Reply::Ok);
}

TEST(KvSwap, BackInWithTheStepWaiting) {
  Copies copies;
  Story story(withHost(4, 8), &copies);
  SequenceId a = story.run(text(0, 15));
  story.kv->swapOut(a);
  EXPECT_EQ(story.kv->swapIn(a), Reply::TemporaryLack) << "the copy out is under way";
  copies.finished = 1;
  story.kv->poll();
  SequenceId b = story.run(text(100, 8)); // the free page, then the tail of a
  EXPECT_EQ(story.pagesOf(b), (Pages{3, 2}));
  story.kv->finish(b);
  EXPECT_EQ(story.kv->swapIn(a), Reply::Ok);
  // Pages 0 and 1 are still in the cache; only the others are copied.
  ASSERT_EQ(copies.calls.size(), 2u);
  EXPECT_FALSE(copies.calls[1].out);
  EXPECT_EQ(copies.calls[1].moves.size(), 2u);
  EXPECT_EQ(story.pagesOf(a)[0], 0);
  EXPECT_EQ(story.pagesOf(a)[1], 1);
  story.open();
  EXPECT_EQ(story.kv->reserve(a, 1), Reply::Ok);
  const StepTables &tables = story.kv->closeStep();
  ASSERT_EQ(tables.waits.size(), 1u);
  EXPECT_EQ(tables.waits[0], 2u);
  ASSERT_FALSE(tables.deltas.empty());
  EXPECT_TRUE(tables.deltas[0].clear);
  story.kv->commit(a, tables.step, text(15, 1));
  copies.finished = 2;
  story.kv->completeStep(tables.step);
  story.kv->finish(a);
  EXPECT_EQ(story.count(PageState::Free) + story.count(PageState::Cached), 4u);
}

TEST(KvSwap, AbortInEveryPhaseGivesAllBack) {
  for (int phase = 0; phase < 4; ++phase) {
    SCOPED_TRACE(phase);
    Copies copies;
    Story story(withHost(4, 4), &copies);
    SequenceId a = story.run(text(0, 15));
    story.kv->swapOut(a);
    if (phase >= 1) {
      copies.finished = 1;
      story.kv->poll();
    }
    if (phase >= 2)
      EXPECT_EQ(story.kv->swapIn(a), Reply::Ok);
    if (phase == 3) {
      copies.finished = 2;
      story.kv->poll();
    }
    EXPECT_EQ(story.kv->finish(a), Reply::Ok);
    EXPECT_TRUE(story.kv->check().ok()) << story.kv->check().toString();
    copies.finished = 9;
    story.kv->poll();
    EXPECT_EQ(story.count(PageState::Free) + story.count(PageState::Cached), 4u);
    // Host memory is empty again: it takes four pages.
    SequenceId b = story.run(text(100, 15));
    EXPECT_EQ(story.kv->swapOut(b), Reply::Ok);
  }
}

TEST(KvSwap, WithoutRoomItSaysSo) {
  Copies copies;
  Story story(withHost(4, 3), &copies);
  SequenceId a = story.run(text(0, 16));
  EXPECT_EQ(story.kv->swapOut(a), Reply::NoHostRoom);
  Story none({fullGroup(4)}, 4);
  SequenceId b = none.run(text(0, 4));
  EXPECT_EQ(none.kv->swapOut(b), Reply::NoHostRoom);
}

// ---- The second level

TEST(KvHostLevel, DemotedPagesAreHitAndLoaded) {
  Copies copies;
  ManagerOptions options = withHost(4, 8);
  options.demoteBelow = 4;
  Story story(options, &copies);
  story.remember(text(0, 12));
  EXPECT_EQ(story.kv->demote(8), 3u);
  EXPECT_EQ(story.count(PageState::Swapping), 3u);
  copies.finished = 1;
  story.kv->poll();
  EXPECT_EQ(story.count(PageState::Free), 4u);
  std::vector<Token> tokens = text(0, 13);
  Prompt prompt = story.prompt(tokens);
  story.open();
  Admission admission = story.kv->admit(prompt, 13);
  EXPECT_EQ(admission.hit.tokens, 12u);
  EXPECT_EQ(admission.hit.hostPages, 3u);
  ASSERT_EQ(copies.calls.size(), 2u);
  EXPECT_EQ(copies.calls[1].moves.size(), 3u);
  const StepTables &tables = story.kv->closeStep();
  EXPECT_EQ(tables.waits.size(), 1u);
  story.kv->commit(admission.sequence, tables.step, text(12, 1));
  copies.finished = 2;
  story.kv->completeStep(tables.step);
  story.kv->finish(admission.sequence);
  Prompt again = story.prompt(tokens);
  EXPECT_EQ(story.kv->match(again).tokens, 12u);
  EXPECT_EQ(story.kv->match(again).hostPages, 0u) << "they are in device memory now";
}

TEST(KvHostLevel, ACopyDearerThanComputingIsNotMade) {
  Copies copies;
  ManagerOptions options = withHost(4, 8);
  options.demoteBelow = 4;
  options.costs.bytesPerSecond = 1e9; // 1 ms a page against 80 us for its tokens
  Story story(options, &copies);
  story.remember(text(0, 12));
  EXPECT_EQ(story.kv->demote(8), 0u);
  EXPECT_TRUE(copies.calls.empty());
}

TEST(KvHostLevel, CostsAreWhatTheModelSays) {
  CostModel costs{.secondsPerToken = 1e-3,
                  .secondsPerTokenAndKey = 1e-6,
                  .bytesPerSecond = 1e9,
                  .copyLatency = 1e-4};
  EXPECT_DOUBLE_EQ(costs.recompute(10, 100), 10e-3 + 1e-6 * (1000 + 55));
  EXPECT_DOUBLE_EQ(costs.copy(1000000), 1e-4 + 1e-3);
}

// ---- Transfer

// sgl-project/sglang p#32564: A owns pages while a peer writes; A is aborted; B gets
// none of them before the write is known to have ended.
TEST(KvTransfer, AbortedPagesStayPinnedUntilTheWriteHasEnded) {
  Story story({fullGroup(1)}, 48);
  SequenceId filler = story.run(text(900, 14)); // pages 0 to 13
  SequenceId a = story.run(text(0, 1));
  TransferId transfer;
  EXPECT_EQ(story.kv->reserveTransfer(a, 30, transfer), Reply::Ok); // 15 to 44
  EXPECT_EQ(story.pagesOf(a).front(), 14);
  EXPECT_EQ(story.pagesOf(a).back(), 44);
  EXPECT_EQ(story.kv->startTransfer(transfer), Reply::Ok);
  EXPECT_EQ(story.count(PageState::Pinned), 30u);
  story.kv->finish(a);
  EXPECT_EQ(story.count(PageState::Pinned), 30u);
  story.kv->finish(filler);
  std::vector<Token> wants = text(500, 32);
  Prompt prompt = story.prompt(wants);
  story.open();
  EXPECT_EQ(story.kv->admit(prompt, 32).reply, Reply::TemporaryLack);
  EXPECT_EQ(story.kv->endTransfer(transfer), Reply::Ok);
  EXPECT_EQ(story.kv->admit(prompt, 32).reply, Reply::Ok);
}

TEST(KvTransfer, WhatArrivedIsCommittedAndHit) {
  Story story({fullGroup(4)}, 16);
  SequenceId a = story.run(text(0, 2));
  TransferId transfer;
  EXPECT_EQ(story.kv->reserveTransfer(a, 10, transfer), Reply::Ok);
  story.open();
  EXPECT_EQ(story.kv->reserve(a, 1), Reply::InFlight) << "its content is not there";
  story.kv->cancelStep();
  EXPECT_EQ(story.kv->completeTransfer(transfer, text(2, 10)), Reply::WrongRow) << "not started";
  EXPECT_EQ(story.kv->startTransfer(transfer), Reply::Ok);
  EXPECT_EQ(story.hits(text(0, 13)), 0u) << "nothing is hit before all is there";
  EXPECT_EQ(story.kv->completeTransfer(transfer, text(2, 10)), Reply::Ok);
  EXPECT_EQ(story.kv->committedTokens(a), 12u);
  EXPECT_EQ(story.hits(text(0, 13)), 12u);
  EXPECT_EQ(story.extend(a, {12}), Reply::Ok);
}

TEST(KvTransfer, AdmitsAPromptWhoseTokensAPeerWrites) {
  Story story({fullGroup(4)}, 16);
  story.remember(text(0, 8));
  std::vector<Token> wants = text(0, 21);
  Prompt prompt = story.prompt(wants);
  TransferId transfer;
  EXPECT_EQ(story.kv->admitTransfer(prompt, 8, transfer).reply, Reply::InvalidArgument)
      << "as much is cached";
  EXPECT_EQ(story.kv->admitTransfer(prompt, 22, transfer).reply, Reply::InvalidArgument);
  Admission admission = story.kv->admitTransfer(prompt, 20, transfer);
  ASSERT_EQ(admission.reply, Reply::Ok);
  EXPECT_EQ(admission.hit.tokens, 8u);
  EXPECT_EQ(admission.newTokens, 12u);
  EXPECT_EQ(story.count(PageState::Used), 5u);
  story.open();
  EXPECT_EQ(story.kv->reserve(admission.sequence, 1), Reply::InFlight);
  story.kv->cancelStep();
  EXPECT_EQ(story.kv->startTransfer(transfer), Reply::Ok);
  EXPECT_EQ(story.count(PageState::Pinned), 3u);
  EXPECT_EQ(story.kv->completeTransfer(transfer, text(8, 12)), Reply::Ok);
  EXPECT_EQ(story.kv->committedTokens(admission.sequence), 20u);
  EXPECT_EQ(story.hits(text(0, 21)), 20u);
  EXPECT_EQ(story.extend(admission.sequence, {20}), Reply::Ok);
  EXPECT_EQ(story.kv->finish(admission.sequence), Reply::Ok);
}

// Not all of it arrives, or nothing: the sequence goes on with what there is.
TEST(KvTransfer, AnAdmissionThatThePeerFailsIsASequenceLikeOthers) {
  Story story({fullGroup(4)}, 16);
  std::vector<Token> wants = text(0, 21);
  Prompt prompt = story.prompt(wants);
  TransferId transfer;
  Admission admission = story.kv->admitTransfer(prompt, 20, transfer);
  ASSERT_EQ(admission.reply, Reply::Ok);
  EXPECT_EQ(story.kv->abortTransfer(transfer), Reply::Ok);
  EXPECT_EQ(story.kv->boundTokens(admission.sequence), 0u);
  EXPECT_EQ(story.extend(admission.sequence, wants), Reply::Ok);
  EXPECT_EQ(story.kv->finish(admission.sequence), Reply::Ok);
  std::vector<Token> others = text(100, 80);
  Prompt large = story.prompt(others);
  EXPECT_EQ(story.kv->admitTransfer(large, 70, transfer).reply, Reply::PermanentLack);
  EXPECT_EQ(story.count(PageState::Used), 0u);
}

// vllm-project/vllm#46283: the note never comes; reclaimed by hand; then it comes.
TEST(KvTransfer, ALateNoteAfterReclaimIsIgnored) {
  Story story({fullGroup(4)}, 8);
  SequenceId a = story.run(text(0, 4));
  TransferId old, next;
  story.kv->reserveTransfer(a, 8, old);
  story.kv->startTransfer(old);
  story.kv->abortTransfer(old);
  EXPECT_EQ(story.kv->boundTokens(a), 12u) << "its slots are not usable yet";
  EXPECT_EQ(story.kv->endTransfer(old), Reply::Ok);
  EXPECT_EQ(story.kv->boundTokens(a), 4u);
  story.kv->reserveTransfer(a, 4, next);
  story.kv->startTransfer(next);
  EXPECT_EQ(story.kv->completeTransfer(old, text(4, 8)), Reply::UnknownSequence);
  EXPECT_EQ(story.kv->endTransfer(old), Reply::UnknownSequence);
  EXPECT_EQ(story.count(PageState::Pinned), 1u);
  EXPECT_EQ(story.kv->completeTransfer(next, text(4, 4)), Reply::Ok);
}

TEST(KvTransfer, SentPagesOutliveTheirSequence) {
  Story story({fullGroup(4)}, 4);
  SequenceId a = story.run(text(0, 8));
  TransferId transfer;
  EXPECT_EQ(story.kv->sendTransfer(a, transfer), Reply::Ok);
  EXPECT_EQ(story.kv->startTransfer(transfer), Reply::Ok);
  story.kv->finish(a);
  EXPECT_EQ(story.count(PageState::Pinned), 2u);
  EXPECT_EQ(story.kv->completeTransfer(transfer, {}), Reply::Ok);
  EXPECT_EQ(story.count(PageState::Cached), 2u);
}

// vllm-project/vllm#45388: two holders whose prefix is being loaded, too little for
// either: one can be stripped, the other runs, then the first.
TEST(KvTransfer, AHolderOfLoadingPagesCanBeStripped) {
  Copies copies;
  ManagerOptions options = withHost(10, 16);
  options.demoteBelow = 10;
  options.cache.partialHits = false;
  Story story(options, &copies);
  story.remember(text(0, 16));
  story.remember(text(100, 16));
  story.kv->demote(8);
  copies.finished = 1;
  story.kv->poll();
  std::vector<Token> one = text(0, 38), two = text(100, 30);
  Prompt a = story.prompt(one), b = story.prompt(two);
  story.open();
  Admission first = story.kv->admit(a, 1), second = story.kv->admit(b, 1);
  EXPECT_EQ(first.hit.hostPages + second.hit.hostPages, 8u);
  StepId step = story.close();
  story.kv->commit(first.sequence, step, text(16, 1));
  story.kv->commit(second.sequence, step, text(116, 1));
  story.kv->completeStep(step);
  story.open();
  EXPECT_EQ(story.kv->reserve(first.sequence, 21), Reply::TemporaryLack);
  EXPECT_EQ(story.kv->reserve(second.sequence, 13), Reply::TemporaryLack);
  EXPECT_EQ(story.kv->finish(first.sequence), Reply::Ok); // while its pages are loading
  copies.finished = copies.calls.size();
  story.kv->poll();
  EXPECT_EQ(story.kv->reserve(second.sequence, 13), Reply::Ok);
}

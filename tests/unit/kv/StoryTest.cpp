// Stories about pages: who gets which, when they come back. Page ids are exact: a fresh
// pool gives 0, 1, 2, ...; freed pages are given again, the last freed first.
#include "Story.h"

using namespace kvtest;

TEST(KvStory, PagesAreGivenInOrderAndComeBack) {
  Story story({fullGroup(4)}, 8);
  SequenceId a = story.run(text(0, 10));
  EXPECT_EQ(story.pagesOf(a), (Pages{0, 1, 2}));
  SequenceId b = story.run(text(100, 3));
  EXPECT_EQ(story.pagesOf(b), (Pages{3}));
  story.kv->finish(a);
  // Two whole pages stay cached, the third held two tokens only.
  EXPECT_EQ(story.count(PageState::Cached), 2u);
  EXPECT_EQ(story.count(PageState::Free), 5u);
  SequenceId c = story.run(text(200, 5));
  EXPECT_EQ(story.pagesOf(c), (Pages{2, 4})) << "the freed page first, then unused ones";
}

// vllm-project/vllm#39734: too large for the pool is told from too large for now.
TEST(KvStory, PermanentLackIsToldFromTemporary) {
  Story story({fullGroup(16)}, 8);
  EXPECT_EQ(story.kv->fits(200, 1), Reply::PermanentLack);
  EXPECT_EQ(story.kv->fits(128, 1), Reply::Ok);
  EXPECT_EQ(story.kv->fits(5000, 1), Reply::TooLong);
  std::vector<Token> large = text(0, 200), small = text(1000, 10);
  Prompt one = story.prompt(large);
  story.open();
  EXPECT_EQ(story.kv->admit(one, 200).reply, Reply::PermanentLack);
  EXPECT_EQ(story.kv->admit(one, 128).reply, Reply::Ok) << "a chunk of it would fit";
  Prompt two = story.prompt(small);
  EXPECT_EQ(story.kv->admit(two, 10).reply, Reply::TemporaryLack);
}

TEST(KvStory, GrowthBeyondThePoolIsPermanent) {
  Story story({fullGroup(4)}, 3);
  SequenceId a = story.run(text(0, 12));
  EXPECT_EQ(story.extend(a, {1}), Reply::PermanentLack);
  EXPECT_EQ(story.kv->committedTokens(a), 12u);
  EXPECT_EQ(story.kv->boundTokens(a), 12u);
}

// vllm-project/vllm#11562: 4 new blocks, 5 free, 2 of them its own hits: refused, and
// nothing has moved.
TEST(KvStory, ARefusedAdmissionLeavesNoPin) {
  Story story({fullGroup(4)}, 8);
  story.remember(text(0, 8));              // pages 0 and 1 cached
  SequenceId b = story.run(text(100, 12)); // pages 2, 3, 4; three free are left
  std::vector<Token> wants = text(0, 24);  // hits 0 and 1, needs four more
  Prompt prompt = story.prompt(wants);
  for (int attempt = 0; attempt < 3; ++attempt) {
    story.open();
    Admission refused = story.kv->admit(prompt, 24);
    EXPECT_EQ(refused.reply, Reply::TemporaryLack);
    EXPECT_EQ(story.count(PageState::Cached), 2u);
    EXPECT_EQ(story.count(PageState::Free), 3u);
    EXPECT_EQ(story.kv->cancelStep(), Reply::Ok);
  }
  story.kv->finish(b);
  story.open();
  Admission admitted = story.kv->admit(prompt, 24);
  EXPECT_EQ(admitted.reply, Reply::Ok);
  EXPECT_EQ(admitted.hit.tokens, 8u);
  EXPECT_EQ(story.pagesOf(admitted.sequence)[0], 0);
  EXPECT_EQ(story.pagesOf(admitted.sequence)[1], 1);
}

// vllm-project/vllm#37076: a hit page is pinned by the look-up that found it; pages
// taken later in the same call are others.
TEST(KvStory, AHitIsPinnedBeforePagesAreTaken) {
  Story story({fullGroup(4)}, 4);
  story.remember(text(0, 8));
  story.remember(text(100, 8));
  std::vector<Token> both = text(0, 16);
  SequenceId a = story.run(both);
  EXPECT_EQ(story.last.hit.tokens, 8u);
  EXPECT_EQ(story.pagesOf(a), (Pages{0, 1, 3, 2})) << "the other prompt's tail went first";
}

// sgl-project/sglang#4602: pages are counted, not tokens.
TEST(KvStory, OneTokenMoreMayNeedAPageForEachRow) {
  Story story({fullGroup(4)}, 4);
  SequenceId a = story.run(text(0, 4)), b = story.run(text(100, 4)), c = story.run(text(200, 3));
  story.open();
  EXPECT_EQ(story.kv->reserve(a, 1), Reply::Ok);
  EXPECT_EQ(story.kv->reserve(b, 1), Reply::TemporaryLack);
  EXPECT_EQ(story.kv->reserve(c, 1), Reply::Ok) << "its page has a slot left";
}

// sgl-project/sglang p#36926: an abort at every boundary of a prefill in four chunks
// gives every page back, once.
TEST(KvStory, AbortAtEveryBoundaryLeaksNothing) {
  for (int boundary = 0; boundary <= 8; ++boundary) {
    SCOPED_TRACE(boundary);
    ManagerOptions options = optionsFor({fullGroup(4)}, 16);
    options.maxStepsInFlight = 2;
    Story story(options);
    std::vector<Token> tokens = text(0, 32);
    Prompt prompt = story.prompt(tokens);
    int at = 0;
    SequenceId id;
    bool aborted = false;
    auto boundaryHere = [&] {
      if (at++ == boundary && !aborted) {
        EXPECT_EQ(story.kv->finish(id), Reply::Ok);
        aborted = true;
      }
    };
    for (uint32_t chunk = 0; chunk < 4; ++chunk) {
      story.open();
      if (chunk == 0)
        id = story.kv->admit(prompt, 8).sequence;
      else if (!aborted)
        EXPECT_EQ(story.kv->reserve(id, 8), Reply::Ok);
      boundaryHere(); // before the launch
      StepId step = story.close();
      boundaryHere(); // after it
      Reply reply = story.kv->commit(id, step, std::span(tokens).subspan(chunk * 8, 8));
      EXPECT_EQ(reply, aborted ? Reply::UnknownSequence : Reply::Ok);
      EXPECT_EQ(story.kv->completeStep(step), Reply::Ok);
    }
    boundaryHere();
    EXPECT_EQ(story.count(PageState::Free) + story.count(PageState::Cached), 16u);
    // Only what was computed can be hit.
    EXPECT_EQ(story.hits(text(0, 33)), static_cast<uint32_t>(boundary / 2 * 8));
  }
}

TEST(KvStory, PagesOfAnUnfinishedStepArePending) {
  ManagerOptions options = optionsFor({fullGroup(4)}, 4);
  options.maxStepsInFlight = 2;
  Story story(options);
  SequenceId a = story.run(text(0, 16));
  story.open();
  EXPECT_EQ(story.kv->reserve(a, 1), Reply::PermanentLack);
  story.kv->cancelStep();
  story.kv->finish(a);
  SequenceId b = story.run(text(100, 6)); // evicts two pages of a
  story.open();
  EXPECT_EQ(story.kv->reserve(b, 2), Reply::Ok);
  StepId step = story.close();
  story.kv->finish(b);
  EXPECT_EQ(story.count(PageState::Pending), 2u);
  // Pending pages are a temporary lack, never a permanent one.
  std::vector<Token> whole = text(300, 16);
  Prompt prompt = story.prompt(whole);
  story.open();
  EXPECT_EQ(story.kv->admit(prompt, 16).reply, Reply::TemporaryLack);
  EXPECT_EQ(story.kv->completeStep(step), Reply::Ok);
  EXPECT_EQ(story.count(PageState::Pending), 0u);
  EXPECT_EQ(story.kv->admit(prompt, 16).reply, Reply::Ok);
}

// vllm-project/vllm p#16370: slots for the input token and the drafts are there before
// the row runs, at every position of a page; rejected ones cost no page twice.
TEST(KvStory, DraftSlotsAreReservedAtEveryPositionOfAPage) {
  for (uint32_t drafts : {2u, 4u})
    for (uint32_t length = 1; length <= 16; ++length) {
      ManagerOptions options = optionsFor({fullGroup(16)}, 4);
      options.maxDraft = drafts;
      Story story(options);
      SequenceId a = story.run(text(0, length));
      story.open();
      EXPECT_EQ(story.kv->reserve(a, 1 + drafts), Reply::Ok);
      EXPECT_EQ(story.kv->tableSize(a, 0), (length + 1 + drafts + 15) / 16);
      Pages before = story.pagesOf(a);
      StepId step = story.close();
      EXPECT_EQ(story.kv->commit(a, step, text(50, 1)), Reply::Ok);
      EXPECT_EQ(story.kv->boundTokens(a), length + 1);
      EXPECT_EQ(story.pagesOf(a), before) << "a rollback unnames nothing";
      EXPECT_EQ(story.kv->completeStep(step), Reply::Ok);
    }
}

// Behind an unfinished verify row the length is unknown: the bound counts.
TEST(KvStory, ABoundBehindUnfinishedRowsCountsAllDrafts) {
  ManagerOptions options = optionsFor({fullGroup(4)}, 8);
  options.maxStepsInFlight = 4;
  options.maxDraft = 3;
  Story story(options);
  SequenceId a = story.run(text(0, 4));
  StepId first = 0;
  for (int row = 0; row < 3; ++row) {
    story.open();
    EXPECT_EQ(story.kv->reserve(a, 4), Reply::Ok);
    StepId step = story.close();
    first = first ? first : step;
  }
  EXPECT_EQ(story.kv->boundTokens(a), 16u);
  EXPECT_EQ(story.kv->tableSize(a, 0), 4u);
  story.kv->commit(a, first, text(9, 2));
  EXPECT_EQ(story.kv->committedTokens(a), 6u);
  EXPECT_EQ(story.kv->boundTokens(a), 14u);
  EXPECT_EQ(story.kv->completeStep(first + 1), Reply::WrongStep) << "in order only";
}

// Nobody reserves or commits a steady sequence's rows: lengths follow from the steps.
TEST(KvStory, ASteadySequenceGoesOnByTheSteps) {
  ManagerOptions options = optionsFor({fullGroup(4)}, 8);
  options.maxStepsInFlight = 2;
  Story story(options);
  SequenceId a = story.run(text(0, 5)), b = story.run(text(100, 4)), c = story.run(text(200, 5));
  EXPECT_EQ(story.kv->beginSteady(a), 0u) << "it has no row that goes on";
  story.open();
  for (SequenceId id : {a, b})
    EXPECT_EQ(story.kv->reserve(id, 1), Reply::Ok);
  EXPECT_EQ(story.kv->reserve(c, 2), Reply::Ok);
  EXPECT_EQ(story.kv->beginSteady(a), 0u) << "the step is not closed";
  StepId step = story.close();
  EXPECT_EQ(story.kv->beginSteady(a), 7u) << "the token at 7 ends a block";
  EXPECT_EQ(story.kv->beginSteady(c), 0u) << "its row has two tokens";
  EXPECT_EQ(story.kv->boundTokens(a), 6u);
  story.open();
  EXPECT_EQ(story.kv->reserve(a, 1), Reply::UnknownSequence);
  EXPECT_EQ(story.kv->finish(a), Reply::UnknownSequence);
  story.close();
  EXPECT_EQ(story.kv->unfinishedRows(a), 2u);
  EXPECT_EQ(story.kv->boundTokens(a), 7u);
  EXPECT_EQ(story.kv->beginSteady(b), 0u) << "it has no row in the second step";
  EXPECT_EQ(story.kv->commit(b, step, text(104, 1)), Reply::Ok);
  EXPECT_EQ(story.kv->completeStep(step), Reply::Ok);
  EXPECT_EQ(story.kv->committedTokens(a), 6u);
  EXPECT_TRUE(story.kv->check().ok()) << story.kv->check().toString();
  story.kv->endSteady(a, text(5, 1));
  EXPECT_EQ(story.kv->committedTokens(a), 6u);
  EXPECT_EQ(story.kv->boundTokens(a), 7u);
  EXPECT_EQ(story.kv->commit(a, step + 1, text(6, 1)), Reply::Ok);
  EXPECT_EQ(story.kv->completeStep(step + 1), Reply::Ok);
  EXPECT_EQ(story.extend(a, text(7, 1)), Reply::Ok);
  EXPECT_EQ(story.kv->finish(a), Reply::Ok);
  EXPECT_EQ(story.hits(text(0, 9)), 8u) << "its tokens were forgotten";
}

// Where it needs a page, ends a block or lets a page go the manager is told, and it stays steady.
TEST(KvStory, ASteadySequenceGoesOnThroughBlocks) {
  Story story(optionsFor({windowGroup(4, 8), fullGroup(4)}, 12));
  BlockManager &kv = *story.kv;
  SequenceId a = story.run(text(0, 5));
  story.open();
  EXPECT_EQ(kv.reserve(a, 1), Reply::Ok);
  StepId step = story.close();
  EXPECT_EQ(kv.beginSteady(a), 7u);
  std::vector<Token> untold = text(5, 1);
  EXPECT_EQ(kv.completeStep(step), Reply::Ok);
  for (uint32_t base = 6; base < 30; ++base) {
    story.open();
    EXPECT_EQ(base >= kv.steadyCapacity(a.slot), base % 4 == 0) << base;
    if (base == 9) {
      kv.keepSteady(a.slot, untold);
      untold.clear();
    }
    EXPECT_EQ(kv.demandOfSteady(a.slot).take[1], base % 4 == 0) << base;
    EXPECT_EQ(kv.reserveSteady(a.slot), Reply::Ok);
    step = story.close();
    untold.push_back(base);
    if (base >= kv.steadyPlainEnd(a.slot)) {
      kv.commitSteady(a.slot, untold);
      untold.clear();
    }
    EXPECT_EQ(kv.completeStep(step), Reply::Ok);
    EXPECT_EQ(kv.committedTokens(a), base + 1);
    EXPECT_TRUE(kv.check().ok()) << kv.check().toString();
    uint32_t seen = base + 1 < 8 ? 0 : (base + 1 - 7) / 4;
    EXPECT_EQ(kv.pageAt(a, 0, seen) == kNoPage, false) << base;
    if (seen)
      EXPECT_EQ(kv.pageAt(a, 0, seen - 1), kNoPage) << "no query sees it after " << base;
  }
  kv.endSteady(a, untold);
  EXPECT_EQ(kv.reserveSteady(a.slot), Reply::WrongStep);
  EXPECT_EQ(kv.finish(a), Reply::Ok);
  EXPECT_EQ(story.hits(text(0, 40)), 28u);
}

// Several get their pages at once: those that one by one would have been theirs; all of them, or
// none.
TEST(KvStory, SteadySequencesGetTheirPagesTogether) {
  std::vector<std::vector<PageId>> given;
  for (bool together : {false, true}) {
    Story story(optionsFor({fullGroup(4)}, 7));
    BlockManager &kv = *story.kv;
    story.remember(text(500, 9)); // two of three pages are cached
    std::vector<SequenceId> both = {story.run(text(0, 6)), story.run(text(100, 6))};
    std::vector<uint32_t> slots = {both[0].slot, both[1].slot};
    story.open();
    for (SequenceId each : both)
      EXPECT_EQ(kv.reserve(each, 1), Reply::Ok);
    StepId step = story.close();
    std::vector<std::vector<Token>> untold = {text(6, 1), text(106, 1)};
    for (SequenceId each : both)
      EXPECT_EQ(kv.beginSteady(each), 7u);
    EXPECT_FALSE(kv.reserveSteady(slots)) << "no step is open";
    EXPECT_EQ(kv.completeStep(step), Reply::Ok);
    for (uint32_t base = 7; base < 12; ++base) {
      story.open();
      if (together && base == 8) {
        EXPECT_TRUE(kv.reserveSteady(slots));
      } else {
        EXPECT_FALSE(base != 8 && kv.reserveSteady(slots)) << "they need no page";
        for (uint32_t slot : slots)
          EXPECT_EQ(kv.reserveSteady(slot), Reply::Ok);
      }
      step = story.close();
      for (size_t i = 0; i < both.size(); ++i) {
        untold[i].push_back(Token(i) * 100 + base);
        if (base >= kv.steadyPlainEnd(slots[i])) {
          kv.commitSteady(slots[i], untold[i]);
          untold[i].clear();
        }
      }
      EXPECT_EQ(kv.completeStep(step), Reply::Ok);
      EXPECT_TRUE(kv.check().ok()) << kv.check().toString();
    }
    given.push_back(story.pagesOf(both[0]));
    given.push_back(story.pagesOf(both[1]));
    story.open();
    EXPECT_FALSE(kv.reserveSteady(slots)) << "one page is left";
    EXPECT_EQ(kv.reserveSteady(slots[0]), Reply::Ok);
    EXPECT_EQ(kv.reserveSteady(slots[1]), Reply::TemporaryLack);
    EXPECT_EQ(kv.cancelStep(), Reply::Ok);
    for (size_t i = 0; i < both.size(); ++i) {
      kv.endSteady(both[i], untold[i]);
      EXPECT_EQ(kv.finish(both[i]), Reply::Ok);
    }
  }
  EXPECT_EQ(given[0], given[2]);
  EXPECT_EQ(given[1], given[3]);
  EXPECT_EQ(given[0].size(), 3u);
}

// More nodes are free at once than the newest ones that are kept apart: none is lost, and none used
// twice.
TEST(KvStory, NodesOfManyPagesAreFreedAndUsedAgain) {
  ManagerOptions options = optionsFor({fullGroup(4)}, 2000);
  options.maxTokens = 8000;
  Story story(options);
  for (Token round = 0; round < 4; ++round) {
    std::vector<Token> tokens = text(round * 100'000, 7601);
    story.remember(tokens);
    EXPECT_EQ(story.hits(tokens), 7600u) << round;
    EXPECT_EQ(story.kv->cache().liveNodes(), 1901u + (round ? 99 : 0)) << round;
    EXPECT_TRUE(story.kv->check().ok()) << story.kv->check().toString();
  }
}

// vllm-project/vllm#1584: prompt of 2.5 blocks, four children, one token each.
TEST(KvStory, ForksShareWholePagesAndCopyTheLast) {
  Story story({fullGroup(4)}, 16);
  SequenceId a = story.run(text(0, 10)); // 0 1 2
  SequenceId child[4];
  for (SequenceId &id : child)
    EXPECT_EQ(story.kv->fork(a, id), Reply::Ok);
  story.kv->finish(a);
  story.open();
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(story.kv->reserve(child[i], 1), Reply::Ok);
  const StepTables &tables = story.kv->closeStep();
  // Three copies; the last one may write where it is.
  ASSERT_EQ(tables.copies.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(tables.copies[i].from, 2);
    EXPECT_EQ(tables.copies[i].to, 3 + i);
    EXPECT_EQ(story.pagesOf(child[i]), (Pages{0, 1, 3 + i}));
  }
  EXPECT_EQ(story.pagesOf(child[3]), (Pages{0, 1, 2}));
  EXPECT_EQ(story.kv->fork(child[0], a), Reply::InFlight) << "its row is unfinished";
  for (Token i = 0; i < 4; ++i)
    EXPECT_EQ(story.kv->commit(child[i], tables.step, text(50 + i, 1)), Reply::Ok);
  story.kv->completeStep(tables.step);
  story.kv->finish(child[1]);
  story.kv->finish(child[2]);
  EXPECT_EQ(story.kv->finish(child[2]), Reply::UnknownSequence) << "no double free";
  SequenceId again;
  EXPECT_EQ(story.kv->fork(child[3], again), Reply::Ok);
  EXPECT_TRUE(story.kv->check().ok());
  EXPECT_EQ(story.pagesOf(again), (Pages{0, 1, 2}));
}

// The source of a copy may be everybody's last use of that page; it stays until the
// step with the copy has run.
TEST(KvStory, TheSourceOfACopyOutlivesItsOwners) {
  ManagerOptions options = optionsFor({fullGroup(4)}, 3);
  Story story(options);
  SequenceId a = story.run(text(0, 6)), child; // 0 1
  EXPECT_EQ(story.kv->fork(a, child), Reply::Ok);
  story.open();
  EXPECT_EQ(story.kv->reserve(child, 1), Reply::Ok); // copy 1 to 2
  story.kv->finish(a);
  EXPECT_EQ(story.count(PageState::Pending), 1u);
  std::vector<Token> other = text(50, 2);
  Prompt prompt = story.prompt(other);
  EXPECT_EQ(story.kv->admit(prompt, 2).reply, Reply::TemporaryLack);
  StepId step = story.close();
  story.kv->commit(child, step, text(7, 1));
  story.kv->completeStep(step);
  EXPECT_EQ(story.count(PageState::Free), 1u);
}

TEST(KvStory, ADecodeThatStaysInItsPageTellsTheDeviceNothing) {
  Story story({fullGroup(4)}, 8);
  SequenceId a = story.run(text(0, 5));
  story.open();
  EXPECT_EQ(story.kv->reserve(a, 1), Reply::Ok);
  const StepTables &tables = story.kv->closeStep();
  EXPECT_TRUE(tables.deltas.empty());
  EXPECT_EQ(tables.version, tables.baseVersion + 1);
}

TEST(KvStory, ASnapshotIsWhatTheDeltasMade) {
  Story story({fullGroup(4), windowGroup(4, 5)}, 16);
  SequenceId a = story.run(text(0, 18)), b = story.run(text(40, 3));
  story.open();
  story.kv->reserve(a, 4);
  StepId step = story.close();
  std::vector<TableDelta> deltas;
  std::vector<PageId> pages;
  uint64_t version = 0;
  story.kv->snapshot(deltas, pages, version);
  ASSERT_EQ(deltas.size(), 4u);
  for (const TableDelta &delta : deltas) {
    EXPECT_TRUE(delta.clear);
    SequenceId id = delta.tableSlot == a.slot ? a : b;
    Pages wanted = story.pagesOf(id, delta.group);
    EXPECT_EQ(Pages(pages.begin() + delta.first, pages.begin() + delta.first + delta.count),
              wanted);
  }
  EXPECT_EQ(version, 3u);
  story.kv->commit(a, step, text(60, 4));
  story.kv->completeStep(step);
}

TEST(KvStory, WhatIsSetAsideIsKeptForTheWaiter) {
  Story story({fullGroup(4)}, 8);
  std::vector<Token> large = text(0, 24), small = text(100, 12);
  Prompt waiter = story.prompt(large), other = story.prompt(small);
  Demand demand = story.kv->demandOf(waiter, 24);
  EXPECT_EQ(demand.take[0], 6u);
  story.kv->setAside(demand);
  story.open();
  EXPECT_EQ(story.kv->admit(other, 12).reply, Reply::TemporaryLack);
  EXPECT_EQ(story.kv->admit(other, 8).reply, Reply::Ok);
  story.kv->setAside({});
  EXPECT_EQ(story.kv->admit(waiter, 24).reply, Reply::Ok);
}

TEST(KvStory, TheLossOfTheDeviceDropsAllAndServesAgain) {
  Story story({fullGroup(4)}, 8);
  std::vector<Token> tokens = text(0, 12);
  SequenceId a = story.run(tokens);
  story.open();
  story.kv->reserve(a, 1);
  StepId step = story.close();
  Prompt waiting = story.prompt(tokens);
  EXPECT_EQ(story.kv->match(waiting).tokens, 11u);
  story.kv->dropAll();
  EXPECT_EQ(story.kv->commit(a, step, text(0, 1)), Reply::UnknownSequence);
  EXPECT_EQ(story.kv->match(waiting).tokens, 0u) << "what the prompt remembers is outdated";
  EXPECT_EQ(story.count(PageState::Free), 8u);
  SequenceId again = story.run(tokens);
  EXPECT_EQ(story.pagesOf(again), (Pages{0, 1, 2}));
}

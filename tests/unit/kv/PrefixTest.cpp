// Stories about the prefix cache: what is found, what is never found.
#include "Story.h"
#include "runtime/kv/BlockHash.h"

#include <algorithm>
#include <array>
#include <random>

using namespace kvtest;

// vllm-project/vllm p#11186: prompts wholly in the cache still run one token; the third
// request hits every whole block; shared pages are not written.
TEST(KvPrefix, AWhollyCachedPromptRunsItsLastToken) {
  for (uint32_t length : {16u, 32u, 33u}) {
    SCOPED_TRACE(length);
    Story story({fullGroup(16)}, 16);
    std::vector<Token> tokens = text(0, length), longer = text(0, length + 16);
    story.remember(tokens);
    SequenceId again = story.run(tokens);
    EXPECT_EQ(story.last.hit.tokens, length == 33 ? 32u : length - 1);
    EXPECT_EQ(story.last.hit.partialTokens, length == 33 ? 0u : 15u);
    EXPECT_EQ(story.last.newTokens, 1u);
    // The page that it writes its last token into is its own.
    PageId lastPage = story.pagesOf(again).back();
    EXPECT_EQ(lastPage, static_cast<PageId>(length / 16));
    SequenceId third = story.run(longer);
    EXPECT_EQ(story.last.hit.tokens, length / 16 * 16);
    for (uint32_t i = 0; i < length / 16; ++i)
      EXPECT_EQ(story.pagesOf(third)[i], static_cast<PageId>(i));
  }
}

TEST(KvPrefix, ACopyOfTheCachedTailIsToldToTheDevice) {
  Story story({fullGroup(4)}, 8);
  story.remember(text(0, 8)); // 0 1
  std::vector<Token> same = text(0, 8);
  Prompt prompt = story.prompt(same);
  story.open();
  Admission admission = story.kv->admit(prompt, 8);
  EXPECT_EQ(story.count(PageState::Pending), 1u) << "the source stays until the copy has run";
  const StepTables &tables = story.kv->closeStep();
  ASSERT_EQ(tables.copies.size(), 1u);
  EXPECT_EQ(tables.copies[0].from, 1);
  EXPECT_EQ(tables.copies[0].to, 2);
  EXPECT_EQ(story.pagesOf(admission.sequence), (Pages{0, 2}));
  story.kv->commit(admission.sequence, tables.step, std::span(same).subspan(7));
  story.kv->completeStep(tables.step);
  EXPECT_EQ(story.count(PageState::Pending), 0u);
  EXPECT_EQ(story.count(PageState::Cached), 1u);
}

// A prompt that fills the pool and is wholly cached must not wait for ever for the one
// page more that a copy needs.
TEST(KvPrefix, AWhollyCachedPromptOfThePoolsSizeRuns) {
  Story story({fullGroup(4)}, 3);
  story.remember(text(0, 12));
  SequenceId a = story.run(text(0, 12));
  EXPECT_EQ(story.last.reply, Reply::Ok);
  EXPECT_EQ(story.last.hit.tokens, 8u);
  EXPECT_EQ(story.pagesOf(a), (Pages{0, 1, 2}));
}

TEST(KvPrefix, APageIsUsedUpToTheTokenThatDiffers) {
  Story story({fullGroup(8)}, 8);
  story.remember(text(0, 16));
  std::vector<Token> other = text(0, 13);
  other.resize(20, 99);
  story.run(other);
  EXPECT_EQ(story.last.hit.tokens, 13u);
  EXPECT_EQ(story.last.hit.partialTokens, 5u);
  ManagerOptions options = optionsFor({fullGroup(8)}, 8);
  options.cache.partialHits = false;
  Story whole(options);
  whole.remember(text(0, 16));
  whole.run(other);
  EXPECT_EQ(whole.last.hit.tokens, 8u);
}

// vllm-project/vllm p#12415: of a verify row only what was accepted is ever hit.
TEST(KvPrefix, RejectedDraftsAreNeverHit) {
  for (uint32_t accepted = 0; accepted <= 3; ++accepted) {
    SCOPED_TRACE(accepted);
    ManagerOptions options = optionsFor({fullGroup(4)}, 16);
    options.maxDraft = 3;
    options.cache.partialHits = false;
    Story story(options);
    std::vector<Token> tokens = text(0, 6), drafts = {6, 70, 80, 90};
    SequenceId a = story.run(tokens);
    story.open();
    story.kv->reserve(a, 4);
    StepId step = story.close();
    // Nothing is hashed before the result is known.
    tokens.insert(tokens.end(), drafts.begin(), drafts.end());
    tokens.push_back(1);
    EXPECT_EQ(story.hits(tokens), 4u);
    std::vector<Token> valid(drafts.begin(), drafts.begin() + 1 + accepted);
    story.kv->commit(a, step, valid);
    story.kv->completeStep(step);
    EXPECT_EQ(story.hits(tokens), accepted >= 1 ? 8u : 4u);
    // Those that came instead of the rejected ones are hit.
    std::vector<Token> truth = text(0, 6);
    truth.insert(truth.end(), valid.begin(), valid.end());
    std::vector<Token> more = text(500, 12 - static_cast<uint32_t>(truth.size()));
    story.extend(a, more);
    truth.insert(truth.end(), more.begin(), more.end());
    truth.push_back(2);
    EXPECT_EQ(story.hits(truth), 12u);
  }
}

// Tokens of a tree's branch that the next row still has to move are hashed with that
// row; a sequence that ends before never shows them.
TEST(KvPrefix, AnAcceptedBranchIsHitOnceItIsInPlace) {
  ManagerOptions options = optionsFor({fullGroup(4)}, 16);
  options.maxDraft = 3;
  options.cache.partialHits = false;
  Story story(options);
  SequenceId a = story.run(text(0, 5)), b;
  story.open();
  story.kv->reserve(a, 4);
  StepId step = story.close();
  EXPECT_EQ(story.kv->commit(a, step, text(5, 3), 2), Reply::Ok);
  story.kv->completeStep(step);
  EXPECT_EQ(story.hits(text(0, 9)), 4u);
  EXPECT_EQ(story.kv->fork(a, b), Reply::InFlight);
  story.extend(a, {8});
  EXPECT_EQ(story.hits(text(0, 9)), 8u);
}

// The same for a row of whole blocks that begins at a block's border.
TEST(KvPrefix, BlocksOfABranchThatIsNotInPlaceWait) {
  ManagerOptions options = optionsFor({fullGroup(4)}, 16);
  options.maxDraft = 8;
  options.cache.partialHits = false;
  Story story(options);
  SequenceId a = story.run(text(0, 8));
  story.open();
  story.kv->reserve(a, 9);
  StepId step = story.close();
  EXPECT_EQ(story.kv->commit(a, step, text(8, 8), 2), Reply::Ok);
  story.kv->completeStep(step);
  EXPECT_EQ(story.hits(text(0, 17)), 12u);
  story.extend(a, {16});
  EXPECT_EQ(story.hits(text(0, 17)), 16u);
}

// vllm-project/vllm p#29387: two prompts of one step share nothing that it computes.
TEST(KvPrefix, NothingIsHitInTheStepThatComputesIt) {
  Story story({fullGroup(1)}, 16);
  std::vector<Token> one = {1, 2, 3, 4}, two = {1, 2, 3, 5};
  Prompt first = story.prompt(one), second = story.prompt(two);
  story.open();
  Admission a = story.kv->admit(first, 4), b = story.kv->admit(second, 4);
  EXPECT_EQ(b.hit.tokens, 0u);
  EXPECT_EQ(story.pagesOf(b.sequence), (Pages{4, 5, 6, 7}));
  StepId step = story.close();
  story.kv->commit(a.sequence, step, one);
  story.kv->commit(b.sequence, step, two);
  story.kv->completeStep(step);
  EXPECT_EQ(story.pagesOf(b.sequence), (Pages{4, 5, 6, 7})) << "tables are not rewritten";
  EXPECT_EQ(story.hits({1, 2, 3, 5, 6}), 4u);
}

// Two sequences computed the same block; the page that was first is evicted while the
// second sequence still runs: at its end its own page takes the place.
TEST(KvPrefix, ADuplicateTakesTheEvictedPagesPlace) {
  ManagerOptions options = optionsFor({fullGroup(4)}, 6);
  options.cache.partialHits = false;
  Story story(options);
  std::vector<Token> same = text(0, 8);
  Prompt first = story.prompt(same), second = story.prompt(same);
  story.open();
  SequenceId a = story.kv->admit(first, 8).sequence, b = story.kv->admit(second, 8).sequence;
  StepId step = story.close();
  story.kv->commit(a, step, same);
  story.kv->commit(b, step, same);
  story.kv->completeStep(step);
  story.kv->finish(a);
  EXPECT_EQ(story.count(PageState::Cached), 2u);
  SequenceId other = story.run(text(100, 14)); // two free pages, then both of a
  EXPECT_EQ(story.hits(text(0, 9)), 0u);
  EXPECT_TRUE(story.kv->check().ok());
  story.kv->finish(b);
  EXPECT_EQ(story.hits(text(0, 9)), 8u);
  story.kv->finish(other);
}

// A prompt that asks again hears of pages that have gone since, though their blocks' nodes live on.
TEST(KvPrefix, ARememberedAnswerEndsWithItsPages) {
  ManagerOptions options = optionsFor({fullGroup(4)}, 6);
  options.cache.partialHits = false;
  Story story(options);
  std::vector<Token> same = text(0, 8), more = text(0, 9), others = text(100, 14);
  Prompt first = story.prompt(same), second = story.prompt(same), asked = story.prompt(more);
  EXPECT_EQ(story.kv->match(asked).tokens, 0u);
  story.open();
  SequenceId a = story.kv->admit(first, 8).sequence, b = story.kv->admit(second, 8).sequence;
  StepId step = story.close();
  EXPECT_EQ(story.kv->match(asked).tokens, 0u);
  story.kv->commit(a, step, same);
  story.kv->commit(b, step, same);
  story.kv->completeStep(step);
  story.kv->finish(a);
  EXPECT_EQ(story.kv->match(asked).tokens, 8u) << "it came since";
  Prompt other = story.prompt(others);
  other.neverInsert = true; // nothing but the loss changes the cache
  story.open();
  EXPECT_EQ(story.kv->admit(other, 14).reply, Reply::Ok); // two free pages, then both of a
  EXPECT_EQ(story.kv->match(asked).tokens, 0u);
  story.kv->cancelStep();
  story.kv->finish(b);
}

// huggingface/text-generation-inference p#2489: dropped before its first step ran.
TEST(KvPrefix, WhatNeverRanIsNeverHit) {
  Story story({fullGroup(16)}, 8);
  std::vector<Token> tokens = text(0, 64);
  Prompt prompt = story.prompt(tokens);
  story.open();
  SequenceId a = story.kv->admit(prompt, 64).sequence;
  story.kv->finish(a);
  EXPECT_EQ(story.hits(tokens), 0u);
  EXPECT_EQ(story.count(PageState::Free), 8u);
  StepId step = story.close();
  story.kv->completeStep(step);
  // And an evicted page is not hit either, nor what it became.
  story.remember(tokens);
  story.remember(text(1000, 128));
  EXPECT_EQ(story.hits(tokens), 0u);
}

// vllm-project/vllm p#12621, #3264: everything that changes a page's values is in the key.
TEST(KvPrefix, EachFieldOfTheKeyKeepsPromptsApart) {
  std::vector<CacheKey> keys(10);
  keys[1].model = "other";
  keys[2].weightVersion = 1;
  keys[3].adapter = "a";
  keys[4].adapterVersion = 1;
  keys[5].salt = "tenant";
  keys[6].rotary = "yarn";
  keys[7].cacheFormat = "fp8";
  keys[8].scales = "layer scales 2";
  keys[9].adapterNumber = 1;
  Story story({fullGroup(4)}, 64);
  std::vector<Token> tokens = text(0, 9);
  for (size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(story.hits(tokens, keys[i]), 0u) << i;
    story.remember(tokens, keys[i]);
    EXPECT_EQ(story.hits(tokens, keys[i]), 8u) << i;
  }
  // Fields do not run into each other.
  CacheKey left, right;
  left.adapter = "xy";
  right.adapter = "x";
  right.salt = "y";
  story.remember(tokens, left);
  EXPECT_EQ(story.hits(tokens, right), 0u);
}

TEST(KvPrefix, MediaOfAPageArePartOfIt) {
  Story story({fullGroup(4)}, 64);
  std::vector<Token> tokens(13, 7); // the same stand-in token everywhere
  std::vector<MediaSpan> cat = {{2, 6, "cat"}}, dog = {{2, 6, "dog"}}, later = {{3, 7, "cat"}};
  auto hits = [&](const std::vector<MediaSpan> &media) {
    Prompt prompt(tokens, {}, 4, media);
    return story.kv->match(prompt).tokens;
  };
  Prompt prompt(tokens, {}, 4, cat);
  story.open();
  SequenceId a = story.kv->admit(prompt, 13).sequence;
  StepId step = story.close();
  story.kv->commit(a, step, tokens);
  story.kv->completeStep(step);
  EXPECT_EQ(hits(cat), 12u);
  EXPECT_EQ(hits(dog), 0u);
  EXPECT_EQ(hits(later), 0u);
  EXPECT_EQ(hits({}), 0u);
}

TEST(KvPrefix, PromptLogProbabilitiesBypassHitsAndInsert) {
  Story story({fullGroup(4)}, 16);
  std::vector<Token> tokens = text(0, 9);
  story.remember(tokens);
  Prompt prompt = story.prompt(tokens);
  prompt.bypassHits = true;
  story.open();
  EXPECT_EQ(story.kv->admit(prompt, 9).hit.tokens, 0u);
}

// sgl-project/sglang#36855: a long prompt that must not be inserted, in chunks.
TEST(KvPrefix, ANeverInsertedPromptRunsInChunksAndLeavesNothing) {
  Story story({fullGroup(4)}, 8);
  std::vector<Token> tokens = text(0, 30);
  Prompt prompt = story.prompt(tokens);
  prompt.neverInsert = true;
  story.open();
  SequenceId a = story.kv->admit(prompt, 10).sequence;
  StepId step = story.close();
  story.kv->commit(a, step, std::span(tokens).first(10));
  story.kv->completeStep(step);
  for (uint32_t at = 10; at < 30; at += 10)
    EXPECT_EQ(story.extend(a, text(at, 10)), Reply::Ok);
  EXPECT_EQ(story.kv->tableSize(a, 0), 8u);
  story.kv->finish(a);
  EXPECT_EQ(story.count(PageState::Free), 8u);
}

// vllm-project/vllm p#18957: what a waiting prompt remembers is looked at again.
TEST(KvPrefix, ARememberedHitThatWasEvictedIsNotUsed) {
  Story story({fullGroup(4)}, 8);
  story.remember(text(0, 16));
  std::vector<Token> tokens = text(0, 20);
  Prompt waiting = story.prompt(tokens);
  EXPECT_EQ(story.kv->match(waiting).tokens, 16u);
  SequenceId other = story.run(text(100, 24)); // four free pages, two of the prefix
  EXPECT_EQ(story.kv->match(waiting).tokens, 8u);
  story.kv->finish(other);
  story.remember(text(0, 12));
  EXPECT_EQ(story.kv->match(waiting).tokens, 12u);
}

TEST(KvPrefix, AForcedEightBitHashServesNothingWrong) {
  for (uint32_t bits : {1u, 4u, 8u}) {
    ManagerOptions options = optionsFor({fullGroup(4)}, 512);
    options.cache.hashBits = bits;
    options.cache.partialHits = false;
    Story story(options);
    uint32_t found = 0;
    for (Token i = 0; i < 400; ++i) {
      std::vector<Token> tokens = text(i * 1000, 5);
      EXPECT_EQ(story.hits(tokens), 0u) << "never seen before";
      story.remember(tokens);
      uint32_t hit = story.hits(tokens);
      EXPECT_TRUE(hit == 0 || hit == 4);
      found += hit > 0;
    }
    EXPECT_GT(found, 10u);
  }
}

// Whatever the tokens are, a look-up passes at most kMaxChain nodes a block: what does
// not fit in a bucket is not inserted.
TEST(KvPrefix, TenThousandCollisionsKeepBucketsShort) {
  ManagerOptions options = optionsFor({fullGroup(4)}, 20000);
  options.cache.hashBits = 1;
  options.cache.partialHits = false;
  Story story(options);
  for (Token i = 0; i < 10000; ++i)
    story.remember(text(i * 10, 5));
  EXPECT_LE(story.kv->cache().liveNodes(), 2 * PrefixCache::kMaxChain + 1);
  for (Token i = 0; i < 100; ++i)
    EXPECT_EQ(story.hits(text(1000000 + i * 10, 5)), 0u);
}

// An only child is found by its parent alone, and by its address as soon as it has siblings, in
// whatever order they go.
TEST(KvPrefix, AnOnlyChildIsFoundBesideLaterOnes) {
  for (uint32_t bits : {64u, 1u}) {
    ManagerOptions options = optionsFor({fullGroup(4)}, 12);
    options.cache.hashBits = bits;
    options.cache.partialHits = false;
    Story story(options);
    story.remember(text(0, 9));
    EXPECT_EQ(story.hits(text(0, 9)), 8u);
    EXPECT_EQ(story.hits(text(100, 9)), 0u) << "another text behind the same root";
    story.remember(text(100, 9));
    story.remember(text(200, 5));
    for (Token first : {0u, 100u})
      EXPECT_EQ(story.hits(text(first, 9)), 8u);
    EXPECT_EQ(story.hits(text(200, 5)), 4u);
    ASSERT_TRUE(story.kv->check().ok()) << story.kv->check().message();
    story.remember(text(300, 45)); // all others go, one after another
    EXPECT_EQ(story.hits(text(0, 9)), 0u);
    EXPECT_EQ(story.hits(text(300, 45)), 44u);
    EXPECT_EQ(story.hits(text(301, 45)), 0u);
    ASSERT_TRUE(story.kv->check().ok()) << story.kv->check().message();
    story.remember(text(0, 9));
    EXPECT_EQ(story.hits(text(0, 9)), 8u);
  }
}

// Where an only child finds no place in its bucket, it stays, and the next one is not inserted.
TEST(KvPrefix, AnOnlyChildWithoutRoomInItsBucketKeepsOthersOut) {
  ManagerOptions options = optionsFor({fullGroup(4)}, 200);
  options.cache.hashBits = 1;
  options.cache.partialHits = false;
  Story story(options);
  std::vector<Token> first = text(1000, 9), second = first;
  second[4] = 7; // behind the same block
  story.remember(first);
  for (Token i = 0; i < 100; ++i)
    story.remember(text(2000 + i * 10, 5)); // both buckets are full
  story.remember(second);
  EXPECT_EQ(story.hits(first), 8u);
  EXPECT_EQ(story.hits(second), 4u);
  ASSERT_TRUE(story.kv->check().ok()) << story.kv->check().message();
}

// Nor does what was evicted count: a sequence whose blocks take the place of others goes on
// inserting.
TEST(KvPrefix, BlocksThatWereEvictedCloseNoBucket) {
  for (Token seed = 0; seed < 8; ++seed) {
    ManagerOptions options = optionsFor({fullGroup(4)}, 24);
    options.cache.hashBits = 1;
    options.cache.seed = seed;
    options.cache.partialHits = false;
    Story story(options);
    story.remember(text(1000, 85));
    SequenceId a = story.run(text(0, 5));
    for (Token at = 5; at < 57; at += 4)
      story.extend(a, text(at, 4));
    EXPECT_EQ(story.hits(text(0, 57)), 56u) << seed;
    story.kv->finish(a);
  }
}

// GeeeekExplorer/nano-vllm p#210: block 256, prompt 465, hit 256: 209 tokens run.
TEST(KvPrefix, WhatIsRunBeginsBehindTheHit) {
  ManagerOptions options = optionsFor({fullGroup(256)}, 16);
  options.cache.partialHits = false;
  Story story(options);
  story.remember(text(0, 300));
  story.run(text(0, 465));
  EXPECT_EQ(story.last.hit.tokens, 256u);
  EXPECT_EQ(story.last.newTokens, 209u);
}

TEST(KvPrefix, ResetForgetsAndRunningSequencesInsertNothingMore) {
  Story story({fullGroup(4)}, 16);
  SequenceId a = story.run(text(0, 6));
  story.remember(text(100, 8));
  story.kv->resetCache();
  EXPECT_EQ(story.hits(text(0, 6)), 0u);
  EXPECT_EQ(story.hits(text(100, 9)), 0u);
  EXPECT_EQ(story.count(PageState::Cached), 0u);
  story.extend(a, text(6, 8));
  story.kv->finish(a);
  EXPECT_EQ(story.hits(text(0, 14)), 0u) << "computed with the old weights";
  EXPECT_EQ(story.count(PageState::Free), 16u);
}

TEST(KvPrefix, RoutersHearOfStoredAndRemovedBlocks) {
  ManagerOptions options = optionsFor({fullGroup(4)}, 3);
  options.cache.events = 8;
  options.cache.seed = 5;
  Story story(options), twin(options);
  story.remember(text(0, 8));
  twin.remember(text(0, 8));
  CacheEvent first, second, same;
  ASSERT_TRUE(story.kv->popEvent(first) && story.kv->popEvent(second));
  EXPECT_EQ(first.kind, CacheEvent::Kind::Stored);
  EXPECT_EQ(second.parent, first.block);
  ASSERT_TRUE(twin.kv->popEvent(same));
  EXPECT_EQ(same.block, first.block) << "equal on all ranks with the same seed";
  story.remember(text(100, 8)); // one free page, then the tail of the first
  CacheEvent removed;
  ASSERT_TRUE(story.kv->popEvent(removed));
  EXPECT_EQ(removed.kind, CacheEvent::Kind::Removed);
  EXPECT_EQ(removed.block, second.block);
  std::vector<uint64_t> listed;
  story.kv->cache().forEachBlock([&](uint64_t block, uint64_t) { listed.push_back(block); });
  EXPECT_EQ(std::ranges::count(listed, first.block), 1);
  EXPECT_EQ(listed.size(), 3u);
  for (int i = 0; i < 10; ++i)
    story.remember(text(static_cast<Token>(1000 + 100 * i), 4));
  EXPECT_GT(story.kv->lostEvents(), 0u);
  story.kv->resetCache();
  CacheEvent last;
  while (story.kv->popEvent(last))
    ;
  EXPECT_EQ(last.kind, CacheEvent::Kind::Cleared);
}

TEST(KvPrefix, SwitchedOffItKeepsNothing) {
  ManagerOptions options = optionsFor({fullGroup(4)}, 8);
  options.cache.enabled = false;
  Story story(options);
  story.remember(text(0, 16));
  EXPECT_EQ(story.count(PageState::Free), 8u);
  EXPECT_EQ(story.hits(text(0, 16)), 0u);
  EXPECT_EQ(story.kv->cache().bytes(), 0u);
}

// Ranks and routers know blocks by XXH3; the cache works it out in a way of its own.
TEST(KvPrefix, BlocksOfSixteenTokensAreHashedAsXxh3HashesThem) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 1000; ++i) {
    std::array<Token, kCommonBlock> tokens;
    for (Token &token : tokens)
      token = i % 7 ? static_cast<Token>(random()) : 0;
    uint64_t seed = i % 5 ? random() : 0;
    EXPECT_EQ(hashCommonBlock(tokens.data(), blockKeys(seed)),
              XXH3_64bits_withSeed(tokens.data(), sizeof(tokens), seed));
  }
}

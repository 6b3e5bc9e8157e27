// Several layer groups: what each keeps, and how they share one budget of bytes.
#include "Story.h"

using namespace kvtest;

namespace {

/// Runs `length` tokens in rows of one, so that every release happens where it is due.
SequenceId grow(Story &story, uint32_t length) {
  SequenceId id = story.run(text(0, 1));
  for (Token i = 1; i < length; ++i)
    EXPECT_EQ(story.extend(id, {i}), Reply::Ok);
  return id;
}

Pages heldOf(Story &story, SequenceId id, uint32_t group) {
  Pages held = story.pagesOf(id, group);
  for (PageId &page : held)
    page = page == kNoPage ? 0 : 1;
  return held;
}

GroupSpec chunkedGroup(uint32_t pageSize, uint32_t chunk) {
  GroupSpec group = fullGroup(pageSize);
  group.kind = GroupKind::Chunked;
  group.chunk = chunk;
  return group;
}

} // namespace

// Window 5 with pages of 4: the query at 8 sees 4 to 8, so page 0 goes when 8 tokens are
// committed, not one earlier.
TEST(KvGroup, AWindowsPageGoesWithTheLastQueryThatSeesIt) {
  Story story({fullGroup(4), windowGroup(4, 5)}, 32);
  SequenceId a = grow(story, 7);
  EXPECT_EQ(heldOf(story, a, 1), (Pages{1, 1}));
  story.extend(a, {7});
  EXPECT_EQ(heldOf(story, a, 1), (Pages{0, 1}));
  EXPECT_EQ(heldOf(story, a, 0), (Pages{1, 1}));
}

TEST(KvGroup, ASinksPagesStay) {
  Story story({fullGroup(4), windowGroup(4, 4, 5)}, 64);
  SequenceId a = grow(story, 20);
  EXPECT_EQ(heldOf(story, a, 1), (Pages{1, 1, 0, 0, 1}));
}

TEST(KvGroup, AChunksPagesGoWithTheChunk) {
  Story story({fullGroup(4), chunkedGroup(4, 8)}, 64);
  SequenceId a = grow(story, 15);
  EXPECT_EQ(heldOf(story, a, 1), (Pages{0, 0, 1, 1}));
  story.extend(a, {15}); // the next query, at 16, begins a chunk
  EXPECT_EQ(heldOf(story, a, 1), (Pages{0, 0, 0, 0}));
}

// A rejected draft must not have cost the page that the next query sees.
TEST(KvGroup, SpeculativeLengthReleasesNothing) {
  ManagerOptions options = optionsFor({fullGroup(4), windowGroup(4, 4)}, 32);
  options.maxStepsInFlight = 2;
  options.maxDraft = 4;
  Story story(options);
  SequenceId a = story.run(text(0, 6));
  story.open();
  story.kv->reserve(a, 5);
  StepId first = story.close();
  story.open();
  story.kv->reserve(a, 5);
  story.close();
  EXPECT_EQ(story.kv->boundTokens(a), 16u);
  EXPECT_EQ(heldOf(story, a, 1), (Pages{1, 1, 1, 1}));
  story.kv->commit(a, first, text(6, 1)); // 7 committed: the query at 7 sees 4 to 7
  EXPECT_EQ(heldOf(story, a, 1), (Pages{0, 1, 1, 1}));
}

TEST(KvGroup, ReleasedEntriesAreToldToTheDevice) {
  Story story({windowGroup(4, 4)}, 16);
  SequenceId a = grow(story, 7);
  story.open();
  EXPECT_EQ(story.kv->reserve(a, 1), Reply::Ok);
  const StepTables &tables = story.kv->closeStep();
  ASSERT_EQ(tables.deltas.size(), 1u);
  EXPECT_EQ(tables.deltas[0].index, 0u);
  EXPECT_EQ(tables.deltas[0].count, 1u);
  EXPECT_EQ(tables.pages[0], kNoPage);
}

// The boundary needs what the first token that is run again sees: with all 16 tokens
// cached that is the query at 15, which sees 12 to 15 and thus only the last page.
TEST(KvGroup, AHitNeedsTheWindowOfTheTokenThatIsRunAgain) {
  Story story({fullGroup(4), windowGroup(4, 4)}, 32);
  SequenceId a = grow(story, 16);
  story.kv->finish(a);
  EXPECT_EQ(story.hits(text(0, 16)), 15u);
  SequenceId b = story.run(text(0, 16));
  EXPECT_EQ(story.last.hit.tokens, 15u);
  EXPECT_EQ(heldOf(story, b, 1), (Pages{0, 0, 0, 1}));
  EXPECT_EQ(heldOf(story, b, 0), (Pages{1, 1, 1, 1}));
}

// Counted before the cap at n - 1 the page before would seem not to be needed.
TEST(KvGroup, TheWindowIsCountedBehindTheCap) {
  Story story({fullGroup(4), windowGroup(4, 5)}, 32);
  story.remember(text(0, 16)); // in one row: all pages of both groups were held
  EXPECT_EQ(story.hits(text(0, 17)), 16u);
  EXPECT_EQ(story.hits(text(0, 16)), 15u);
  std::vector<Token> tokens = text(0, 16);
  Prompt prompt = story.prompt(tokens);
  story.open();
  SequenceId b = story.kv->admit(prompt, 16).sequence;
  // The query at 15 sees 11 to 15: two pages, where the one at 16 would see one.
  EXPECT_EQ(heldOf(story, b, 1), (Pages{0, 0, 1, 1}));
}

TEST(KvGroup, WhereAWindowsPageIsGoneTheHitEndsBefore) {
  // Both groups out of 12 pages; the window's early pages go first under pressure.
  ManagerOptions options = optionsFor({fullGroup(4), windowGroup(4, 8)}, 12);
  options.cache.partialHits = false;
  Story story(options);
  SequenceId a = grow(story, 17);
  story.kv->finish(a);
  uint32_t before = story.hits(text(0, 18));
  EXPECT_EQ(before, 16u);
  uint32_t shorter = before;
  for (Token i = 1; i < 12 && shorter == before; ++i) {
    story.remember(text(1000 * i, 5));
    shorter = story.hits(text(0, 18));
  }
  EXPECT_LT(shorter, before);
  EXPECT_TRUE(story.kv->check().ok());
}

// All layers with a window (Mistral): early blocks have no page any more and still lead
// to the ones that do.
TEST(KvGroup, WithoutAFullGroupTheWindowAloneDecides) {
  Story story({windowGroup(4, 8)}, 16);
  SequenceId a = grow(story, 33);
  story.kv->finish(a);
  for (Token i = 1; i < 6; ++i) // takes the early pages away
    story.remember(text(1000 * i, 8));
  EXPECT_EQ(story.hits(text(0, 34)), 32u);
}

TEST(KvGroup, PageSizesMayDiffer) {
  GroupSpec latent = fullGroup(2, 32);
  latent.kind = GroupKind::Latent;
  Story story({fullGroup(4, 64), latent}, 16);
  EXPECT_EQ(story.kv->blockSize(), 4u);
  SequenceId a = story.run(text(0, 9));
  EXPECT_EQ(story.kv->tableSize(a, 0), 3u);
  EXPECT_EQ(story.kv->tableSize(a, 1), 5u);
  story.kv->finish(a);
  EXPECT_EQ(story.hits(text(0, 8)), 7u);
  SequenceId b = story.run(text(0, 8));
  EXPECT_EQ(story.pagesOf(b, 1).size(), 4u);
}

// ---- One budget

/// Demand that moves from one group to the other and back reaches 95 % each time.
TEST(KvBudget, DemandThatMovesBetweenGroupsReachesTheBudget) {
  struct Case {
    uint64_t first, second;
  };
  for (Case bytes : {Case{64, 64}, Case{96, 64}, Case{1000, 640}, Case{4097, 4099}, Case{52, 10},
                     Case{640, 64}, Case{9216, 36864}}) {
    SCOPED_TRACE(fmt::format("{} and {} bytes", bytes.first, bytes.second));
    std::vector<GroupSpec> groups = {fullGroup(4, bytes.first), windowGroup(4, 8, 0, bytes.second)};
    uint64_t budget = 1000 * std::max(bytes.first, bytes.second);
    StatusOr<PoolLayout> layout = layOut(groups, budget);
    ASSERT_TRUE(layout.ok());
    Pool pool(*layout, 2);
    for (int phase = 0; phase < 4; ++phase) {
      uint32_t group = phase % 2;
      std::vector<Frame> taken;
      for (Frame f; (f = pool.take(group)) != kNoFrame;)
        taken.push_back(f);
      uint64_t used = taken.size() * groups[group].pageBytes();
      EXPECT_GE(static_cast<double>(used), 0.95 * static_cast<double>(budget)) << "phase " << phase;
      EXPECT_LE(used, budget);
      EXPECT_TRUE(pool.check().ok()) << pool.check().toString();
      for (Frame f : taken)
        pool.dropRef(f, 0);
      EXPECT_TRUE(pool.check().ok()) << pool.check().toString();
    }
  }
}

// The same with the cache on: what the other group left cached makes room.
TEST(KvBudget, CachedPagesOfOneGroupMakeRoomForAnother) {
  for (uint64_t bytes : {64u, 96u}) {
    ManagerOptions options = optionsFor({fullGroup(4, 64), windowGroup(4, 4, 0, bytes)}, 200);
    options.maxTokens = 2000;
    Story story(options);
    // Whole prompts in one row need both groups; afterwards only the full pages are in use.
    SequenceId a = story.run(text(0, 300));
    uint64_t before = story.kv->pool().available(0);
    story.kv->finish(a);
    EXPECT_GT(story.kv->pool().available(0), before);
    // As many decode tokens as fit: the full group then has nearly all bytes.
    SequenceId b = story.run(text(5000, 1));
    uint32_t length = 1;
    while (story.extend(b, {length}) == Reply::Ok)
      ++length;
    uint64_t used = story.kv->tableSize(b, 0) * uint64_t{64};
    EXPECT_GE(static_cast<double>(used), 0.95 * static_cast<double>(options.budgetBytes));
    EXPECT_TRUE(story.kv->check().ok()) << story.kv->check().toString();
  }
}

TEST(KvBudget, PagesOfAllGroupsAreApartInMemory) {
  std::vector<GroupSpec> groups = {fullGroup(4, 96), windowGroup(4, 8, 0, 64)};
  StatusOr<PoolLayout> layout = layOut(groups, 96 * 50);
  ASSERT_TRUE(layout.ok());
  for (Frame f = 0; f < layout->frames(); ++f)
    for (uint32_t g = 0; g < 2; ++g) {
      if (f % layout->framesPerSlab >= layout->pagesPerSlab[g])
        continue;
      PageId page = layout->pageOf(g, f);
      EXPECT_EQ(layout->frameOf(g, page), f);
      uint64_t begin = static_cast<uint64_t>(page) * groups[g].pageBytes();
      uint64_t slab = f / layout->framesPerSlab * layout->slabBytes;
      EXPECT_GE(begin, slab);
      EXPECT_LE(begin + groups[g].pageBytes(), slab + layout->slabBytes);
    }
}

// ---- Refusals

TEST(KvOptions, WrongOnesAreRefusedWithTheReason) {
  auto refusal = [](const ManagerOptions &options) {
    return BlockManager::create(options).status().toString();
  };
  ManagerOptions options = optionsFor({fullGroup(4)}, 8);
  options.groups[0].kind = GroupKind::Recurrent;
  EXPECT_EQ(refusal(options),
            "Unsupported: layer group 0 is of kind recurrent, which has no pages; served are "
            "full, window, chunked and latent groups; keep such state outside the block manager");
  options.groups[0].kind = GroupKind::CrossAttention;
  EXPECT_NE(refusal(options).find("cross-attention"), std::string::npos);
  options = optionsFor({windowGroup(4, 0)}, 8);
  EXPECT_NE(refusal(options).find("window of 0 keys"), std::string::npos);
  options = optionsFor({fullGroup(0)}, 8);
  EXPECT_NE(refusal(options).find("pages of 0 slots"), std::string::npos);
  options = optionsFor({fullGroup(4)}, 0);
  EXPECT_NE(refusal(options).find("no room for a page"), std::string::npos);
  options = optionsFor({fullGroup(4095), fullGroup(4094)}, 8);
  EXPECT_NE(refusal(options).find("least common multiple"), std::string::npos);
  options = optionsFor({fullGroup(4)}, 8);
  options.maxSequences = 0;
  EXPECT_NE(refusal(options).find("allowed are 1 to 32768"), std::string::npos);
  options = optionsFor({}, 8);
  EXPECT_NE(refusal(options).find("0 layer groups"), std::string::npos);
}

// A product that does not fit is no small one: 2^43 pages of 2^21 bytes are not 0 bytes.
TEST(KvOptions, PagesThatOverflowTheBudgetAreRefused) {
  GroupSpec group = fullGroup(4);
  group.dataBytes = uint64_t{1} << 21;
  for (uint64_t pages :
       {uint64_t{1} << 43, (uint64_t{1} << 43) + 100, uint64_t{1} << 60, UINT64_MAX}) {
    ManagerOptions options = optionsFor({group}, 8);
    options.budgetBytes = ManagerOptions::bytesForPages(options.groups, pages);
    EXPECT_EQ(options.budgetBytes, UINT64_MAX) << pages;
    EXPECT_EQ(BlockManager::create(options).status().toString(),
              "ResourceExhausted: a budget of 18446744073709551615 bytes holds 8796093022207 "
              "pages; at most 2147483646 are allowed; give less, or use larger pages");
    EXPECT_EQ(checkPages(pages, "host ").message(),
              std::to_string(pages) + " host pages; 1 to 2147483646 are allowed");
  }
  ManagerOptions options = optionsFor({group}, 8);
  options.groups[0].dataBytes = UINT64_MAX;
  options.groups[0].scaleBytes = 5;
  EXPECT_NE(validate(options).message().find("pages of 18446744073709551615 bytes"),
            std::string::npos);
  EXPECT_EQ(checkPages(0).message(), "0 pages; 1 to 2147483646 are allowed");
  EXPECT_TRUE(checkPages(kMostPages).ok());
}

TEST(KvOptions, EveryReplyHasANameAndASentence) {
  for (int reply = 0; reply <= static_cast<int>(Reply::InvalidArgument); ++reply) {
    EXPECT_NE(toString(static_cast<Reply>(reply)), "Unknown");
    EXPECT_FALSE(describe(static_cast<Reply>(reply)).empty());
  }
}

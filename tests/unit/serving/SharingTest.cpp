// What else than tokens decides who shares pages: the adapter, media, and who wants nothing shared.
#include "tests/unit/serving/Story.h"

using namespace llmopt::test;

// A44 (vllm-project/vllm p#12621, #3264): the same prompt with two adapters. What one computed is
// wrong for the other.
TEST(Sharing, PagesAreSharedWithinAnAdapterOnly) {
  Story story;
  story.add('A', {.prompt = 20, .answer = 2, .adapter = 1, .stream = 5});
  EXPECT_EQ(story.step(), "A:0+20!");
  story.add('B', {.prompt = 20, .answer = 2, .adapter = 2, .stream = 5});
  EXPECT_EQ(story.step(), "A:20+1! B:0+20!") << "B computes all of it";
  story.add('C', {.prompt = 20, .answer = 2, .stream = 5});
  EXPECT_EQ(story.step(), "B:20+1! C:0+20!") << "and so does who has none";
  story.add('D', {.prompt = 20, .answer = 1, .adapter = 1, .stream = 5});
  story.add('E', {.prompt = 20, .answer = 1, .adapter = 2, .stream = 5});
  story.add('F', {.prompt = 20, .answer = 1, .stream = 5});
  EXPECT_EQ(story.step(), "C:20+1! D:19+1! E:19+1! F:19+1!");
  story.expectAnswer('A', 2);
  story.expectAnswer('B', 2);
  story.expectEmpty();
}

// An adapter's id in the caller's key and its number are two things; the number is the request's,
// whatever stands in the key.
TEST(Sharing, TheCallersKeyAndTheNumberOfAnAdapterAreBothCompared) {
  Story story;
  auto add = [&](char name, uint32_t adapter, const char *id, uint32_t inKey) {
    Ask ask{.prompt = 20, .answer = 1, .adapter = adapter, .stream = 5};
    ask.key.adapter = id;
    ask.key.adapterNumber = inKey;
    story.add(name, ask);
    return story.step();
  };
  EXPECT_EQ(add('A', 1, "", 0), "A:0+20!");
  EXPECT_EQ(add('B', 0, "1", 0), "B:0+20!");
  EXPECT_EQ(add('C', 1, "1", 0), "C:0+20!");
  EXPECT_EQ(add('D', 0, "", 1), "D:0+20!");
  EXPECT_EQ(add('E', 1, "1", 7), "E:19+1!");
}

// Samples, preemption by copies and by computing again: the adapter stays in the key.
TEST(Sharing, AnAdapterStaysWithSamplesAndThroughPreemption) {
  for (uint64_t hostPages : {0, 64}) {
    StoryOptions options;
    options.hostPages = hostPages;
    Story story(options);
    story.addSamples("AB", {.prompt = 20, .answer = 6, .adapter = 1, .stream = 5});
    story.step();
    story.step();
    EXPECT_TRUE(story.scheduler->preempt(story.handles['A']));
    story.add('C', {.prompt = 20, .answer = 1, .adapter = 2, .stream = 5});
    std::string with = story.step();
    EXPECT_NE(with.find("C:0+20!"), std::string::npos) << with;
    story.runOut();
    story.expectAnswer('A', 6);
    story.expectAnswer('B', 6);
    story.expectEmpty();
  }
}

TEST(Sharing, StandInTokensOfAMediumAreSharedByItsContent) {
  Story story;
  auto add = [&](char name, std::vector<kv::MediaSpan> media) {
    story.add(name, {.prompt = 20, .answer = 1, .stream = 5, .media = std::move(media)});
    return story.step();
  };
  EXPECT_EQ(add('A', {{6, 10, "cat"}, {14, 15, "dog"}}), "A:0+20!");
  EXPECT_EQ(add('B', {{6, 10, "cat"}, {14, 15, "dog"}}), "B:19+1!");
  EXPECT_EQ(add('C', {{6, 10, "dog"}, {14, 15, "dog"}}), "C:4+16!") << "pages of 4";
  EXPECT_EQ(add('D', {{6, 10, "cat"}, {14, 15, "cat"}}), "D:12+8!");
  EXPECT_EQ(add('E', {}), "E:4+16!");
  EXPECT_EQ(add('F', {{5, 10, "cat"}, {14, 15, "dog"}}), "F:4+16!") << "it begins elsewhere";
  story.expectEmpty();
}

TEST(Sharing, MediaStayWithSamplesAndThroughPreemption) {
  Story story;
  Ask ask{.prompt = 20, .answer = 6, .stream = 5, .media = {{6, 10, "cat"}}};
  story.addSamples("AB", ask);
  story.step();
  story.step();
  EXPECT_TRUE(story.scheduler->preempt(story.handles['A']));
  story.runOut();
  story.expectAnswer('A', 6);
  story.expectAnswer('B', 6);
  ask.answer = 1;
  story.add('C', ask);
  EXPECT_EQ(story.step(), "C:19+1!");
  ask.media[0].digest = "dog";
  story.add('D', ask);
  EXPECT_EQ(story.step(), "D:4+16!");
}

TEST(Sharing, MediaThatCannotBeAreRefused) {
  Story story;
  auto refusal = [&](std::vector<kv::MediaSpan> media) {
    return story.tryAdd('X', {.prompt = 20, .media = std::move(media)}).status().message();
  };
  const char *allowed = "each has a digest and tokens of the prompt behind those of the one before";
  EXPECT_EQ(refusal({{6, 21, "cat"}}),
            fmt::format("a medium with a digest of 3 bytes stands for tokens 6 to 21 of 20; {}",
                        allowed));
  const std::vector<std::vector<kv::MediaSpan>> all = {{{6, 10, ""}},
                                                       {{6, 6, "cat"}},
                                                       {{9, 6, "cat"}},
                                                       {{6, 10, "cat"}, {9, 12, "dog"}},
                                                       {{6, 10, "cat"}, {2, 4, "dog"}}};
  for (const std::vector<kv::MediaSpan> &wrong : all)
    EXPECT_NE(refusal(wrong).find(allowed), std::string::npos);
  EXPECT_EQ(story.scheduler->metrics().rejected[size_t(RejectReason::Invalid)], 6u);
  EXPECT_TRUE(story.scheduler->idle());
}

TEST(Sharing, WhatIsNeverInsertedIsFoundByNobody) {
  Story story;
  story.addSamples("AB", {.prompt = 20, .answer = 6, .stream = 5, .neverInsert = true});
  EXPECT_EQ(story.step(), "A:0+19");
  EXPECT_EQ(story.step(), "A:19+1! B:19+1!") << "its samples share its pages";
  EXPECT_TRUE(story.scheduler->preempt(story.handles['A']));
  story.runOut();
  story.expectAnswer('A', 6);
  story.expectAnswer('B', 6);
  EXPECT_EQ(story.blocks->pool().count(kv::PageState::Cached), 0u);
  story.add('C', {.prompt = 20, .answer = 1, .stream = 5});
  EXPECT_EQ(story.step(), "C:0+20!");
  story.add('D', {.prompt = 20, .answer = 1, .stream = 5, .neverInsert = true});
  EXPECT_EQ(story.step(), "D:19+1!") << "it finds what others left";
  story.expectEmpty();
}

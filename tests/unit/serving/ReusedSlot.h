// A request ends while a row of it is in flight, and another one gets its slot before that row
// completes: what the row yields is nobody's. Told here for the tests of the scheduler and of its
// mistakes.
#pragma once

#include "tests/unit/serving/Story.h"

namespace llmopt::test {

inline void tellOfAReusedSlot() {
  StoryOptions options;
  options.scheduler.stepsInFlight = 2;
  Story story(options);
  story.add('A', {.prompt = 5, .answer = 20, .stops = {Story::answerToken('A', 2)}});
  EXPECT_EQ(story.launch(), "A:0+5!");
  EXPECT_EQ(story.launch(), "A:?5+1!");
  story.land();
  EXPECT_EQ(story.launch(), "A:?6+1!");
  story.land();
  EXPECT_EQ(story.launch(), "A:?7+1!");
  story.land();
  EXPECT_EQ(story.ends, "A:stop") << "its last row is in flight";
  story.checkAll();
  RequestHandle ended = story.handles['A'];
  story.add('B', {.prompt = 6, .answer = 5});
  EXPECT_EQ(story.handles['B'].slot, ended.slot);
  EXPECT_EQ(story.launch(), "B:0+6!");
  story.checkAll();
  story.land(); // the row of A
  EXPECT_TRUE(story.answers['B'].empty()) << "it gets the token of a row that is not its own";
  EXPECT_EQ(story.scheduler->metrics().discardedRows, 1u);
  story.checkAll();
  story.runOut();
  story.expectAnswer('A', 3);
  story.expectAnswer('B', 5);
  story.expectEmpty();
}

} // namespace llmopt::test

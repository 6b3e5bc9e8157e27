#include "tools/harness/FuzzTally.h"

#include <gtest/gtest.h>

namespace llmopt::harness {
namespace {

TEST(FuzzTally, OneSpecIn20MayBeRefused) {
  for (auto [count, most] : {std::pair{1, 1}, {19, 1}, {39, 1}, {40, 2}, {100, 5}, {1000, 50}})
    EXPECT_EQ(FuzzTally::mostRefused(count), most) << count;
  FuzzTally tally;
  tally.passed = 95;
  tally.refused = {{"too wide", 2}, {"too long", 3}};
  EXPECT_EQ(tally.refusedSpecs(), 5);
  EXPECT_EQ(tally.objection(100), "");
  EXPECT_EQ(tally.objection(99), "5 of 99 specs were refused; 4 may be; 3 of them: too long");
}

TEST(FuzzTally, OneOfAHandfulMayBeRefused) {
  FuzzTally tally;
  tally.passed = 1;
  tally.refused = {{"too wide", 1}};
  EXPECT_EQ(tally.objection(2), "");
  tally.refused["too wide"] = 2;
  EXPECT_EQ(tally.objection(3), "2 of 3 specs were refused; 1 may be; 2 of them: too wide");
}

TEST(FuzzTally, ARunOfRefusalsAloneHasShownNothing) {
  FuzzTally tally;
  EXPECT_EQ(tally.objection(1), "");
  tally.refused = {{"too wide", 1}};
  EXPECT_EQ(tally.objection(1), "no spec ran, all 1 were refused: too wide");
}

TEST(FuzzTally, MissesAreToldBeforeRefusals) {
  FuzzTally tally;
  tally.failed = 1;
  tally.refused = {{"too wide", 9}};
  EXPECT_EQ(tally.objection(10), "");
}

} // namespace
} // namespace llmopt::harness

#include "dialect/reference/Rows.h"

#include <gtest/gtest.h>
#include <set>

namespace llmopt::reference {
namespace {

std::set<int64_t> queriesOf(const RowChoice &choice, int64_t batch) {
  std::set<int64_t> queries;
  for (const Row &row : choice.rows)
    if (row.batch == batch)
      queries.insert(row.query);
  return queries;
}

TEST(ChooseRows, StandsOnBothSidesOfGivenTilesAndSplits) {
  Boundaries boundaries;
  boundaries.tileQueries = {{}, {0, 300, 777}};
  boundaries.splitKeys = {{}, {0, 5000, 9999}}; // positions are 4000 more than queries
  RowChoice choice = chooseRows({{1, 6000}, {1, 10000}, 1}, boundaries, 1);
  std::set<int64_t> queries;
  for (const Row &row : choice.rows)
    if (row.batch == 1)
      queries.insert(row.query);
  for (int64_t query : {0, 299, 300, 776, 777, 999, 1000, 5998, 5999})
    EXPECT_TRUE(queries.contains(query)) << query;
  EXPECT_LT(choice.share(), 0.1);
}

TEST(Rows, AllOfASmallBatch) {
  RowChoice choice = chooseRows({{3, 0, 2}, {5, 7, 0}, 4}, {}, 1);
  EXPECT_EQ(choice.rows.size(), 20u);
  EXPECT_EQ(choice.total, 20);
  EXPECT_EQ(choice.share(), 1);
}

TEST(Rows, EndsBoundariesAndASampleOfALargeOne) {
  Lengths lengths{{4096, 1}, {8192, 100000}, 8};
  RowChoice choice =
      chooseRows(lengths, {.queryTile = 64, .keyTile = 0, .page = 0, .split = 1000}, 1);
  std::set<int64_t> queries = queriesOf(choice, 0);
  for (int64_t wanted : {0, 4095, 63, 64, 127, 128, 4031, 4032})
    EXPECT_TRUE(queries.contains(wanted)) << wanted;
  // Query i stands at key i + 4096: split boundaries at keys 5000, 6000, ...
  for (int64_t key : {5000, 6000, 7000, 8000}) {
    EXPECT_TRUE(queries.contains(key - 4096)) << key;
    EXPECT_TRUE(queries.contains(key - 4097)) << key;
  }
  EXPECT_EQ(choice.total, 4097 * 8);
  EXPECT_LT(choice.share(), 0.02);
  std::set<int64_t> heads;
  for (const Row &row : choice.rows)
    if (row.batch == 1)
      heads.insert(row.head);
  EXPECT_EQ(heads.size(), 8u); // all heads of the decode row
}

TEST(Rows, TheSampleFollowsTheSeed) {
  Lengths lengths{{100000}, {100000}, 2};
  EXPECT_EQ(chooseRows(lengths, {}, 5).rows, chooseRows(lengths, {}, 5).rows);
  EXPECT_NE(chooseRows(lengths, {}, 5).rows, chooseRows(lengths, {}, 6).rows);
  EXPECT_GE(chooseRows(lengths, {}, 5).rows.size(), 60u);
}

TEST(Rows, MoreQueriesThanKeys) {
  RowChoice choice =
      chooseRows({{100000}, {1000}, 1}, {.queryTile = 0, .keyTile = 128, .page = 0, .split = 0}, 1);
  std::set<int64_t> queries = queriesOf(choice, 0);
  EXPECT_TRUE(queries.contains(99000 + 127)); // position 127
  EXPECT_TRUE(queries.contains(99000 + 128));
}

} // namespace
} // namespace llmopt::reference

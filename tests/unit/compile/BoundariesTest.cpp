// A run tells where its kernels change what they do, and the oracle's rows stand there.
#include "Support.h"

#include <set>

namespace llmopt::test {
namespace {

constexpr int64_t kRows = 8, kKeys = 16, kGroup = 2, kHeads = 4, kPage = 24;

const char *const kSpec = R"(
func.func @f(%q: tensor<?x4x8xf32>, %kv: !attn.kv_cache<2x8xf32, page = 24>, %s: !attn.sequences)
    -> tensor<?x4x8xf32> {
  %o = attn.attention %q, %kv, %s mask(causal) split(length = 160)
    : tensor<?x4x8xf32>, !attn.kv_cache<2x8xf32, page = 24>, !attn.sequences -> tensor<?x4x8xf32>
  return %o : tensor<?x4x8xf32>
})";

TEST(Boundaries, OfALargeCallPutRowsOnBothSidesOfEveryTilePageAndSplit) {
  Compiled f(kSpec, kRows, kKeys);
  const int64_t queries = 400, keys = 9000; // 1.44e7 scores of four heads: not every row
  harness::Call call = f.call(shapeOf({queries, 1}, {keys, 3}));
  f.run(call);
  llvm::Expected<reference::Lengths> lengths =
      reference::lengthsOf(f.spec.attention, call.inputs());
  ASSERT_TRUE(bool(lengths));
  reference::RowChoice choice = reference::chooseRows(*lengths, call.boundaries, 1);
  std::set<int64_t> chosen, everyHead, heads;
  for (const reference::Row &row : choice.rows)
    if (row.batch == 0) {
      chosen.insert(row.query);
      heads.insert(row.head);
    }
  EXPECT_LT(choice.share(), 1);
  EXPECT_EQ(int64_t(heads.size()), kHeads);
  auto stands = [&](int64_t query) {
    for (int64_t side : {query - 1, query})
      if (side >= 0 && side < queries) {
        EXPECT_TRUE(chosen.contains(side)) << side;
      }
  };
  stands(0);
  stands(queries);
  for (int64_t query = 0; query < queries; query += kRows / kGroup)
    stands(query);
  for (int64_t step : {kKeys, kPage, int64_t(160)})
    for (int64_t key = 0; key < keys; key += step)
      stands(key - (keys - queries));
}

TEST(Boundaries, AreThoseOfThePlan) {
  Compiled f(kSpec, kRows, kKeys);
  harness::Call call = f.call(shapeOf({10, 0, 1}, {400, 7, 3}));
  f.run(call);
  EXPECT_EQ(call.boundaries.keyTile, kKeys);
  EXPECT_EQ(call.boundaries.page, kPage);
  EXPECT_EQ(call.boundaries.tileQueries, (std::vector<std::vector<int64_t>>{{0, 4, 8}, {}, {0}}));
  EXPECT_EQ(call.boundaries.splitKeys, (std::vector<std::vector<int64_t>>{{0, 160, 320}, {}, {}}));
}

} // namespace
} // namespace llmopt::test

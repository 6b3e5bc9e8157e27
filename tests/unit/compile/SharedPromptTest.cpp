// Pages with which all block tables of a call begin are read once for rows of several sequences.
#include "Support.h"

#include <fmt/format.h>

namespace llmopt::test {
namespace {

std::string specOf(const std::string &table, const std::string &clauses) {
  return fmt::format(R"(
func.func @f(%q: tensor<?x8x64xbf16>, %kv: !attn.kv_cache<2x64xbf16, page = 16{}>,
             %s: !attn.sequences) -> tensor<?x8x64xbf16> {{
  %o = attn.attention %q, %kv, %s {} : tensor<?x8x64xbf16>,
       !attn.kv_cache<2x64xbf16, page = 16{}>, !attn.sequences -> tensor<?x8x64xbf16>
  return %o : tensor<?x8x64xbf16>
}})",
                     table, clauses, table);
}

harness::Shape decodeOf16(int64_t sharedKeys) {
  std::vector<int64_t> keys(16);
  for (size_t i = 0; i < keys.size(); ++i)
    keys[i] = 700 + 5 * int64_t(i);
  harness::Shape shape = shapeOf(std::vector<int64_t>(16, 1), keys);
  shape.sharedKeys = sharedKeys;
  return shape;
}

struct Reads {
  size_t mixedItems = 0;
  int64_t keys = 0;
};

Reads readsOf(Compiled &f, const harness::Shape &shape) {
  harness::Call call = f.call(shape);
  cli::RunFigures figures = f.run(call);
  Reads reads;
  for (const runtime::AttendPlan &attend : figures.plan.attends)
    for (const bundle::WorkItem &item : attend.items) {
      reads.mixedItems += item.flags == bundle::kMixedSequences;
      reads.keys += item.keyEnd - item.keyBegin;
    }
  return reads;
}

TEST(SharedPrompt, IsReadOnceForRowsOfSeveralSequences) {
  for (const char *table : {"", ", indptr"})
    for (const char *clauses : // one kernel, so that sharing pays by any target's costs
         {"mask(causal) schedule(rows = 64)", "mask(causal) schedule(rows = 192)",
          "mask(causal) split(length = 128) schedule(rows = 64, batch_invariant)"}) {
      SCOPED_TRACE(std::string(table) + " " + clauses);
      Compiled f(specOf(table, clauses));
      Reads apart = readsOf(f, decodeOf16(0)), shared = readsOf(f, decodeOf16(640));
      EXPECT_EQ(apart.mixedItems, 0u);
      EXPECT_GT(shared.mixedItems, 0u);
      EXPECT_LT(shared.keys, apart.keys / 4);
      f.verify(decodeOf16(640));
    }
}

// The kernels that the schedule chooses: on a CPU the one for few rows walks both KV heads
// together.
TEST(SharedPrompt, KernelsOfAnyHeadsAgree) {
  for (const char *clauses :
       {"mask(causal)", "mask(causal) split(length = 128)", "mask(causal) split(count = 3)"}) {
    SCOPED_TRACE(clauses);
    Compiled f(specOf("", clauses));
    for (int64_t shared : {0, 640})
      f.verify(decodeOf16(shared));
    f.verify(shapeOf({1, 5, 1, 40, 3}, {2000, 5, 1, 300, 129}));
  }
}

TEST(SharedPrompt, KeysThatARowDoesNotSeeAreNotShared) {
  Compiled f(specOf("", "mask(causal and window<90>)"));
  EXPECT_EQ(readsOf(f, decodeOf16(640)).mixedItems, 0u);
  f.verify(decodeOf16(640));
}

} // namespace
} // namespace llmopt::test

// What a layer group keeps is what the mask's MAY intervals say: compared with the
// bundle's own evaluation of the masks, query by query.
#include "runtime/bundle/BoundsEval.h"
#include "runtime/kv/Groups.h"
#include "tests/unit/plan/PlanTestUtil.h"

using namespace plantest;
using namespace llmopt::runtime::kv;

namespace {

void compare(const BoundSet &mask, const GroupSpec &group) {
  for (int64_t query = 0; query < 60; ++query) {
    llmopt::bundle::BoundInputs inputs{
        .queryLo = query, .queryHi = query, .queryLen = 1, .keyLen = query + 1};
    llmopt::bundle::KeySet may = llmopt::bundle::evaluate(mask, inputs);
    for (int64_t key = 0; key <= query; ++key) {
      bool kept = key < group.sink || key >= static_cast<int64_t>(group.firstKey(query));
      EXPECT_EQ(may.contains(key), kept) << "query " << query << " key " << key;
    }
  }
}

} // namespace

TEST(KvMay, AFullGroupKeepsWhatACausalMaskMaySee) { compare(causalMask(), GroupSpec()); }

TEST(KvMay, AWindowGroupKeepsWhatItsMaskMaySee) {
  for (uint32_t window : {1u, 2u, 7u, 16u, 100u}) {
    GroupSpec group;
    group.kind = GroupKind::Window;
    group.window = window;
    compare(windowMask(window), group);
    group.sink = 4;
    compare(sinkOrWindowMask(4, window), group);
  }
}

TEST(KvMay, AChunkedGroupKeepsWhatItsMaskMaySee) {
  for (uint32_t chunk : {1u, 2u, 7u, 16u, 100u}) {
    GroupSpec group;
    group.kind = GroupKind::Chunked;
    group.chunk = chunk;
    compare(chunkedMask(chunk), group);
  }
}

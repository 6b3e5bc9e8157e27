// Which tiles the kernels visit and predicate, against all pairs counted one by one.
#include "Support.h"

#include "tools/harness/Random.h"

#include <fmt/format.h>

namespace llmopt::test {
namespace {

constexpr int64_t kRows = 8, kKeys = 16, kGroup = 2, kKvHeads = 2;

/// Visible: query position i, key j.
using Sees = std::function<bool(int64_t i, int64_t j)>;

struct MaskCase {
  const char *name, *mask;
  const char *region; ///< body over %i and %j that yields %sees, or null
  Sees sees;
};

void PrintTo(const MaskCase &one, std::ostream *out) { *out << one.name; }

std::string specText(const MaskCase &one) {
  std::string where;
  if (one.region)
    where = fmt::format("where {{\n^bb0(%b: index, %h: index, %i: index, %j: index):\n{}\n"
                        "attn.yield %sees : i1\n}}",
                        one.region);
  const char *q = "tensor<?x4x8xf32>", *kv = "tensor<?x2x8xf32>";
  return fmt::format("func.func @f(%q: {0}, %k: {1}, %v: {1}, %s: !attn.sequences) -> {0} {{\n"
                     "%o = attn.attention %q, %k, %v, %s mask({2}) {3}\n"
                     ": {0}, {1}, {1}, !attn.sequences -> {0}\nreturn %o : {0}\n}}",
                     q, kv, one.mask, where);
}

struct Counts {
  uint64_t visited = 0, predicated = 0;
  bool operator==(const Counts &) const = default;
};

std::ostream &operator<<(std::ostream &out, const Counts &counts) {
  return out << counts.visited << " visited, " << counts.predicated << " predicated";
}

/// Tiles of kRows packed rows by kKeys keys with a visible pair; predicated are those with
/// a hidden pair or less than kKeys keys.
Counts bruteForce(const Sees &sees, int64_t queries, int64_t keys) {
  Counts counts;
  for (int64_t row = 0; row < queries * kGroup; row += kRows)
    for (int64_t key = 0; key < keys; key += kKeys) {
      bool any = false, all = key + kKeys <= keys;
      int64_t last = std::min(row + kRows, queries * kGroup) - 1;
      for (int64_t query = row / kGroup; query <= last / kGroup; ++query)
        for (int64_t j = key; j < std::min(key + kKeys, keys); ++j)
          if (sees(query + keys - queries, j))
            any = true;
          else
            all = false;
      counts.visited += any;
      counts.predicated += any && !all;
    }
  return counts;
}

class Visits : public testing::TestWithParam<MaskCase> {};

TEST_P(Visits, AreThoseOfBruteForceOn100Shapes) {
  const MaskCase &one = GetParam();
  Compiled f(specText(one), kRows, kKeys);
  uint64_t compiles = compileCount();
  harness::Random random(11, one.name);
  for (int n = 0; n < 100; ++n) {
    harness::Shape shape = shapeOf({}, {}, n);
    Counts want;
    for (int64_t sequences = random.integer(1, 3); sequences > 0; --sequences) {
      int64_t queries = random.integer(0, random.chance(0.5) ? 4 : 60);
      int64_t keys = random.integer(0, random.chance(0.2) ? 20 : 260);
      shape.queryLengths.push_back(queries);
      shape.keyLengths.push_back(keys);
      Counts counts = bruteForce(one.sees, queries, keys);
      want.visited += counts.visited * kKvHeads;
      want.predicated += counts.predicated * kKvHeads;
    }
    harness::Call call = f.call(shape);
    cli::RunFigures figures = f.run(call);
    EXPECT_EQ((Counts{figures.tilesVisited, figures.tilesPredicated}), want)
        << "queries " << testing::PrintToString(shape.queryLengths) << ", keys "
        << testing::PrintToString(shape.keyLengths);
    if (n % 10 == 0)
      f.verify(shape);
    if (HasFailure())
      return;
  }
  EXPECT_EQ(compileCount(), compiles);
}

constexpr int64_t kW = 40;
const char *const kWindowRegion = R"(%w = arith.constant 40 : index
  %d = arith.subi %i, %j : index
  %sees = arith.cmpi slt, %d, %w : index)";
const char *const kCausalRegion = "%sees = arith.cmpi sle, %j, %i : index";
const char *const kBlockRegion = R"(%n = arith.constant 64 : index
  %x = arith.divsi %i, %n : index
  %y = arith.divsi %j, %n : index
  %sees = arith.cmpi eq, %x, %y : index)";
const char *const kSinkRegion = R"(%n = arith.constant 4 : index
  %w = arith.constant 40 : index
  %a = arith.cmpi slt, %j, %n : index
  %d = arith.subi %i, %j : index
  %c = arith.cmpi slt, %d, %w : index
  %sees = arith.ori %a, %c : i1)";

bool within(int64_t i, int64_t j) { return i - kW < j && j <= i; }
int64_t floorMod(int64_t a, int64_t b) { return (a % b + b) % b; }
bool nearRegion(int64_t i, int64_t j) { return i - j < kW; }
bool sameBlock(int64_t i, int64_t j) { return i / 64 == j / 64; }

const MaskCase kMasks[] = {
    {"none", "window<left = -1, right = -1>", nullptr, [](int64_t, int64_t) { return true; }},
    {"causal", "causal", nullptr, [](int64_t i, int64_t j) { return j <= i; }},
    {"not_causal", "not causal", nullptr, [](int64_t i, int64_t j) { return j > i; }},
    {"window", "window<40>", nullptr, within},
    {"not_window", "not window<40>", nullptr, [](int64_t i, int64_t j) { return !within(i, j); }},
    {"two_sided", "window<left = 20, right = 9>", nullptr,
     [](int64_t i, int64_t j) { return i - 20 <= j && j <= i + 9; }},
    {"dilated", "dilated<3> and causal", nullptr,
     [](int64_t i, int64_t j) { return floorMod(i - j, 3) == 0 && j <= i; }},
    {"dilated_window", "window<40> and dilated<32>", nullptr,
     [](int64_t i, int64_t j) { return within(i, j) && floorMod(i - j, 32) == 0; }},
    {"not_dilated", "not dilated<100>", nullptr,
     [](int64_t i, int64_t j) { return floorMod(i - j, 100) != 0; }},
    {"sink_or_window", "causal and (sink<4> or window<40>)", nullptr,
     [](int64_t i, int64_t j) { return j <= i && (j < 4 || within(i, j)); }},
    {"sink_or_long_window", "sink<20> or window<40>", nullptr,
     [](int64_t i, int64_t j) { return j < 20 || within(i, j); }},
    {"not_sink_or_window", "not (sink<20> or window<40>)", nullptr,
     [](int64_t i, int64_t j) { return j >= 20 && !within(i, j); }},
    {"chunked", "causal and chunked<48>", nullptr,
     [](int64_t i, int64_t j) { return i >= 0 && j <= i && i / 48 == j / 48; }},
};

const MaskCase kRegions[] = {
    {"near", "custom", kWindowRegion, nearRegion},
    {"not_near", "not custom", kWindowRegion,
     [](int64_t i, int64_t j) { return !nearRegion(i, j); }},
    {"near_causal", "custom and causal", kWindowRegion, within},
    {"causal", "custom", kCausalRegion, [](int64_t i, int64_t j) { return j <= i; }},
    {"not_causal", "not custom", kCausalRegion, [](int64_t i, int64_t j) { return j > i; }},
    {"blocks", "custom", kBlockRegion, sameBlock},
    {"not_blocks", "not custom", kBlockRegion,
     [](int64_t i, int64_t j) { return !sameBlock(i, j); }},
    {"sink_or_near", "custom", kSinkRegion,
     [](int64_t i, int64_t j) { return j < 4 || nearRegion(i, j); }},
    {"not_sink_or_near", "not custom", kSinkRegion,
     [](int64_t i, int64_t j) { return j >= 4 && !nearRegion(i, j); }},
};

std::string nameOf(const testing::TestParamInfo<MaskCase> &info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Mask, Visits, testing::ValuesIn(kMasks), nameOf);
INSTANTIATE_TEST_SUITE_P(Region, Visits, testing::ValuesIn(kRegions), nameOf);

TEST(VisitCount, OfSinkOrWindowDoesNotGrowWithTheKeys) { // sink<4> or window<W>: O(4 + W)
  Compiled f(specText({"", "causal and (sink<4> or window<40>)", nullptr, {}}), kRows, kKeys);
  for (int64_t window : {1, 40, 160})
    for (int64_t keys : {1000, 10000, 100000}) {
      harness::Shape shape = shapeOf({1}, {keys});
      shape.numbers["window"] = double(window);
      harness::Call call = f.call(shape);
      uint64_t most = 1 + (window + kKeys - 1) / kKeys + 1; // the sink's tile, the window's
      EXPECT_LE(f.run(call).tilesVisited, kKvHeads * most) << window << " of " << keys;
    }
}

TEST(VisitCount, OfAnAndIsExactForOneQueryAndAtMostOneTileTooManyForSeveral) {
  // Intervals join what each side shows to some query (docs/design/attend-kernel.md).
  Sees sees = [](int64_t i, int64_t j) { return j <= i && floorMod(i - j, 100) != 0; };
  Compiled f(specText({"", "causal and not dilated<100>", nullptr, {}}), kRows, kKeys);
  harness::Random random(12, "and");
  uint64_t tooMany = 0;
  for (int n = 0; n < 100; ++n) {
    int64_t queries = n % 4 == 0 ? 1 : random.integer(2, 60);
    int64_t keys = random.integer(queries, 260), lastOnAnEdge = 0;
    for (int64_t first = 0; first < queries; first += kRows / kGroup) {
      int64_t last = std::min(first + kRows / kGroup, queries) - 1;
      lastOnAnEdge += last > first && (last + keys - queries) % kKeys == 0;
    }
    harness::Shape shape = shapeOf({queries}, {keys}, n);
    harness::Call call = f.call(shape);
    uint64_t visited = f.run(call).tilesVisited;
    EXPECT_EQ(visited, (bruteForce(sees, queries, keys).visited + lastOnAnEdge) * kKvHeads)
        << queries << " queries, " << keys << " keys";
    tooMany += lastOnAnEdge;
    if (n % 10 == 0)
      f.verify(shape);
  }
  EXPECT_GT(tooMany, 0u);
}

} // namespace
} // namespace llmopt::test

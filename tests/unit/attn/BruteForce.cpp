#include "tests/unit/attn/BruteForce.h"

#include "tests/unit/attn/Interpreter.h"

#include "dialect/attn/mask/RegionBounds.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace llmopt::attn;
using namespace llmopt::attn::test;

namespace {

class TestBounds final : public BoundContext {
public:
  TestBounds(const ParsedMask &mask, Defaults defaults) : mask(mask), defaults(defaults) {}

  BoundExpr numberMin(Attribute owner, unsigned index) const override {
    return bound(owner, index, BoundExprKind::ScalarMin);
  }
  BoundExpr numberMax(Attribute owner, unsigned index) const override {
    return bound(owner, index, BoundExprKind::ScalarMax);
  }
  MaskBounds regionBounds(unsigned index) const override {
    return ::regionBounds(AttentionOp(mask.op).getBodies()[index], *this);
  }
  /// %u, which regions capture, has the value 3.
  std::optional<BoundExpr> captured(Value value) const override {
    auto argument = dyn_cast<BlockArgument>(value);
    if (!argument || argument.getArgNumber() != 1)
      return std::nullopt;
    return BoundExpr::scalar(kCapturedSlot);
  }

  static constexpr unsigned kCapturedSlot = 15;

private:
  BoundExpr bound(Attribute owner, unsigned index, BoundExprKind perHead) const {
    unsigned slot = mask.slotOf(owner, index);
    NumberUse use = AttentionOp(mask.op).getNumbers()[slot];
    auto arg = dyn_cast<ArgAttr>(use.value);
    if (!arg && defaults == Defaults::Folded)
      return mask.numberOf(use, 0);
    bool varies = arg && mask.spec.args[arg.getIndex()].values.size() > 1;
    return BoundExpr::scalar(slot, varies ? perHead : BoundExprKind::Scalar);
  }

  const ParsedMask &mask;
  Defaults defaults;
};

/// Bit j: key j of [0, keyLen).
using Keys = uint32_t;

Keys keysOf(const IntervalSet &set, const BoundValues &values) {
  Keys keys = 0;
  for (int64_t key = 0; key < values.keyLen; ++key)
    if (contains(set, key, values))
      keys |= Keys(1) << key;
  return keys;
}

/// As keysOf, with every end evaluated once. That contains() agrees is checked apart.
Keys fastKeysOf(const IntervalSet &set, const BoundValues &values) {
  Keys keys = 0;
  for (const Interval &interval : set.intervals) {
    int64_t lo = std::max<int64_t>(evaluate(interval.lo, values), 0);
    int64_t hi = std::min(evaluate(interval.hi, values), values.keyLen);
    if (!interval.thinning) {
      for (int64_t key = lo; key < hi; ++key)
        keys |= Keys(1) << key;
      continue;
    }
    int64_t stride = evaluate(interval.thinning->stride, values);
    int64_t phase = evaluate(interval.thinning->phase, values);
    int64_t width = evaluate(interval.thinning->width, values);
    for (int64_t key = lo; key < hi; ++key) {
      int64_t place = stride <= 0 ? 0 : ((key - phase) % stride + stride) % stride;
      if (place < width)
        keys |= Keys(1) << key;
    }
  }
  return keys;
}

BoundValues valuesOf(const ParsedMask &mask) {
  BoundValues values;
  for (const NumberUse &use : AttentionOp(mask.op).getNumbers()) {
    int64_t least = INT64_MAX, most = INT64_MIN;
    for (int head = 0; head < kHeads; ++head) {
      least = std::min(least, mask.numberOf(use, head));
      most = std::max(most, mask.numberOf(use, head));
    }
    values.scalars.push_back(mask.numberOf(use, 0));
    values.perHeadMin.push_back(least);
    values.perHeadMax.push_back(most);
  }
  values.scalars.resize(TestBounds::kCapturedSlot + 1, 3);
  return values;
}

/// The keys that each query sees: by all heads together, and by every head.
struct Seen {
  std::vector<Keys> some, every;
};

Seen seenBy(const MaskSpec &spec, Shape shape) {
  bool perHead = llvm::any_of(spec.args, [](const Arg &a) { return a.values.size() != 1; });
  Seen seen;
  for (int query = 0; query < shape.queries; ++query) {
    Keys some = 0, every = ~Keys(0);
    for (int head = 0; head < (perHead ? kHeads : 1); ++head) {
      Keys keys = 0;
      for (int key = 0; key < shape.keys; ++key)
        if (spec.sees(Row{shape, query, head}, key))
          keys |= Keys(1) << key;
      some |= keys;
      every &= keys;
    }
    seen.some.push_back(some);
    seen.every.push_back(every);
  }
  return seen;
}

/// True when the caller should go on.
bool compareRange(const ParsedMask &mask, const MaskBounds &bounds, const BoundValues &values,
                  Keys some, Keys every) {
  Keys may = fastKeysOf(bounds.may, values), surely = fastKeysOf(bounds.surely, values);
  bool sound = (some & ~may) == 0 && (surely & ~every) == 0;
  bool exact = !bounds.exact || (may == some && surely == every);
  if (sound && exact)
    return true;
  ADD_FAILURE() << mask.spec.text << (sound ? " is not exact" : " is unsound") << " for queries "
                << values.queryLo << ".." << values.queryHi << " of " << values.queryLen << " over "
                << values.keyLen << " keys: may " << std::hex << may << " for " << some
                << ", surely " << surely << " for " << every;
  return false;
}

} // namespace

MaskBounds llmopt::attn::test::boundsOf(const ParsedMask &mask, Defaults defaults) {
  return boundsOfMask(mask.mask, TestBounds(mask, defaults));
}

void llmopt::attn::test::expectBounds(const ParsedMask &mask, Defaults defaults, Demand demand) {
  MaskBounds bounds = boundsOf(mask, defaults);
  EXPECT_LE(bounds.may.intervals.size(), kMaxIntervals) << mask.spec.text;
  EXPECT_LE(bounds.surely.intervals.size(), kMaxIntervals) << mask.spec.text;
  if (demand == Demand::SoundOnly)
    bounds.exact = false;
  if (demand == Demand::Exact) {
    EXPECT_TRUE(bounds.exact) << mask.spec.text << " does not claim to be exact"
                              << (mask.spec.regions.empty() ? "" : ":\n" + mask.spec.regions[0]);
  }
  BoundValues values = valuesOf(mask);
  for (int queries = 1; queries <= kMostLength; ++queries)
    for (int keys = 0; keys <= kMostLength; ++keys) {
      Seen seen = seenBy(mask.spec, {queries, keys});
      values.queryLen = queries;
      values.keyLen = keys;
      for (int first = 0; first < queries; ++first) {
        Keys some = 0, every = keys ? ~Keys(0) >> (32 - keys) : 0;
        values.queryLo = first + keys - queries;
        for (int last = first; last < queries; ++last) {
          values.queryHi = last + keys - queries;
          some |= seen.some[last];
          every &= seen.every[last];
          if (!compareRange(mask, bounds, values, some, every))
            return;
        }
      }
      EXPECT_EQ(keysOf(bounds.may, values), fastKeysOf(bounds.may, values));
      EXPECT_EQ(keysOf(bounds.surely, values), fastKeysOf(bounds.surely, values));
    }
}

void llmopt::attn::test::expectPredicate(const ParsedMask &mask, Lengths lengths) {
  EmittedMask emitted(mask);
  for (int queries = 1; queries <= kMostLength; queries += lengths == Lengths::All ? 1 : 6)
    for (int keys = 1; keys <= kMostLength; keys += lengths == Lengths::All ? 1 : 6)
      for (int query = 0; query < queries; ++query)
        for (int head = 0; head < kHeads; head += 3)
          for (int key = 0; key < keys; ++key) {
            Row row{{queries, keys}, query, head};
            if (emitted.sees(row, key) == mask.spec.sees(row, key))
              continue;
            ADD_FAILURE() << mask.spec.text << ": emitted predicate is wrong for query " << query
                          << " of " << queries << ", key " << key << " of " << keys << ", head "
                          << head;
            return;
          }
}

void llmopt::attn::test::expectMask(MaskSpec spec, Demand demand) {
  ParsedMask mask(testContext(), std::move(spec));
  expectBounds(mask, Defaults::Folded, demand);
  expectBounds(mask, Defaults::RunTime, demand);
  expectPredicate(mask, Lengths::All);
}

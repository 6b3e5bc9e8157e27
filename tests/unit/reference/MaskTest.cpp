// Each mask against tables written by hand.
#include "Support.h"

#include "dialect/reference/Masks.h"

namespace llmopt::reference {
namespace {

using Rows = std::vector<std::string>;

/// What each query of `queries` sees of `keys` keys.
Rows table(const std::string &mask, int64_t queries, int64_t keys) {
  Bound bound = weightsOf("mask(" + mask + ")", queries, std::vector<double>(size_t(keys), 0));
  Rows rows;
  for (int64_t q = 0; q < queries; ++q)
    rows.push_back(seenBy(bound, q));
  return rows;
}

TEST(Mask, NoneShowsAll) {
  Bound bound = weightsOf("", 2, {0, 0, 0});
  EXPECT_EQ(seenBy(bound, 0), "###");
  EXPECT_EQ(seenBy(bound, 1), "###");
}

TEST(Mask, CausalIsBottomRight) {
  EXPECT_EQ(table("causal", 3, 3), (Rows{"#..", "##.", "###"}));
  EXPECT_EQ(table("causal", 2, 4), (Rows{"###.", "####"}));
  EXPECT_EQ(table("causal", 1, 4), (Rows{"####"})); // A10: one query sees all keys
  EXPECT_EQ(table("causal", 4, 2), (Rows{"..", "..", "#.", "##"}));
}

TEST(Mask, CausalTopLeft) {
  EXPECT_EQ(table("causal<top_left>", 2, 4), (Rows{"#...", "##.."}));
  EXPECT_EQ(table("causal<top_left>", 4, 2), (Rows{"#.", "##", "##", "##"}));
}

TEST(Mask, WindowCountsTheCurrentKey) { // A8
  EXPECT_EQ(table("window<1>", 3, 3), (Rows{"#..", ".#.", "..#"}));
  EXPECT_EQ(table("window<2>", 3, 3), (Rows{"#..", "##.", ".##"}));
  EXPECT_EQ(table("window<2>", 1, 4), (Rows{"..##"}));
  EXPECT_EQ(table("window<2>", 3, 1), (Rows{".", ".", "#"}));
  EXPECT_EQ(table("window<9>", 2, 2), (Rows{"#.", "##"}));
}

TEST(Mask, WindowWithTwoSides) {
  EXPECT_EQ(table("window<left = 1, right = 1>", 4, 4), (Rows{"##..", "###.", ".###", "..##"}));
  EXPECT_EQ(table("window<left = 0, right = 2>", 4, 4), (Rows{"###.", ".###", "..##", "...#"}));
  EXPECT_EQ(table("window<left = -1, right = 0>", 3, 3), (Rows{"#..", "##.", "###"}));
  EXPECT_EQ(table("window<left = 0, right = -1>", 3, 3), (Rows{"###", ".##", "..#"}));
  EXPECT_EQ(table("window<left = -1, right = -1>", 1, 3), (Rows{"###"}));
}

TEST(Mask, SinkShowsTheFirstKeys) {
  EXPECT_EQ(table("sink<2>", 2, 4), (Rows{"##..", "##.."}));
  EXPECT_EQ(table("sink<0>", 1, 2), (Rows{".."}));
  EXPECT_EQ(table("sink<1> or window<2>", 5, 5),
            (Rows{"#....", "##...", "###..", "#.##.", "#..##"}));
}

TEST(Mask, DilatedCountsFromTheQuery) {
  EXPECT_EQ(table("dilated<2>", 4, 4), (Rows{"#.#.", ".#.#", "#.#.", ".#.#"}));
  EXPECT_EQ(table("dilated<3>", 2, 5), (Rows{"#..#.", ".#..#"}));
  EXPECT_EQ(table("dilated<1>", 1, 3), (Rows{"###"}));
  // Positions -2, -1, 0: the remainder is the floored one.
  EXPECT_EQ(table("dilated<3>", 3, 1), (Rows{".", ".", "#"}));
  EXPECT_EQ(table("dilated<2>", 3, 1), (Rows{"#", ".", "#"}));
}

TEST(Mask, ChunkedSeesItsOwnChunk) {
  EXPECT_EQ(table("chunked<2>", 4, 4), (Rows{"##..", "##..", "..##", "..##"}));
  EXPECT_EQ(table("chunked<3>", 2, 5), (Rows{"...##", "...##"}));
  EXPECT_EQ(table("causal and chunked<3>", 5, 5),
            (Rows{"#....", "##...", "###..", "...#.", "...##"}));
  EXPECT_EQ(table("chunked<4>", 3, 1), (Rows{".", ".", "#"})); // negative positions see nothing
}

TEST(Mask, Composition) {
  EXPECT_EQ(table("not causal", 2, 3), (Rows{"..#", "..."}));
  EXPECT_EQ(table("causal and not window<2>", 4, 4), (Rows{"....", "....", "#...", "##.."}));
  EXPECT_EQ(table("(causal and window<2>) or not causal", 3, 3), (Rows{"###", "###", ".##"}));
}

TEST(Mask, Dense) {
  Bound bound = weightsOf("mask(dense<arg0>)", 2, {0, 0, 0}, 2, "args(%m : tensor<1x2x2x3xi1>)",
                          ", %m: tensor<1x2x2x3xi1>");
  bound.bind("arg0", ElementType::Bool, {1, 2, 2, 3}, {1, 0, 1, 0, 0, 0, 0, 1, 0, 1, 1, 0});
  EXPECT_EQ(seenBy(bound, 0, 0), "#.#");
  EXPECT_EQ(seenBy(bound, 1, 0), "...");
  EXPECT_EQ(seenBy(bound, 0, 1), ".#.");
  EXPECT_EQ(seenBy(bound, 1, 1), "##.");
}

TEST(Mask, DenseBroadcastsAndReadsStrides) { // A28: every second element of a longer vector
  Bound bound = weightsOf("mask(dense<arg0>)", 2, {0, 0, 0, 0}, 2, "args(%m : tensor<1x1x1x4xi8>)",
                          ", %m: tensor<1x1x1x4xi8>");
  Array &mask = bound.bind("arg0", ElementType::I8, {1, 1, 1, 8}, {1, 1, 0, 1, 1, 1, 0, 1});
  mask.shape.back() = 4;
  mask.strides.back() = 2;
  for (int64_t q : {0, 1})
    for (int64_t h : {0, 1})
      EXPECT_EQ(seenBy(bound, q, h), "#.#.");
}

TEST(Mask, NumbersOfEachHead) {
  Bound bound = weightsOf("mask(window<arg0>)", 1, {0, 0, 0}, 2, "args(%w : tensor<2xi32>)",
                          ", %w: tensor<2xi32>");
  bound.bind("arg0", ElementType::I32, {2}, {1, 3});
  EXPECT_EQ(seenBy(bound, 0, 0), "..#");
  EXPECT_EQ(seenBy(bound, 0, 1), "###");
}

TEST(Mask, NumbersAreOverriddenByName) {
  Bound bound = weightsOf("mask(window<1>)", 1, {0, 0, 0});
  EXPECT_EQ(seenBy(bound, 0), "..#");
  bound.inputs.numbers["window"] = 2;
  EXPECT_EQ(seenBy(bound, 0), ".##");
}

TEST(Mask, WindowBelowOneIsRefusedForAllHeadsAndSeesNothingForOne) {
  Bound bound = weightsOf("mask(window<1>)", 1, {0, 0, 0});
  bound.inputs.numbers["window"] = 0;
  EXPECT_EQ(bound.rowError(0, 0), "number 'window' is 0; 1 and more are allowed; leave the window "
                                  "out of the mask for none");
  Bound scalar = weightsOf("mask(window<arg0>)", 1, {0, 0}, 1, "args(%w : i32)", ", %w: i32");
  scalar.bind("arg0", ElementType::I32, {}, {-1});
  EXPECT_EQ(scalar.rowError(0, 0), "number 'arg0' is -1; 1 and more are allowed; leave the window "
                                   "out of the mask for none");
  Bound heads = weightsOf("mask(window<arg0>)", 1, {0, 0}, 2, "args(%w : tensor<2xi32>)",
                          ", %w: tensor<2xi32>");
  heads.bind("arg0", ElementType::I32, {2}, {0, 1});
  EXPECT_EQ(seenBy(heads, 0, 0), "..");
  EXPECT_EQ(seenBy(heads, 0, 1), ".#");
}

TEST(Mask, NumbersOfOneNameAreCounted) { // window, window_1
  Bound bound = weightsOf("mask(window<1> or window<2>)", 1, {0, 0, 0, 0});
  bound.inputs.numbers["window_1"] = 3;
  EXPECT_EQ(seenBy(bound, 0), ".###");
  bound.inputs.numbers["window_1"] = 1;
  bound.inputs.numbers["window"] = 4;
  EXPECT_EQ(seenBy(bound, 0), "####");
}

TEST(Mask, StrideBelowOneCountsAsOne) {
  Bound bound = weightsOf("mask(dilated<2>)", 1, {0, 0, 0});
  bound.inputs.numbers["dilation"] = 0;
  EXPECT_EQ(seenBy(bound, 0), "###");
}

// A token and five drafts: two children of the token (1, 2), a child of the first (3), two of
// the second (4, 5).
const std::vector<int64_t> kSets = {0b000001, 0b000011, 0b000101, 0b001011, 0b010101, 0b100101};

Rows treeTable(const std::string &mask, std::vector<int64_t> sets, int64_t keys,
               const std::string &where = "") {
  Bound bound =
      weightsOf("args(%t : tensor<?x?xi64>) mask(" + mask + ")" + where, int64_t(sets.size()),
                std::vector<double>(size_t(keys), 0), 1, "", ", %t: tensor<?x?xi64>");
  bound.inputs.arrays["arg0"] = {
      ElementType::I64, {1, int64_t(sets.size())}, {int64_t(sets.size()), 1}, sets.data()};
  Rows rows;
  for (int64_t q = 0; q < int64_t(sets.size()); ++q)
    rows.push_back(seenBy(bound, q));
  return rows;
}

TEST(Mask, TreeShowsAncestorsAndWhatIsBefore) {
  EXPECT_EQ(treeTable("tree<arg0>", kSets, 8),
            (Rows{"###.....", "####....", "###.#...", "####.#..", "###.#.#.", "###.#..#"}));
  EXPECT_EQ(treeTable("tree<arg0>", {-1, -1, -1}, 4), (Rows{"##..", "###.", "####"}));
  EXPECT_EQ(treeTable("tree<arg0>", {0, 0b111, 0b10}, 3), (Rows{"...", "##.", ".#."}))
      << "a set says all, of the query itself as well; what stands behind is hidden";
}

TEST(Mask, TreeCountsPositionsAlongTheBranch) {
  // Depths 0 1 1 2 2 2: a window of 2 is the token and its parent, of whatever slots.
  EXPECT_EQ(treeTable("tree<arg0> and window<2>", kSets, 8),
            (Rows{".##.....", "..##....", "..#.#...", "...#.#..", "....#.#.", "....#..#"}));
  EXPECT_EQ(treeTable("tree<arg0> and custom", kSets, 8,
                      R"( where {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %two = arith.constant 2 : index
      %d = arith.subi %i, %j : index
      %r = arith.cmpi eq, %d, %two : index
      attn.yield %r : i1
  })"),
            (Rows{"#.......", ".#......", ".#......", "..#.....", "..#.....", "..#....."}));
}

TEST(Mask, TreeTellsOf64QueriesAndTheRestIsCausal) {
  std::vector<int64_t> sets(70, 1); // each sees the first, and all from the 64th on
  Rows rows = treeTable("tree<arg0>", sets, 70);
  EXPECT_EQ(rows[63], "#" + std::string(69, '.'));
  EXPECT_EQ(rows[66], "#" + std::string(63, '.') + "###...");
}

TEST(Mask, CustomRegion) { // sees positions: query 0 of 2 stands at key 2 of 4
  Bound bound = weightsOf(R"(mask(custom) where {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %one = arith.constant 1 : index
      %d = arith.subi %i, %j : index
      %r = arith.cmpi eq, %d, %one : index
      attn.yield %r : i1
  })",
                          2, {0, 0, 0, 0});
  EXPECT_EQ(seenBy(bound, 0), ".#..");
  EXPECT_EQ(seenBy(bound, 1), "..#.");
}

TEST(Mask, CustomRegionReadsArgumentsOfTheFunction) { // A31: another value, no other kernel
  Bound bound = weightsOf(R"(mask(custom) where {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %r = arith.cmpi slt, %j, %limit : index
      attn.yield %r : i1
  })",
                          1, {0, 0, 0}, 1, "", ", %limit: index");
  EXPECT_EQ(bound.rowError(0, 0), "number 'user3', which a region reads, is not given");
  for (int limit : {1, 2}) {
    bound.inputs.numbers["user3"] = limit;
    EXPECT_EQ(seenBy(bound, 0), limit == 1 ? "#.." : "##.");
  }
}

TEST(Mask, PluginsTeachTheirOwn) {
  Bound bound = weightsOf("", 1, {0, 0, 0});
  mlir::Attribute even = mlir::UnitAttr::get(bound.attention.getContext());
  Context context{bound.attention, bound.inputs};
  llvm::Expected<Predicate> unknown = compileMask(even, context);
  EXPECT_EQ(llvm::toString(unknown.takeError()),
            "the oracle does not know mask unit; a plugin teaches it by registerMask()");
  registerMask(mlir::TypeID::get<mlir::UnitAttr>(),
               [](mlir::Attribute, const Context &) -> llvm::Expected<Predicate> {
                 return [](const Pair &p) { return p.key % 2 == 0; };
               });
  llvm::Expected<Predicate> known = compileMask(even, context);
  ASSERT_TRUE(bool(known));
  Pair pair;
  EXPECT_TRUE((*known)(pair));
  pair.key = 1;
  EXPECT_FALSE((*known)(pair));
}

TEST(Mask, CustomRegionReadsHeadAndBatch) {
  Bound bound = weightsOf(R"(mask(causal and custom) where {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %x = arith.addi %h, %b : index
      %r = arith.cmpi sge, %j, %x : index
      attn.yield %r : i1
  })",
                          1, {0, 0, 0}, 3);
  EXPECT_EQ(seenBy(bound, 0, 0), "###");
  EXPECT_EQ(seenBy(bound, 0, 1), ".##");
  EXPECT_EQ(seenBy(bound, 0, 2), "..#");
}

} // namespace
} // namespace llmopt::reference

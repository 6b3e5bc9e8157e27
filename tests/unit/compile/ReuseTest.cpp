// One program serves all lengths and numbers; a saved one gives the same bits.
#include "Support.h"

#include "runtime/bundle/BundleIO.h"

#include <fmt/format.h>

namespace llmopt::test {
namespace {

TEST(Reuse, OneCompileServes20Shapes) { // A38, with its lengths
  Compiled f(R"(
func.func @f(%q: tensor<?x4x16xbf16>, %kv: !attn.kv_cache<2x16xbf16, page = 64>, %s: !attn.sequences)
    -> tensor<?x4x16xbf16> {
  %o = attn.attention %q, %kv, %s mask(causal)
    : tensor<?x4x16xbf16>, !attn.kv_cache<2x16xbf16, page = 64>, !attn.sequences -> tensor<?x4x16xbf16>
  return %o : tensor<?x4x16xbf16>
})");
  uint64_t compiles = compileCount();
  for (int64_t length : {320, 256, 192, 128, 1}) {
    f.verify(shapeOf({length}, {length}));
    f.verify(shapeOf({1}, {length}));
    f.verify(shapeOf({1, 0, 5}, {length, 3, length}));
    f.verify(shapeOf({length, 2}, {length / 2, 7}));
  }
  EXPECT_EQ(compileCount(), compiles);
}

TEST(Reuse, CapturedNumbersAreReadAtRunTime) { // A31: i - QL >= j - KL of the captured lengths
  Compiled f(R"(
func.func @f(%q: tensor<?x4x16xf32>, %k: tensor<?x2x16xf32>, %v: tensor<?x2x16xf32>, %s: !attn.sequences,
             %ql: index, %kl: index) -> tensor<?x4x16xf32> {
  %o = attn.attention %q, %k, %v, %s mask(custom) where {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %x = arith.subi %i, %ql : index
      %y = arith.subi %j, %kl : index
      %sees = arith.cmpi sge, %x, %y : index
      attn.yield %sees : i1
    } : tensor<?x4x16xf32>, tensor<?x2x16xf32>, tensor<?x2x16xf32>, !attn.sequences -> tensor<?x4x16xf32>
  return %o : tensor<?x4x16xf32>
})");
  uint64_t compiles = compileCount();
  for (auto [queries, keys] : {std::pair{5, 90}, std::pair{70, 70}, std::pair{40, 12}})
    for (double shift : {0, 3, -20}) {
      harness::Shape shape = shapeOf({queries}, {keys});
      shape.numbers = {{"user4", queries + shift}, {"user5", keys}};
      f.verify(shape);
    }
  EXPECT_EQ(compileCount(), compiles);
}

/// A captured scalar of one type, as `score(s) = body`.
std::string scoreOf(const std::string &type, const std::string &body) {
  return fmt::format(R"(
func.func @f(%q: tensor<?x4x16xf32>, %k: tensor<?x2x16xf32>, %v: tensor<?x2x16xf32>, %s: !attn.sequences,
             %x: {0}) -> tensor<?x4x16xf32> {{
  %o = attn.attention %q, %k, %v, %s score {{
    ^bb0(%t: f32, %b: index, %h: index, %i: index, %j: index):
      {1}
      attn.yield %r : f32
    }} : tensor<?x4x16xf32>, tensor<?x2x16xf32>, tensor<?x2x16xf32>, !attn.sequences -> tensor<?x4x16xf32>
  return %o : tensor<?x4x16xf32>
}})",
                     type, body);
}

class CapturedTypes : public OnEachDevice {};

/// Values that float32 does not hold, the ends of the integers, and what lies beyond them.
TEST_P(CapturedTypes, ReachTheKernelWhole) {
  struct Type {
    std::string name, body;
    std::vector<double> values, refused;
  };
  // A factor of 2^20 shows the bits that rounding to float32 would take.
  const std::string real = "%r = arith.addf %t, %y : f32",
                    product = "%y = arith.mulf %t, %z : f32\n" + real;
  const Type types[] = {
      {"f32", "%y = arith.mulf %t, %x : f32\n" + real, {0.1, -3}, {}},
      {"f16", "%z = arith.extf %x : f16 to f32\n" + product, {0.1, 1.0009, -3.3333}, {}},
      {"bf16", "%z = arith.extf %x : bf16 to f32\n" + product, {0.1, 1.009, -3.3333}, {}},
      {"f64",
       "%one = arith.constant 1.0 : f64\n%big = arith.constant 1073741824.0 : f64\n"
       "%d = arith.subf %x, %one : f64\n%m = arith.mulf %d, %big : f64\n"
       "%z = arith.truncf %m : f64 to f32\n" +
           product,
       {1 + 0x1p-30, 1 - 0x1.8p-30},
       {}},
      {"i1", "%z = arith.uitofp %x : i1 to f32\n" + product, {0, 1}, {-1, 2}},
      {"i8", "%z = arith.sitofp %x : i8 to f32\n" + product, {-128, 3, 127}, {-129, 128, 300}},
      {"i16",
       "%w = arith.extsi %x : i16 to i32\n%z = arith.sitofp %w : i32 to f32\n"
       "%y = arith.addf %t, %z : f32\n%r = math.tanh %y : f32",
       {-32768, 1, 32767},
       {-32769, 32768}},
      {"i32", "%z = arith.sitofp %x : i32 to f32\n" + product, {-3, 5}, {0x1p31, -0x1p31 - 1}},
      {"i64", "%z = arith.sitofp %x : i64 to f32\n" + product, {-3, 5}, {0x1p31}},
      {"index",
       "%w = arith.index_cast %x : index to i64\n%z = arith.sitofp %w : i64 to f32\n" + product,
       {-3, 5},
       {0x1p31}},
  };
  for (const Type &type : types) {
    SCOPED_TRACE(type.name);
    Compiled f(scoreOf(type.name, type.body), GetParam());
    f.verify(shapeOf({3}, {40})); // what the harness draws
    harness::Shape shape = shapeOf({2, 1}, {5, 17});
    for (double value : type.values) {
      SCOPED_TRACE(value);
      shape.numbers["user4"] = value;
      f.verify(shape);
    }
    for (double value : type.refused) {
      shape.numbers["user4"] = value;
      harness::Call call = f.call(shape);
      EXPECT_TRUE(f.refusal(call).starts_with(fmt::format("scalar 'user4' is {:.0f}; ", value)))
          << value;
    }
  }
}

/// The value is one number, whether a clause or a region reads it.
TEST_P(CapturedTypes, ThatAreOperandsTooHaveOneName) {
  Compiled f(R"(
func.func @f(%q: tensor<?x4x16xf32>, %k: tensor<?x2x16xf32>, %v: tensor<?x2x16xf32>, %s: !attn.sequences,
             %w: i32) -> tensor<?x4x16xf32> {
  %o = attn.attention %q, %k, %v, %s args(%w : i32) mask(window<arg0> and custom) where {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %n = arith.index_cast %w : i32 to index
      %d = arith.subi %i, %j : index
      %c = arith.cmpi ne, %d, %n : index
      attn.yield %c : i1
    } : tensor<?x4x16xf32>, tensor<?x2x16xf32>, tensor<?x2x16xf32>, !attn.sequences -> tensor<?x4x16xf32>
  return %o : tensor<?x4x16xf32>
})",
             GetParam());
  std::string names;
  for (const bundle::Scalar &scalar : f.program.scalars)
    names += scalar.name + " ";
  EXPECT_EQ(names, "arg0 scale ");
  for (uint64_t seed : {1, 2, 3})
    f.verify(shapeOf({3}, {90}, seed));
}

LLMOPT_ON_EACH_DEVICE(CapturedTypes);

} // namespace
} // namespace llmopt::test

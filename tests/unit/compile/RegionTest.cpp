// Custom regions: what traps or crashes elsewhere has a defined result here, the oracle's.
#include "Support.h"

#include <fmt/format.h>

namespace llmopt::test {
namespace {

struct Body {
  const char *name, *text; ///< computes %r, an f32, of %s, %h, %i and %j
};

void PrintTo(const Body &body, std::ostream *out) { *out << body.name; }

class Region : public testing::TestWithParam<Body> {};

TEST_P(Region, AgreesWithTheOracle) {
  Compiled f(fmt::format(R"(
func.func @f(%q: tensor<?x4x16xf32>, %k: tensor<?x2x16xf32>, %v: tensor<?x2x16xf32>, %l: !attn.sequences)
    -> tensor<?x4x16xf32> {{
  %o = attn.attention %q, %k, %v, %l mask(causal) score {{
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      {}
      attn.yield %r : f32
    }} : tensor<?x4x16xf32>, tensor<?x2x16xf32>, tensor<?x2x16xf32>, !attn.sequences -> tensor<?x4x16xf32>
  return %o : tensor<?x4x16xf32>
}})",
                         GetParam().text));
  f.verify(shapeOf({1, 70, 3}, {90, 70, 5}));
}

/// `op` on i32 position and head (0 for the first head), added to the score.
#define BY_HEAD(op)                                                                                \
  "%x = arith.index_cast %j : index to i32  %d = arith.index_cast %h : index to i32 "              \
  "%y = arith." op                                                                                 \
  " %x, %d : i32  %z = arith.sitofp %y : i32 to f32  %c = arith.constant 0.01 : f32 "              \
  "%w = arith.mulf %z, %c : f32  %r = arith.addf %s, %w : f32"
/// The smallest i32 divided by head - 1: by -1 for the first head, by 0 for the second.
#define SMALLEST(op)                                                                               \
  "%m = arith.constant -2147483648 : i32  %one = arith.constant 1 : i32 "                          \
  "%a = arith.index_cast %h : index to i32  %d = arith.subi %a, %one : i32 "                       \
  "%y = arith." op " %m, %d : i32  %z = arith.sitofp %y : i32 to f32 "                             \
  "%c = arith.constant 1.0e-9 : f32  %w = arith.mulf %z, %c : f32  %r = arith.addf %s, %w : f32"

#define OVERFLOWING(function)                                                                      \
  "%c = arith.constant 60.0 : f32  %a = arith.mulf %s, %c : f32  %r = math." function " %a : f32"
/// Adds 1 to the score where `op` of a constant and the key position is positive.
#define WRAPPING(op, constant)                                                                     \
  "%m = arith.constant " constant " : index  %x = " op " %m, %j : index "                          \
  "%n = arith.constant 0 : index  %y = arith.cmpi sgt, %x, %n : index "                            \
  "%u = arith.uitofp %y : i1 to f32  %r = arith.addf %s, %u : f32"

INSTANTIATE_TEST_SUITE_P(
    Bodies, Region,
    testing::Values(
        Body{"divsi", BY_HEAD("divsi")}, Body{"divui", BY_HEAD("divui")},
        Body{"remsi", BY_HEAD("remsi")}, Body{"remui", BY_HEAD("remui")},
        Body{"floordivsi", BY_HEAD("floordivsi")}, Body{"ceildivsi", BY_HEAD("ceildivsi")},
        Body{"ceildivui", BY_HEAD("ceildivui")}, Body{"smallest_divsi", SMALLEST("divsi")},
        Body{"smallest_remsi", SMALLEST("remsi")},
        Body{"constant_zero", "%n = arith.constant 0 : index  %y = arith.divsi %j, %n : index "
                              "%x = arith.index_cast %y : index to i32 "
                              "%z = arith.sitofp %x : i32 to f32  %r = arith.addf %s, %z : f32"},
        // Powers of 0, of the score and of the head, some of them 0 ^ 0.
        Body{"powf", "%a = arith.index_cast %h : index to i32  %p = arith.sitofp %a : i32 to f32 "
                     "%z = arith.subf %p, %p : f32  %x = math.powf %z, %p : f32 "
                     "%y = math.powf %s, %p : f32  %t = arith.addf %x, %y : f32 "
                     "%c = arith.constant 0.1 : f32  %w = arith.mulf %t, %c : f32 "
                     "%r = arith.addf %s, %w : f32"},
        // Beyond float32 for many scores, though not beyond float64: infinite and then NaN.
        Body{"exp_overflow", OVERFLOWING("exp")}, Body{"exp2_overflow", OVERFLOWING("exp2")},
        Body{"sinh_overflow", OVERFLOWING("sinh")}, Body{"cosh_overflow", OVERFLOWING("cosh")},
        Body{"expm1_overflow", OVERFLOWING("expm1")},
        // -inf hides the key.
        Body{"negative_overflow", "%c = arith.constant 60.0 : f32  %a = arith.mulf %s, %c : f32 "
                                  "%e = math.exp %a : f32  %r = arith.negf %e : f32"},
        // Index arithmetic is 64 bits wide and wraps, with constants that no double holds.
        Body{"index_sum_wraps", WRAPPING("arith.addi", "9223372036854775806")},
        Body{"index_product_wraps", WRAPPING("arith.muli", "3074457345618258603")},
        Body{"index_difference_wraps", WRAPPING("arith.subi", "-9223372036854775807")},
        Body{"rsqrt", "%a = math.absf %s : f32  %c = arith.constant 1.0 : f32 "
                      "%d = arith.addf %a, %c : f32  %r = math.rsqrt %d : f32"}),
    [](const auto &info) { return std::string(info.param.name); });

} // namespace
} // namespace llmopt::test

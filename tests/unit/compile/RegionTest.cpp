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
        Body{"rsqrt", "%a = math.absf %s : f32  %c = arith.constant 1.0 : f32 "
                      "%d = arith.addf %a, %c : f32  %r = math.rsqrt %d : f32"}),
    [](const auto &info) { return std::string(info.param.name); });

} // namespace
} // namespace llmopt::test

// Custom regions: what traps or crashes elsewhere has a defined result here, the oracle's.
#include "Support.h"

#include "dialect/attn/RegionOps.h"

#include <fmt/format.h>

namespace llmopt::test {
namespace {

struct Body {
  const char *name, *text; ///< computes %r, an f32, of %s, %h, %i and %j
};

void PrintTo(const Body &body, std::ostream *out) { *out << body.name; }

class Region : public testing::TestWithParam<Body> {};

/// A spec whose score region is `body`.
std::string specWith(llvm::StringRef body) {
  return fmt::format(R"(
func.func @f(%q: tensor<?x4x16xf32>, %k: tensor<?x2x16xf32>, %v: tensor<?x2x16xf32>, %l: !attn.sequences)
    -> tensor<?x4x16xf32> {{
  %o = attn.attention %q, %k, %v, %l mask(causal) score {{
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      {}
      attn.yield %r : f32
    }} : tensor<?x4x16xf32>, tensor<?x2x16xf32>, tensor<?x2x16xf32>, !attn.sequences -> tensor<?x4x16xf32>
  return %o : tensor<?x4x16xf32>
}})",
                     body.str());
}

TEST_P(Region, AgreesWithTheOracle) {
  Compiled f(specWith(GetParam().text));
  f.verify(shapeOf({1, 70, 3}, {90, 70, 5}));
}

/// A body that adds a quarter of math op `name` of the key position to the score. The op's
/// argument is exact in f32, so that roundings fall alike in the oracle and in a kernel.
std::string bodyOf(llvm::StringRef name) {
  std::string op = name.str();
  // j / 64 + 1; j / 128 where the domain ends at 1; huge for what has a period.
  bool endsAtOne = name == "math.asin" || name == "math.acos" || name == "math.atanh";
  bool isPeriodic = name == "math.sin" || name == "math.cos" || name == "math.tan";
  const char *factor = endsAtOne ? "0.0078125" : isPeriodic ? "1.7179869184e10" : "0.015625";
  const char *offset = endsAtOne ? "0.0" : isPeriodic ? "1.099511627776e12" : "1.0";
  std::string body = fmt::format("%n = arith.index_cast %j : index to i32\n"
                                 "%f = arith.sitofp %n : i32 to f32\n"
                                 "%c = arith.constant {} : f32\n%d = arith.constant {} : f32\n"
                                 "%g = arith.mulf %f, %c : f32\n%x = arith.addf %g, %d : f32\n"
                                 "%three = arith.constant 3 : i32\n",
                                 factor, offset);
  if (name == "math.absi" || name == "math.ctlz" || name == "math.ctpop" || name == "math.cttz")
    body += "%y = " + op + " %n : i32\n%z = arith.sitofp %y : i32 to f32\n";
  else if (name == "math.ipowi")
    body += "%y = math.ipowi %three, %n : i32\n%fifteen = arith.constant 15 : i32\n"
            "%m = arith.andi %y, %fifteen : i32\n%z = arith.sitofp %m : i32 to f32\n";
  else if (name.starts_with("math.is"))
    body += "%y = " + op + " %x : f32\n%z = arith.uitofp %y : i1 to f32\n";
  else if (name == "math.fpowi")
    body += "%z = math.fpowi %x, %three : f32, i32\n";
  else if (name == "math.atan2" || name == "math.copysign" || name == "math.powf")
    body += "%z = " + op + " %x, %d : f32\n";
  else if (name == "math.fma")
    body += "%z = math.fma %x, %x, %d : f32\n";
  else
    body += "%z = " + op + " %x : f32\n";
  return body + "%share = arith.constant 0.25 : f32\n%w = arith.mulf %z, %share : f32\n"
                "%r = arith.addf %s, %w : f32";
}

TEST(RegionOps, EveryMathOpAgreesWithTheOracle) {
  unsigned tried = 0;
  for (llvm::StringRef name : attn::regionOps()) {
    if (!name.starts_with("math."))
      continue;
    SCOPED_TRACE(name.str());
    Compiled f(specWith(bodyOf(name)));
    f.verify(shapeOf({1, 70, 3}, {90, 70, 5}));
    ++tried;
  }
  EXPECT_GT(tried, 40u);
}

TEST(RegionOps, EveryArithOpAgreesWithTheOracle) {
  std::string body =
      "%zero = arith.constant 0.0 : f32\n%three = arith.constant 3 : i32\n"
      "%n = arith.index_cast %j : index to i32\n%five = arith.constant 5 : i32\n"
      "%h2 = arith.index_castui %h : index to i32\n%x = arith.subi %n, %five : i32\n"
      "%big = arith.extui %x : i32 to i64\n%also = arith.extsi %x : i32 to i64\n"
      "%sum = arith.addi %big, %also : i64\n%low = arith.trunci %sum : i64 to i32\n"
      "%f = arith.sitofp %x : i32 to f32\n%u = arith.uitofp %n : i32 to f32\n"
      "%c = arith.constant 1.5 : f32\n"
      "%less = arith.cmpi slt, %x, %h2 : i32\n%above = arith.cmpf ogt, %f, %c : f32\n"
      "%t0 = arith.select %less, %f, %u : f32\n%t1 = arith.select %above, %c, %u : f32\n"
      "%v0 = arith.truncf %c : f32 to f16\n%v1 = arith.extf %v0 : f16 to f32\n"
      "%p = arith.fptosi %f : f32 to i32\n%s0 = arith.sitofp %p : i32 to f32\n"
      "%w = arith.fptoui %u : f32 to i32\n%s1 = arith.sitofp %w : i32 to f32\n"
      "%minus = arith.negf %f : f32\n%wide = arith.sitofp %low : i32 to f32\n";
  std::vector<std::string> reals = {"t0", "t1", "v1", "s0", "s1", "minus", "wide"};
  for (llvm::StringRef op :
       {"addf", "divf", "maximumf", "maxnumf", "minimumf", "minnumf", "mulf", "remf", "subf"}) {
    body += fmt::format("%r_{0} = arith.{0} %f, %c : f32\n", op.str());
    reals.push_back("r_" + op.str());
  }
  for (llvm::StringRef op :
       {"addi",  "andi",  "ceildivsi", "ceildivui", "divsi", "divui", "floordivsi",
        "maxsi", "maxui", "minsi",     "minui",     "muli",  "ori",   "remsi",
        "remui", "shli",  "shrsi",     "shrui",     "subi",  "xori"}) {
    body += fmt::format("%i_{0} = arith.{0} %x, %three : i32\n"
                        "%k_{0} = arith.remsi %i_{0}, %five : i32\n"
                        "%r_{0} = arith.sitofp %k_{0} : i32 to f32\n",
                        op.str());
    reals.push_back("r_" + op.str());
  }
  for (llvm::StringRef op : attn::regionOps())
    if (op.starts_with("arith.")) {
      EXPECT_TRUE(llvm::StringRef(body).contains(op.str() + " ")) << op.str();
    }
  // Weights 1, 7/8, 49/64, ... so that no two errors cancel.
  body += "%share = arith.constant 0.875 : f32\n%a0 = arith.addf %zero, %zero : f32\n";
  for (size_t i = 0; i < reals.size(); ++i)
    body += fmt::format("%b{0} = arith.mulf %a{0}, %share : f32\n%a{1} = arith.addf %b{0}, %{2} : "
                        "f32\n",
                        i, i + 1, reals[i]);
  body +=
      fmt::format("%y = arith.mulf %a{}, %share : f32\n%r = arith.addf %s, %y : f32", reals.size());
  Compiled f(specWith(body));
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

// Attention loops as attn-to-tile writes them, few rows and many, against double.
#include "tests/unit/cpu/Attention.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

using namespace llmopt::cpu::test;

namespace {

struct Case {
  AttentionSpec spec;
  int64_t rows, keys;
};

void check(const Case &test, const Isa &isa) {
  const AttentionSpec &s = test.spec;
  SCOPED_TRACE(testing::Message() << isa.name << " " << s.type << " tile " << s.tileRows << "x"
                                  << s.tileKeys << " d " << s.d << "/" << s.dv << " rows "
                                  << test.rows << " keys " << test.keys << " page " << s.page
                                  << (s.causal ? " causal" : "")
                                  << (s.batchInvariant ? " invariant" : ""));
  auto kernel = Kernel::compile(attentionProgram(s), optionsFor(isa), "attend");
  ASSERT_TRUE(kernel);
  AttentionData data(s, test.rows, test.keys);
  data.run(*kernel);
  auto [output, lse] = data.errors();
  // Rounding of the output and, on bf16 dots, of P: 2^-9 and 2^-12 of values around 1.
  double bound = s.type == "f32" ? 3e-6 : s.type == "f16" ? 2e-3 : 1.6e-2;
  EXPECT_LE(output, bound);
  EXPECT_LE(lse, 1e-5);
  EXPECT_EQ(data.lse(test.rows), 777.0f) << "wrote beyond the last row";
}

void checkAll(std::vector<Case> cases) {
  for (const Isa &isa : availableIsas())
    for (const Case &test : cases)
      check(test, isa);
}

AttentionSpec spec(int64_t rows, int64_t d, int64_t dv, const char *type = "f32") {
  AttentionSpec s;
  s.tileRows = rows, s.d = d, s.dv = dv, s.type = type;
  return s;
}

AttentionSpec causal(AttentionSpec s) { return s.causal = true, s; }
AttentionSpec invariant(AttentionSpec s) { return s.batchInvariant = true, s; }
AttentionSpec paged(AttentionSpec s, int64_t page) { return s.page = page, s; }

TEST(Attention, many_rows) {
  checkAll({{spec(64, 64, 64), 130, 200},
            {spec(32, 80, 96), 33, 64},
            {causal(spec(192, 128, 128)), 200, 300},
            {causal(spec(48, 72, 40)), 100, 90}});
}

TEST(Attention, few_rows) {
  checkAll({{spec(1, 128, 128), 1, 333},
            {spec(4, 64, 80), 4, 100},
            {spec(8, 96, 72), 8, 65},
            {causal(spec(7, 40, 136)), 10, 129},
            {spec(5, 3, 1), 5, 70},
            {spec(3, 1, 3), 3, 31}});
}

TEST(Attention, narrow_types) {
  checkAll({{spec(1, 128, 128, "bf16"), 1, 200},
            {spec(8, 128, 64, "f16"), 8, 100},
            {causal(spec(64, 64, 64, "bf16")), 70, 150},
            {causal(spec(64, 72, 80, "bf16")), 70, 150},
            {spec(32, 3, 5, "bf16"), 32, 70},
            {spec(64, 80, 64, "f16"), 64, 100}});
}

TEST(Attention, pages) {
  checkAll({{paged(spec(4, 64, 64), 16), 4, 100},
            {paged(spec(64, 64, 64, "bf16"), 16), 64, 150},
            {paged(causal(spec(16, 40, 24)), 7), 40, 93},
            {paged(spec(1, 128, 128, "bf16"), 1), 1, 66}});
}

TEST(Attention, few_rows_in_pairs) {
  // Rows of K and V read where they lie; 80 and 72 columns are no whole registers.
  checkAll({{spec(4, 128, 128, "bf16"), 4, 333},
            {causal(spec(8, 64, 96, "bf16")), 20, 129},
            {paged(spec(8, 128, 128, "bf16"), 16), 8, 200},
            {paged(causal(spec(3, 256, 32, "bf16")), 16), 7, 93},
            {spec(5, 80, 64, "bf16"), 5, 70},
            {spec(8, 64, 72, "bf16"), 8, 70},
            {spec(4, 64, 64, "bf16"), 4, 0},
            {invariant(spec(4, 128, 128, "bf16")), 4, 100}});
}

TEST(Attention, no_keys_give_zero_and_minus_infinity) {
  checkAll({{spec(4, 64, 64), 4, 0}, {causal(spec(32, 64, 64)), 40, 7}});
}

TEST(Attention, batch_invariant) {
  checkAll({{invariant(spec(1, 128, 128)), 1, 333},
            {invariant(causal(spec(5, 64, 80))), 5, 100},
            {invariant(spec(192, 64, 64, "bf16")), 192, 130}});
  // The same row, alone and among others: equal bits.
  for (const Isa &isa : availableIsas())
    for (const char *type : {"f32", "bf16"}) {
      SCOPED_TRACE(std::string(isa.name) + " " + type);
      AttentionSpec one = invariant(spec(1, 64, 80, type)),
                    many = invariant(spec(48, 64, 80, type));
      auto a = Kernel::compile(attentionProgram(one), optionsFor(isa), "attend");
      auto b = Kernel::compile(attentionProgram(many), optionsFor(isa), "attend");
      ASSERT_TRUE(a && b);
      AttentionData alone(one, 40, 333), together(many, 40, 333);
      alone.run(*a);
      together.run(*b);
      for (int64_t row = 0; row < 40; ++row)
        for (int64_t i = 0; i < 80; ++i)
          ASSERT_EQ(alone.output(row, i), together.output(row, i)) << row << " " << i;
    }
}

} // namespace

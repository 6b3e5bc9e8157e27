// Tile programs that are not attention: row softmax, product with bias, gathers, control
// flow that carries tiles, memory ops beside them.
#include "tests/support/TilePrograms.h"
#include "tests/unit/cpu/Harness.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <random>

using namespace llmopt::cpu::test;
using namespace llmopt::test;

namespace {

const float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Tile, row_softmax_over_strided_rows) {
  for (const Isa &isa : availableIsas())
    for (auto [rows, columns] : {std::pair<int64_t, int64_t>{7, 75}, {1, 1}, {5, 16}, {3, 300}}) {
      SCOPED_TRACE(testing::Message() << isa.name << " " << rows << "x" << columns);
      auto kernel = Kernel::compile(rowSoftmax(rows, columns), optionsFor(isa), "softmax");
      ASSERT_TRUE(kernel);
      int64_t stride = columns + 3, used = rows > 1 ? rows - 1 : 1;
      std::vector<float> x((rows + 1) * stride, kNan), y(x.size(), 777.0f);
      std::mt19937 random(1);
      std::normal_distribution<float> normal;
      for (int64_t r = 0; r < used; ++r)
        for (int64_t c = 0; c < columns; ++c)
          x[(r + 1) * stride + c] = normal(random);
      kernel->slot(x.data()).slot(y.data()).slot(stride).slot(used);
      ASSERT_EQ(kernel->run(/*worker=*/1), 0);
      for (int64_t r = 0; r < used; ++r) {
        double total = 0;
        for (int64_t c = 0; c < columns; ++c)
          total += std::exp(double(x[(r + 1) * stride + c]));
        for (int64_t c = 0; c < columns; ++c)
          ASSERT_NEAR(y[(r + 1) * stride + c], std::exp(double(x[(r + 1) * stride + c])) / total,
                      3e-7);
        ASSERT_EQ(y[(r + 1) * stride + columns], 777.0f);
      }
      ASSERT_EQ(y[0], 777.0f);
    }
}

TEST(Tile, matmul_with_bias_of_odd_sizes) {
  struct Size {
    int64_t m, n, k;
  };
  for (const Isa &isa : availableIsas())
    for (Size s : {Size{5, 7, 9},
                   {1, 33, 65},
                   {32, 24, 17},
                   {48, 1, 5},
                   {64, 13, 1},
                   {1, 1, 1},
                   {7, 50, 40}})
      for (MatmulLoad form : kMatmulLoads) {
        SCOPED_TRACE(testing::Message() << isa.name << " " << s.m << "x" << s.n << "x" << s.k
                                        << " form " << int(form));
        auto kernel =
            Kernel::compile(matmul(s.m, s.n, s.k, "f32", form), optionsFor(isa), "matmul");
        ASSERT_TRUE(kernel);
        std::mt19937 random(2);
        std::normal_distribution<float> normal;
        std::vector<float> x(s.m * s.k), w(s.k * s.n), bias(s.n), y(s.m * s.n, 777.0f);
        for (auto *v : {&x, &w, &bias})
          for (float &e : *v)
            e = normal(random);
        int64_t limit = s.n > 4 ? s.n - 2 : s.n;
        for (int64_t c = limit; c < s.n; ++c)
          bias[c] = kNan;
        kernel->slot(x.data()).slot(w.data()).slot(bias.data()).slot(y.data()).slot(limit);
        kernel->run();
        for (int64_t r = 0; r < s.m; ++r)
          for (int64_t c = 0; c < s.n; ++c) {
            double sum = 0.5 + bias[c];
            for (int64_t i = 0; i < s.k; ++i)
              sum += double(x[r * s.k + i]) *
                     (form == MatmulLoad::Plain ? w[i * s.n + c] : w[c * s.k + i]);
            ASSERT_NEAR(y[r * s.n + c], c < limit ? std::max(sum, 0.0) : 777.0, 1e-5)
                << r << " " << c;
          }
      }
}

TEST(Tile, max_propagates_nan_and_padding_stays_out) {
  const char *text = R"(
func.func @rows(%x: memref<?xf32>, %y: memref<?xf32>) attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c9 = arith.constant 9 : index
  %rows = tile.strided_rows %c0, %c9, %c9 : tensor<9x1xi64>
  %one = tile.strided_rows %c0, %c1, %c9 : tensor<9x1xi64>
  %two = tile.strided_rows %c9, %c1, %c9 : tensor<9x1xi64>
  %t = tile.load %x[%rows] : memref<?xf32>, tensor<9x1xi64> -> tensor<9x9xf32>
  %mx = tile.reduce max %t : tensor<9x9xf32> -> tensor<9x1xf32>
  %sm = tile.reduce sum %t : tensor<9x9xf32> -> tensor<9x1xf32>
  tile.store %mx, %y[%one] : tensor<9x1xf32>, memref<?xf32>, tensor<9x1xi64>
  tile.store %sm, %y[%two] : tensor<9x1xf32>, memref<?xf32>, tensor<9x1xi64>
  return
})";
  for (const Isa &isa : availableIsas()) {
    SCOPED_TRACE(isa.name);
    auto kernel = Kernel::compile(text, optionsFor(isa), "rows");
    ASSERT_TRUE(kernel);
    std::vector<float> x(81, -3.0f), y(18);
    for (int r = 0; r < 9; ++r)
      x[r * 9 + r] = r == 4 ? kNan : r;
    x[7 * 9 + 0] = -INFINITY;
    kernel->slot(x.data()).slot(y.data()).run();
    for (int r = 0; r < 9; ++r) {
      if (r == 4) {
        EXPECT_TRUE(std::isnan(y[r]));
        EXPECT_TRUE(std::isnan(y[9 + r]));
        continue;
      }
      EXPECT_EQ(y[r], r);
      EXPECT_EQ(y[9 + r], r == 7 ? -INFINITY : r - 24.0f);
    }
  }
}

/// Row addresses through a table with -1 entries; all that must not be read is NaN.
TEST(Tile, gather_of_missing_rows_reads_nothing) {
  const char *text = R"(
func.func @gather(%x: memref<?xf32>, %table: memref<?xi32>, %y: memref<?xf32>, %key: index, %n: index)
    attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %c5 = arith.constant 5 : index
  %c11 = arith.constant 11 : index
  %c20 = arith.constant 20 : index
  %c33 = arith.constant 33 : index
  %rows = tile.paged_rows %table[%c0] from %key count %n page 3 offset %c5 strides %c33, %c11 : memref<?xi32>, tensor<20x1xi64>
  %t = tile.load %x[%rows] : memref<?xf32>, tensor<20x1xi64> -> tensor<20x11xf32>
  %out = tile.strided_rows %c0, %c11, %c20 : tensor<20x1xi64>
  tile.store %t, %y[%out] : tensor<20x11xf32>, memref<?xf32>, tensor<20x1xi64>
  return
})";
  for (const Isa &isa : availableIsas()) {
    SCOPED_TRACE(isa.name);
    auto kernel = Kernel::compile(text, optionsFor(isa), "gather");
    ASSERT_TRUE(kernel);
    std::vector<int32_t> table = {2, -1, 0, 3, -1, 1, 1 << 30};
    std::vector<float> x(5 + 4 * 33, kNan), y(220, kNan);
    for (int64_t key : {1, 2, 6, 7, 8, 9, 10, 11, 15, 16})
      for (int64_t i = 0; i < 11; ++i)
        x[5 + table[key / 3] * 33 + key % 3 * 11 + i] = key * 100 + i;
    kernel->slot(x.data())
        .slot(table.data())
        .slot(y.data())
        .slot(int64_t(1))
        .slot(int64_t(16))
        .run();
    for (int64_t r = 0; r < 20; ++r)
      for (int64_t i = 0; i < 11; ++i) {
        int64_t key = 1 + r;
        bool there = r < 16 && table[key / 3] >= 0;
        ASSERT_EQ(y[r * 11 + i], there ? key * 100 + i : 0) << r;
      }
  }
}

/// Swapped loop-carried tiles, an if that yields tiles, a tile used after the loop that
/// took it as its start, and scalar memory ops.
TEST(Tile, control_flow_carries_tiles) {
  const char *text = R"(
func.func @flow(%x: memref<?xf32>, %y: memref<?xf32>, %trips: index, %counter: memref<?xi64>) attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c6 = arith.constant 6 : index
  %c18 = arith.constant 18 : index
  %c36 = arith.constant 36 : index
  %rows = tile.strided_rows %c0, %c6, %c3 : tensor<3x1xi64>
  %more = tile.strided_rows %c18, %c6, %c3 : tensor<3x1xi64>
  %last = tile.strided_rows %c36, %c6, %c3 : tensor<3x1xi64>
  %a0 = tile.load %x[%rows] : memref<?xf32>, tensor<3x1xi64> -> tensor<3x6xf32>
  %b0 = arith.constant dense<2.0> : tensor<3x6xf32>
  %r:3 = scf.for %i = %c0 to %trips step %c1 iter_args(%a = %a0, %b = %b0, %n = %c0) -> (tensor<3x6xf32>, tensor<3x6xf32>, index) {
    %odd = arith.remui %i, %c3 : index
    %is = arith.cmpi eq, %odd, %c1 : index
    %n1 = arith.addi %n, %c1 : index
    %c = scf.if %is -> (tensor<3x6xf32>) {
      %s = tile.map(%a, %b : tensor<3x6xf32>, tensor<3x6xf32>) {
      ^bb0(%u: f32, %v: f32, %rr: i32, %cc: i32):
        %w = arith.addf %u, %v : f32
        tile.yield %w : f32
      } -> tensor<3x6xf32>
      scf.yield %s : tensor<3x6xf32>
    } else {
      scf.yield %a : tensor<3x6xf32>
    }
    scf.yield %b, %c, %n1 : tensor<3x6xf32>, tensor<3x6xf32>, index
  }
  tile.store %r#0, %y[%rows] : tensor<3x6xf32>, memref<?xf32>, tensor<3x1xi64>
  tile.store %r#1, %y[%more] : tensor<3x6xf32>, memref<?xf32>, tensor<3x1xi64>
  tile.store %a0, %y[%last] : tensor<3x6xf32>, memref<?xf32>, tensor<3x1xi64>
  %old = memref.load %counter[%c1] : memref<?xi64>
  %nn = arith.index_cast %r#2 : index to i64
  %new = arith.addi %old, %nn : i64
  memref.store %new, %counter[%c1] : memref<?xi64>
  return
})";
  for (const Isa &isa : availableIsas())
    for (int64_t trips : {0, 1, 2, 5, 8}) {
      SCOPED_TRACE(testing::Message() << isa.name << " " << trips);
      auto kernel = Kernel::compile(text, optionsFor(isa), "flow");
      ASSERT_TRUE(kernel);
      std::vector<float> x(18), y(54);
      std::vector<int64_t> counter = {1, 2, 3};
      for (int i = 0; i < 18; ++i)
        x[i] = i;
      kernel->slot(x.data()).slot(y.data()).slot(trips).slot(counter.data()).run();
      std::vector<float> a = x, b(18, 2.0f);
      for (int64_t i = 0; i < trips; ++i) {
        std::vector<float> c = a;
        if (i % 3 == 1)
          for (int j = 0; j < 18; ++j)
            c[j] = a[j] + b[j];
        a = b;
        b = c;
      }
      for (int i = 0; i < 18; ++i) {
        EXPECT_EQ(y[i], a[i]);
        EXPECT_EQ(y[18 + i], b[i]);
        EXPECT_EQ(y[36 + i], x[i]);
      }
      EXPECT_EQ(counter[1], 2 + trips);
    }
}

/// Loads inside a map (a bias by row and column), bool tiles, divisions, f32 slots.
TEST(Tile, map_regions) {
  const char *text = R"(
func.func @region(%bias: memref<?xf16>, %y: memref<?xf32>, %d: i32, %f: f32) attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %c13 = arith.constant 13 : index
  %rows = tile.strided_rows %c0, %c13, %c13 : tensor<5x1xi64>
  %flag = tile.map() {
  ^bb0(%r: i32, %c: i32):
    %two = arith.constant 2 : i32
    %q = arith.divsi %c, %two : i32
    %z = arith.remsi %q, %d : i32
    %b = arith.cmpi eq, %z, %r : i32
    tile.yield %b : i1
  } -> tensor<5x13xi1>
  %o = tile.map(%flag : tensor<5x13xi1>) {
  ^bb0(%b: i1, %r: i32, %c: i32):
    %w = arith.constant 13 : i32
    %i0 = arith.muli %r, %w : i32
    %i1 = arith.addi %i0, %c : i32
    %i2 = arith.index_cast %i1 : i32 to index
    %h = memref.load %bias[%i2] : memref<?xf16>
    %v = arith.extf %h : f16 to f32
    %s = arith.select %b, %v, %f : f32
    tile.yield %s : f32
  } -> tensor<5x13xf32>
  tile.store %o, %y[%rows] : tensor<5x13xf32>, memref<?xf32>, tensor<5x1xi64>
  return
})";
  for (const Isa &isa : availableIsas()) {
    SCOPED_TRACE(isa.name);
    auto kernel = Kernel::compile(text, optionsFor(isa), "region");
    ASSERT_TRUE(kernel);
    std::vector<uint16_t> bias(65);
    std::vector<float> y(65);
    for (int i = 0; i < 65; ++i)
      bias[i] = toF16(i * 0.25f);
    kernel->slot(bias.data()).slot(y.data()).slot(int64_t(5)).slot(1.5f).run();
    for (int r = 0; r < 5; ++r)
      for (int c = 0; c < 13; ++c)
        ASSERT_EQ(y[r * 13 + c], c / 2 % 5 == r ? (r * 13 + c) * 0.25f : 1.5f) << r << " " << c;
  }
}

} // namespace

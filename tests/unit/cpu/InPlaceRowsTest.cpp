// Products with few rows whose second operand is read where it lies in memory.
#include "tests/unit/cpu/Harness.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

using namespace llmopt::cpu::test;

namespace {

constexpr int64_t kRows = 32;               // of B
constexpr int64_t kPitch = 51, kOffset = 2; // in memory: rows apart, the first column read
constexpr int64_t kApart = kRows * kPitch;  // slices

struct Type {
  const char *name;
  uint16_t (*pack)(float); ///< null: f32
  float (*unpack)(uint16_t);
};
const Type kTypes[] = {
    {"f32", nullptr, nullptr}, {"bf16", toBf16, fromBf16}, {"f16", toF16, fromF16}};

/// C = A B^T or A B for `m` rows of A, where row r of B lies at table[r] and -1 is a row of zeros;
/// with slices, each has m rows of A and its own part of B.
std::string product(const std::string &type, int64_t m, int64_t columns, bool transposed,
                    int64_t slices) {
  std::string k = std::to_string(transposed ? columns : kRows),
              n = std::to_string(transposed ? kRows : columns), rows = std::to_string(m * slices),
              b = std::to_string(kRows * slices) + "x" + std::to_string(columns),
              count = std::to_string(kRows), inSlices, apart;
  if (slices > 1) {
    inSlices = " slices " + std::to_string(slices);
    apart = inSlices + " apart(%apart)";
  }
  return "func.func @product(%a: memref<?xf32>, %b: memref<?x" + type +
         ">, %table: memref<?xi32>, %c: memref<?xf32>, %key: index) attributes {tile.kernel} {\n"
         "  %c0 = arith.constant 0 : index\n  %c1 = arith.constant 1 : index\n"
         "  %c2 = arith.constant 2 : index\n"
         "  %apart = arith.constant " +
         std::to_string(kApart) + " : index\n  %pitch = arith.constant " + std::to_string(kPitch) +
         " : index\n"
         "  %m = arith.constant " +
         rows + " : index\n  %k = arith.constant " + k +
         " : index\n"
         "  %n = arith.constant " +
         n + " : index\n  %count = arith.constant " + count +
         " : index\n"
         "  %ar = tile.strided_rows %c0, %k, %m : tensor<" +
         rows +
         "x1xi64>\n"
         "  %at = tile.load %a[%ar] : memref<?xf32>, tensor<" +
         rows + "x1xi64> -> tensor<" + rows + "x" + k +
         "xf32>\n"
         "  %br = tile.paged_rows %table[%c1] from %key count %count page 1 offset %c2 strides "
         "%pitch, %c1 : memref<?xi32>, tensor<" +
         count +
         "x1xi64>\n"
         "  %bt = tile.load %b[%br]" +
         apart + " : memref<?x" + type + ">, tensor<" + count + "x1xi64> -> tensor<" + b + "x" +
         type +
         ">\n"
         "  %zero = arith.constant dense<0.0> : tensor<" +
         rows + "x" + n +
         "xf32>\n"
         "  %p = tile.map(%at : tensor<" +
         rows + "x" + k +
         "xf32>) {\n"
         "  ^bb0(%x: f32, %i: i32, %j: i32):\n" +
         (type == "f32" ? "    tile.yield %x : f32\n"
                        : "    %y = arith.truncf %x : f32 to " + type +
                              "\n    tile.yield %y : " + type + "\n") +
         "  } -> tensor<" + rows + "x" + k + "x" + type +
         ">\n"
         "  %r = tile.mma %p, %bt, %zero" +
         (transposed ? " transpose_b" : "") + inSlices + " : tensor<" + rows + "x" + k + "x" +
         type + ">, tensor<" + b + "x" + type + ">, tensor<" + rows + "x" + n +
         "xf32>\n"
         "  %cr = tile.strided_rows %c0, %n, %m : tensor<" +
         rows +
         "x1xi64>\n"
         "  tile.store %r, %c[%cr] : tensor<" +
         rows + "x" + n + "xf32>, memref<?xf32>, tensor<" + rows + "x1xi64>\n  return\n}\n";
}

void check(const Isa &isa, const Type &type, int64_t m, int64_t columns, bool transposed,
           int64_t slices = 1) {
  auto kernel = Kernel::compile(product(type.name, m, columns, transposed, slices), optionsFor(isa),
                                "product");
  ASSERT_TRUE(kernel);
  std::mt19937 engine(unsigned(m + transposed));
  std::uniform_real_distribution<float> draw(-1, 1);
  int64_t k = transposed ? columns : kRows, n = transposed ? kRows : columns;
  std::vector<float> a(slices * m * k), c(slices * m * n, std::nanf(""));
  for (float &value : a)
    value = type.pack ? type.unpack(type.pack(draw(engine))) : draw(engine);
  // Rows in any order, one of them missing; everything outside of them is NaN.
  std::vector<int32_t> table(1 + kRows);
  for (int64_t r = 0; r < kRows; ++r)
    table[1 + r] = int32_t((r * 7 + 3) % kRows);
  table[1 + 5] = -1;
  std::vector<float> b(slices * kApart + columns, std::nanf(""));
  auto place = [&](int64_t slice, int64_t r, int64_t j) {
    return slice * kApart + kOffset + table[1 + r] * kPitch + j;
  };
  for (int64_t i = 0; i < slices * kRows; ++i)
    for (int64_t j = 0; j < columns && table[1 + i % kRows] >= 0; ++j) {
      float value = draw(engine);
      b[place(i / kRows, i % kRows, j)] = type.pack ? type.unpack(type.pack(value)) : value;
    }
  std::vector<uint16_t> narrow;
  for (float value : b)
    narrow.push_back(type.pack ? type.pack(value) : 0);
  kernel->slot(a.data())
      .slot(type.pack ? static_cast<const void *>(narrow.data()) : b.data())
      .slot(table.data())
      .slot(c.data())
      .slot(int64_t(0))
      .run();
  auto element = [&](int64_t slice, int64_t r, int64_t j) {
    return table[1 + r] < 0 ? 0.0 : double(b[place(slice, r, j)]);
  };
  for (int64_t i = 0; i < slices * m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double wanted = 0, size = 0;
      for (int64_t x = 0; x < k; ++x) {
        double term =
            double(a[i * k + x]) * (transposed ? element(i / m, j, x) : element(i / m, x, j));
        wanted += term, size += std::abs(term);
      }
      // k additions in f32, in any order.
      ASSERT_NEAR(c[i * n + j], wanted, double(k) * 0x1p-24 * size + 0x1p-126)
          << isa.name << " " << type.name << " m " << m << " columns " << columns << " slices "
          << slices << " at " << i << ", " << j;
    }
}

TEST(InPlaceRows, few_rows_of_any_number_and_type) {
  for (const Isa &isa : availableIsas())
    for (const Type &type : kTypes)
      for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9})
        for (bool transposed : {false, true}) {
          check(isa, type, m, 48, transposed);
          if (HasFatalFailure())
            return;
        }
}

// Parts of B for slices of A, as the keys of several heads: in place, and where no product of
// few rows takes them (9 rows, 20 columns), each slice by itself.
TEST(InPlaceRows, slices_with_a_part_of_B_each) {
  for (const Isa &isa : availableIsas())
    for (const Type &type : kTypes)
      for (int64_t slices : {2, 3})
        for (auto [m, columns] :
             {std::pair<int64_t, int64_t>{1, 32}, {4, 32}, {5, 32}, {8, 32}, {9, 32}, {3, 20}})
          for (bool transposed : {false, true}) {
            check(isa, type, m, columns, transposed, slices);
            if (HasFatalFailure())
              return;
          }
}

// Whole registers of 8 lanes, but no whole pairs of them.
TEST(InPlaceRows, rows_of_bf16_that_do_not_split_into_pairs) {
  for (const Isa &isa : availableIsas())
    for (int64_t m : {1, 3, 4, 8})
      for (bool transposed : {false, true}) {
        check(isa, kTypes[1], m, 40, transposed);
        if (HasFatalFailure())
          return;
      }
}

} // namespace

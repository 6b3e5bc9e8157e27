// tile.used_rows on the CPU, in a program that is not attention.
#include "tests/unit/cpu/Harness.h"

#include <gtest/gtest.h>

using namespace llmopt::cpu::test;

/// Rows that tile.used_rows leaves out keep what the loop carries, in steps of four vectors; all
/// others are computed. Trip t adds 1 to rows from 64 t on.
TEST(UsedRows, OthersKeepWhatTheLoopCarries) {
  std::string text = R"(
func.func @apply(%x: memref<?xf32>, %y: memref<?xf32>) attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c16 = arith.constant 16 : index
  %c64 = arith.constant 64 : index
  %c192 = arith.constant 192 : index
  %rows = tile.strided_rows %c0, %c16, %c192 : tensor<192x1xi64>
  %few = tile.strided_rows %c0, %c16, %c16 : tensor<16x1xi64>
  %a = tile.load %x[%rows] : memref<?xf32>, tensor<192x1xi64> -> tensor<192x16xf32>
  %z = arith.constant dense<0.0> : tensor<192x16xf32>
  %o = scf.for %t = %c0 to %c3 step %c1 iter_args(%acc = %z) -> (tensor<192x16xf32>) {
    %from = arith.muli %t, %c64 : index
    tile.used_rows %from to %c192 of 192
    %b = tile.load %x[%few] : memref<?xf32>, tensor<16x1xi64> -> tensor<16x16xf32>
    %p = tile.mma %a, %b, %acc : tensor<192x16xf32>, tensor<16x16xf32>, tensor<192x16xf32>
    scf.yield %p : tensor<192x16xf32>
  }
  tile.store %o, %y[%rows] : tensor<192x16xf32>, memref<?xf32>, tensor<192x1xi64>
  return
})";
  for (const Isa &isa : availableIsas()) {
    SCOPED_TRACE(isa.name);
    auto kernel = Kernel::compile(text, optionsFor(isa), "apply");
    ASSERT_TRUE(kernel);
    std::vector<float> x(192 * 16, 0.0f), y(192 * 16, -1.0f);
    for (int row = 0; row < 192; ++row)
      x[row * 16 + row % 16] = 1; // rows of the unit matrix, so B is one
    kernel->slot(x.data()).slot(y.data());
    ASSERT_EQ(kernel->run(), 0);
    for (int row = 0; row < 192; ++row)
      EXPECT_EQ(y[row * 16 + row % 16], float(1 + row / 64)) << row;
  }
}

// RUN: llm-opt opt --pass-pipeline='builtin.module(func.func(tile-gpu-assign-layouts{warps=4}))' %s | FileCheck %s

// The warps of a block walk together: all rows are computed.
// CHECK-LABEL: func.func @all
// CHECK-NOT:     tile.used_rows
// CHECK:         tile.map
func.func @all(%m: memref<?xf32>, %n: index) attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %rows = tile.strided_rows %c0, %n, %n : tensor<64x1xi64>
  tile.used_rows %c0 to %n of 64
  %a = tile.load %m[%rows] : memref<?xf32>, tensor<64x1xi64> -> tensor<64x16xf32>
  %q = tile.map(%a : tensor<64x16xf32>) {
  ^bb0(%x: f32, %r: i32, %c: i32):
    %y = arith.addf %x, %x : f32
    tile.yield %y : f32
  } -> tensor<64x16xf32>
  tile.store %q, %m[%rows] : tensor<64x16xf32>, memref<?xf32>, tensor<64x1xi64>
  return
}

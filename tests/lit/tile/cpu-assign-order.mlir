// RUN: llm-opt opt --tile-cpu-assign-order=features=avx512f %s | FileCheck %s

// 64 rows: the whole chain by columns, through the loop; B and one-column tiles are free.
// CHECK-LABEL: func.func @many_rows
// CHECK:         %[[Q:.*]] = tile.load {{.*}} -> tensor<64x8xf32, #tile.order<columns>>
// CHECK:         scf.for {{.*}} -> (tensor<64x8xf32, #tile.order<columns>>)
// CHECK:           %[[K:.*]] = tile.load {{.*}} -> tensor<32x8xf32>
// CHECK:           tile.mma %[[Q]], %[[K]], {{.*}} transpose_b : tensor<64x8xf32, #tile.order<columns>>, tensor<32x8xf32>, tensor<64x32xf32, #tile.order<columns>>
func.func @many_rows(%m: memref<?xf32>, %qr: tensor<64x1xi64>, %kr: tensor<32x1xi64>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zs = arith.constant dense<0.0> : tensor<64x32xf32>
  %za = arith.constant dense<0.0> : tensor<64x8xf32>
  %q = tile.load %m[%qr] : memref<?xf32>, tensor<64x1xi64> -> tensor<64x8xf32>
  %o = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %za) -> tensor<64x8xf32> {
    %k = tile.load %m[%kr] : memref<?xf32>, tensor<32x1xi64> -> tensor<32x8xf32>
    %s = tile.mma %q, %k, %zs transpose_b : tensor<64x8xf32>, tensor<32x8xf32>, tensor<64x32xf32>
    %a = tile.mma %s, %k, %acc : tensor<64x32xf32>, tensor<32x8xf32>, tensor<64x8xf32>
    scf.yield %a : tensor<64x8xf32>
  }
  tile.store %o, %m[%qr] : tensor<64x8xf32>, memref<?xf32>, tensor<64x1xi64>
  return
}

// Few rows stay by rows, unless a row must not depend on their number.
// CHECK-LABEL: func.func @few_rows
// CHECK-NOT:     tile.order
// CHECK:         return
func.func @few_rows(%a: tensor<4x8xf32>, %b: tensor<8x8xf32>, %c: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %o = tile.mma %a, %b, %c : tensor<4x8xf32>, tensor<8x8xf32>, tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @invariant
// CHECK:         tile.mma {{.*}} : tensor<4x8xf32, #tile.order<columns>>, tensor<8x8xf32>, tensor<4x8xf32, #tile.order<columns>>
func.func @invariant(%m: memref<?xf32>, %r: tensor<4x1xi64>, %s: tensor<8x1xi64>) attributes {tile.batch_invariant} {
  %z = arith.constant dense<0.0> : tensor<4x8xf32>
  %a = tile.load %m[%r] : memref<?xf32>, tensor<4x1xi64> -> tensor<4x8xf32>
  %b = tile.load %m[%s] : memref<?xf32>, tensor<8x1xi64> -> tensor<8x8xf32>
  %o = tile.mma %a, %b, %z : tensor<4x8xf32>, tensor<8x8xf32>, tensor<4x8xf32>
  tile.store %o, %m[%r] : tensor<4x8xf32>, memref<?xf32>, tensor<4x1xi64>
  return
}

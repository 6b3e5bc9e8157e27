// RUN: llm-opt opt --convert-tile-to-vector=features=avx512f %s | FileCheck %s

// Of 192 rows by columns, those that a trip changes, in steps of 64: products, maps and copies.
// CHECK-LABEL: func.func @trips
// CHECK:           %[[FROM:.*]] = arith.divui
// CHECK-NEXT:      arith.constant 64
// CHECK-NEXT:      %[[FIRST:.*]] = arith.muli %[[FROM]]
// CHECK:           %[[TO:.*]] = arith.divui
// CHECK-NEXT:      arith.constant 64
// CHECK-NEXT:      %[[END:.*]] = arith.muli %[[TO]]
// CHECK:           scf.for %{{.*}} = %[[FIRST]] to %[[END]] step %c64
// CHECK:             math.fma
// CHECK:           scf.for %{{.*}} = %[[FIRST]] to %[[END]] step %c64
// CHECK:             arith.addf
func.func @trips(%m: memref<?xf32>, %n: index) attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %z = arith.constant dense<0.0> : tensor<192x16xf32, #tile.order<columns>>
  %rows = tile.strided_rows %c0, %n, %n : tensor<192x1xi64>
  %few = tile.strided_rows %c0, %n, %n : tensor<16x1xi64>
  %a = tile.load %m[%rows] : memref<?xf32>, tensor<192x1xi64> -> tensor<192x16xf32, #tile.order<columns>>
  %b = tile.load %m[%few] : memref<?xf32>, tensor<16x1xi64> -> tensor<16x16xf32>
  %o = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %z) -> tensor<192x16xf32, #tile.order<columns>> {
    tile.used_rows %i to %n of 192
    %p = tile.mma %a, %b, %acc transpose_b : tensor<192x16xf32, #tile.order<columns>>, tensor<16x16xf32>, tensor<192x16xf32, #tile.order<columns>>
    %q = tile.map(%p : tensor<192x16xf32, #tile.order<columns>>) {
    ^bb0(%x: f32, %r: i32, %c: i32):
      %y = arith.addf %x, %x : f32
      tile.yield %y : f32
    } -> tensor<192x16xf32, #tile.order<columns>>
    scf.yield %q : tensor<192x16xf32, #tile.order<columns>>
  }
  tile.store %o, %m[%rows] : tensor<192x16xf32, #tile.order<columns>>, memref<?xf32>, tensor<192x1xi64>
  return
}

// Rows by rows, and a load of such rows in the block, are computed all.
// CHECK-LABEL: func.func @all
// CHECK:         scf.for %{{.*}} = %c0{{.*}} to %c192{{.*}} step %c64
func.func @all(%m: memref<?xf32>, %n: index) attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %rows = tile.strided_rows %c0, %n, %n : tensor<192x1xi64>
  tile.used_rows %c0 to %n of 192
  %a = tile.load %m[%rows] : memref<?xf32>, tensor<192x1xi64> -> tensor<192x16xf32, #tile.order<columns>>
  %q = tile.map(%a : tensor<192x16xf32, #tile.order<columns>>) {
  ^bb0(%x: f32, %r: i32, %c: i32):
    %y = arith.addf %x, %x : f32
    tile.yield %y : f32
  } -> tensor<192x16xf32, #tile.order<columns>>
  tile.store %q, %m[%rows] : tensor<192x16xf32, #tile.order<columns>>, memref<?xf32>, tensor<192x1xi64>
  return
}

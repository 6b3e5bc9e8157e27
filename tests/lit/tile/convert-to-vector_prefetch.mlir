// RUN: llm-opt opt --convert-tile-to-vector=features=avx512f,fma %s | FileCheck %s

// Products that widen B in registers ask for the rows to come a line at a time, from as many rows
// as a request has lines, a quarter of the tile apart each: all 256 lines in 64 requests.
// CHECK-LABEL: func.func @spread
// CHECK:         %[[ROW:.*]] = arith.divui %[[I:.*]], %c4
// CHECK:         %[[LINE:.*]] = arith.remui %[[I]], %c4
// CHECK:         memref.load %[[ROWS:.*]][%c0{{.*}}, %[[ROW]]] : memref<1x64xi64>
// CHECK:         memref.prefetch %arg1
// CHECK:         %[[SECOND:.*]] = arith.addi %[[ROW]], %c16
// CHECK:         memref.load %[[ROWS]][%c0{{.*}}, %[[SECOND]]]
// CHECK:         arith.muli %[[LINE]], %c32
// CHECK:         memref.prefetch %arg1
// CHECK:         %[[THIRD:.*]] = arith.addi %[[ROW]], %c32
// CHECK:         memref.load %[[ROWS]][%c0{{.*}}, %[[THIRD]]]
// CHECK:         memref.prefetch %arg1
// CHECK:         %[[FOURTH:.*]] = arith.addi %[[ROW]], %c48
// CHECK:         memref.load %[[ROWS]][%c0{{.*}}, %[[FOURTH]]]
// CHECK:         memref.prefetch %arg1
// CHECK-NOT:     memref.prefetch
func.func @spread(%m: memref<?xf32>, %b: memref<?xbf16>, %n: index) attributes {tile.kernel} {
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %four = tile.strided_rows %n, %n, %c128 : tensor<4x1xi64>
  %rows = tile.strided_rows %n, %c64, %c128 : tensor<64x1xi64>
  %next = tile.strided_rows %c64, %c64, %c128 : tensor<64x1xi64>
  %q = tile.load %m[%four] : memref<?xf32>, tensor<4x1xi64> -> tensor<4x128xf32>
  %zero = arith.constant dense<0.0> : tensor<4x64xf32>
  %k = tile.load %b[%rows] : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x128xf32>
  tile.prefetch %b[%next] columns 128 : memref<?xbf16>, tensor<64x1xi64>
  %s = tile.mma %q, %k, %zero transpose_b : tensor<4x128xf32>, tensor<64x128xf32>, tensor<4x64xf32>
  tile.store %s, %m[%four] : tensor<4x64xf32>, memref<?xf32>, tensor<4x1xi64>
  return
}

// RUN: llm-opt opt --tile-cpu-fetch-ahead %s | FileCheck %s

// The rows of the next trip, clamped to the loop's last, named before the product.
// CHECK-LABEL: func.func @paged
// CHECK:         scf.for %[[T:.*]] = %arg4 to %[[HIGH:.*]] step %[[ONE:.*]] iter_args
// CHECK:           %[[ROWS:.*]] = tile.paged_rows
// CHECK:           tile.load %arg1[%[[ROWS]]]
// CHECK:           %[[NEXT:.*]] = arith.addi %[[T]], %[[ONE]]
// CHECK:           %[[MORE:.*]] = arith.cmpi slt, %[[NEXT]], %[[HIGH]]
// CHECK:           %[[TRIP:.*]] = arith.select %[[MORE]], %[[NEXT]], %[[T]]
// CHECK:           %[[KEY:.*]] = arith.muli %[[TRIP]], %c64
// CHECK:           %[[AHEAD:.*]] = tile.paged_rows %arg2[%c0] from %[[KEY]]
// CHECK:           tile.prefetch %arg1[%[[AHEAD]]] columns 128
// CHECK-NEXT:      tile.mma
func.func @paged(%q: tensor<4x128xbf16>, %b: memref<?xbf16>, %table: memref<?xi32>, %stride: index,
                 %low: index, %high: index, %zero: tensor<4x64xf32>) -> tensor<4x64xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %r = scf.for %t = %low to %high step %c1 iter_args(%s = %zero) -> (tensor<4x64xf32>) {
    %key = arith.muli %t, %c64 : index
    %rows = tile.paged_rows %table[%c0] from %key count %c64 page 16 offset %c0
            strides %stride, %stride : memref<?xi32>, tensor<64x1xi64>
    %k = tile.load %b[%rows] : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x128xbf16>
    %n = tile.mma %q, %k, %s transpose_b : tensor<4x128xbf16>, tensor<64x128xbf16>, tensor<4x64xf32>
    scf.yield %n : tensor<4x64xf32>
  }
  return %r : tensor<4x64xf32>
}

// Beside a product of many rows as well, whatever the stride of a row's elements.
// CHECK-LABEL: func.func @many
// CHECK:         tile.load
// CHECK:         tile.prefetch %arg1[%{{.*}}] columns 128
// CHECK-NEXT:    tile.mma
func.func @many(%q: tensor<192x128xf32>, %b: memref<?xf32>, %low: index, %high: index,
                %stride: index, %zero: tensor<192x64xf32>) -> tensor<192x64xf32> {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %r = scf.for %t = %low to %high step %c1 iter_args(%s = %zero) -> (tensor<192x64xf32>) {
    %at = arith.muli %t, %c64 : index
    %rows = tile.strided_rows %at, %c64, %c64 : tensor<64x1xi64>
    %k = tile.load %b[%rows] stride(%stride) : memref<?xf32>, tensor<64x1xi64> -> tensor<64x128xf32>
    %n = tile.mma %q, %k, %s transpose_b : tensor<192x128xf32>, tensor<64x128xf32>, tensor<192x64xf32>
    scf.yield %n : tensor<192x64xf32>
  }
  return %r : tensor<192x64xf32>
}

// Rows that do not follow from the counter, and a loop of one trip at most: nothing.
// CHECK-LABEL: func.func @nothing
// CHECK-NOT:     tile.prefetch
func.func @nothing(%q: tensor<4x128xbf16>, %b: memref<?xbf16>,
                   %same: tensor<64x1xi64>, %low: index, %high: index, %some: i1,
                   %zero: tensor<4x64xf32>) -> (tensor<4x64xf32>, tensor<4x64xf32>) {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %r = scf.for %t = %low to %high step %c1 iter_args(%s = %zero) -> (tensor<4x64xf32>) {
    %k = tile.load %b[%same] : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x128xbf16>
    %n = tile.mma %q, %k, %s transpose_b : tensor<4x128xbf16>, tensor<64x128xbf16>, tensor<4x64xf32>
    scf.yield %n : tensor<4x64xf32>
  }
  %next = arith.addi %low, %c1 : index
  %to = arith.select %some, %next, %low : index
  %once = scf.for %t = %low to %to step %c1 iter_args(%s = %zero) -> (tensor<4x64xf32>) {
    %at = arith.muli %t, %c64 : index
    %rows = tile.strided_rows %at, %c64, %c64 : tensor<64x1xi64>
    %l = tile.load %b[%rows] : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x128xbf16>
    %o = tile.mma %q, %l, %s transpose_b : tensor<4x128xbf16>, tensor<64x128xbf16>, tensor<4x64xf32>
    scf.yield %o : tensor<4x64xf32>
  }
  return %r, %once : tensor<4x64xf32>, tensor<4x64xf32>
}

// A branch takes rows away in some trips: those of before it are asked for.
// CHECK-LABEL: func.func @branch
// CHECK:         scf.for
// CHECK:           %[[ALL:.*]] = tile.strided_rows
// CHECK:           scf.if
// CHECK:           tile.load
// CHECK-NOT:       scf.if
// CHECK:           %[[LATER:.*]] = tile.strided_rows
// CHECK-NOT:       scf.if
// CHECK:           tile.prefetch %arg1[%[[LATER]]] columns 128
// CHECK-NEXT:      tile.mma
func.func @branch(%q: tensor<4x128xbf16>, %b: memref<?xbf16>, %fewer: tensor<64x1xi64>,
                  %low: index, %high: index, %some: i1, %zero: tensor<4x64xf32>) -> tensor<4x64xf32> {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %r = scf.for %t = %low to %high step %c1 iter_args(%s = %zero) -> (tensor<4x64xf32>) {
    %at = arith.muli %t, %c64 : index
    %all = tile.strided_rows %at, %c64, %c64 : tensor<64x1xi64>
    %rows = scf.if %some -> (tensor<64x1xi64>) {
      scf.yield %fewer : tensor<64x1xi64>
    } else {
      scf.yield %all : tensor<64x1xi64>
    }
    %k = tile.load %b[%rows] : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x128xbf16>
    %n = tile.mma %q, %k, %s transpose_b : tensor<4x128xbf16>, tensor<64x128xbf16>, tensor<4x64xf32>
    scf.yield %n : tensor<4x64xf32>
  }
  return %r : tensor<4x64xf32>
}

// Of several heads' keys, the rows of one are named: the others lie a stride further on each.
// CHECK-LABEL: func.func @heads
// CHECK:         %[[AHEAD:.*]] = tile.strided_rows
// CHECK:         %[[NEXT:.*]] = tile.strided_rows
// CHECK:         tile.prefetch %arg1[%[[NEXT]]] columns 128 slices 4 apart(%arg2)
// CHECK-NEXT:    tile.mma {{.*}} slices 4
func.func @heads(%q: tensor<32x128xbf16>, %b: memref<?xbf16>, %apart: index, %low: index, %high: index,
                 %zero: tensor<32x64xf32>) -> tensor<32x64xf32> {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %r = scf.for %t = %low to %high step %c1 iter_args(%s = %zero) -> (tensor<32x64xf32>) {
    %at = arith.muli %t, %c64 : index
    %rows = tile.strided_rows %at, %c64, %c64 : tensor<64x1xi64>
    %k = tile.load %b[%rows] slices 4 apart(%apart) : memref<?xbf16>, tensor<64x1xi64> -> tensor<256x128xbf16>
    %n = tile.mma %q, %k, %s transpose_b slices 4 : tensor<32x128xbf16>, tensor<256x128xbf16>, tensor<32x64xf32>
    scf.yield %n : tensor<32x64xf32>
  }
  return %r : tensor<32x64xf32>
}

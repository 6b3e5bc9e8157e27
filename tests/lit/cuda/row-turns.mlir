// RUN: llm-opt opt --tile-gpu-assign-layouts --cse --tile-gpu-stage %s | FileCheck %s

// A copy of 64 rows by four warps, eight lanes to a row: four rows a thread. Pages are looked up by
// one of these lanes for each row, and the others ask that lane: a change of layout that needs no
// shared memory. Addresses are made of them where the copy has its rows.
// CHECK-LABEL: func.func @pages
// CHECK:         %[[PAGES:.*]] = tile.paged_rows {{.*}}tensor<64x1xi64, #tile.fragment<{{.*}}lanes [4 rows 16, 2 copies, 4 rows 1], warps [4 rows 4]>>
// CHECK:         %[[SHORT:.*]] = tile.map{{.*}}%[[PAGES]]
// CHECK-NOT:     tile.put
// CHECK:         %[[THERE:.*]] = tile.convert {{.*}}lanes [4 rows 16, 2 copies, 4 rows 1]{{.*}} -> tensor<64x1xi32, #tile.fragment<registers [4 rows 16], lanes [8 copies, 4 rows 1], warps [4 rows 4]>>
// CHECK:         %[[ROWS:.*]] = tile.map{{.*}}%[[THERE]]
// CHECK:         tile.copy_async {{.*}}%[[ROWS]]
func.func @pages(%x: memref<?xbf16>, %table: memref<?xi32>, %y: memref<?xf32>, %n: index) attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %pages = tile.paged_rows %table[%c0] from %n count %n page 16 offset %c0 strides %c1, %c0 : memref<?xi32>, tensor<64x1xi64>
  %short = tile.map(%pages : tensor<64x1xi64>) {
  ^bb0(%p: i64, %row: i32, %column: i32):
    %s = arith.trunci %p : i64 to i32
    tile.yield %s : i32
  } -> tensor<64x1xi32>
  %r = tile.map(%short : tensor<64x1xi32>) {
  ^bb0(%p: i32, %row: i32, %column: i32):
    %s = arith.extsi %p : i32 to i64
    tile.yield %s : i64
  } -> tensor<64x1xi64>
  %ry = tile.strided_rows %c0, %c64, %c64 : tensor<64x1xi64>
  %a = tile.load %x[%r] : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x64xbf16>
  %z = arith.constant dense<0.0> : tensor<64x64xf32>
  %p = tile.mma %a, %a, %z transpose_b : tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<64x64xf32>
  tile.store %p, %y[%ry] : tensor<64x64xf32>, memref<?xf32>, tensor<64x1xi64>
  return
}

// Addresses that follow from numbers alone stay where the copy wants them.
// CHECK-LABEL: func.func @numbers
// CHECK:         %[[ROWS:.*]] = tile.strided_rows {{.*}}registers [4 rows 16]
// CHECK:         tile.copy_async {{.*}}%[[ROWS]]
func.func @numbers(%x: memref<?xbf16>, %y: memref<?xf32>) attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %r = tile.strided_rows %c0, %c64, %c64 : tensor<64x1xi64>
  %a = tile.load %x[%r] : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x64xbf16>
  %z = arith.constant dense<0.0> : tensor<64x64xf32>
  %p = tile.mma %a, %a, %z transpose_b : tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<64x64xf32>
  tile.store %p, %y[%r] : tensor<64x64xf32>, memref<?xf32>, tensor<64x1xi64>
  return
}

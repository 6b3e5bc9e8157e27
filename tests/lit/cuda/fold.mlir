// RUN: llm-opt opt --tile-to-gpu %s | FileCheck %s

// A tile that is folded lies in shared memory from where it is made on: a loop that folds some of
// its rows in each turn reads it there, and neither puts it again nor waits for other threads.
// CHECK-LABEL: func.func @rows
// CHECK:         tile.put {{.*}} {tile.unpadded} : tensor<64x128xf32, {{.*}}>, [[PARTS:.*]]
// CHECK-NEXT:    [[X:%.*]] = tile.get {{.*}} : [[PARTS]]
// CHECK-NEXT:    tile.barrier
// CHECK:         scf.for [[ROW:%[a-z0-9]+]] =
// CHECK-NOT:       tile.barrier
// CHECK-NOT:       tile.put
// CHECK:           [[FIRST:%.*]] = arith.index_cast [[ROW]]
// CHECK:           tile.fold sum [[X]] slices 4 rows([[FIRST]])
// CHECK-SAME:        -> tensor<4x128xf32, #tile.fragment<registers [4 columns 1], lanes [32 columns 4], warps [4 rows 1]>>
// CHECK-NOT:       tile.barrier
// CHECK:           tile.store
// CHECK:         return
func.func @rows(%x: memref<?xf32>, %y: memref<?xf32>) attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c16 = arith.constant 16 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %rx = tile.strided_rows %c0, %c128, %c64 : tensor<64x1xi64>
  %t = tile.load %x[%rx] : memref<?xf32>, tensor<64x1xi64> -> tensor<64x128xf32>
  scf.for %i = %c0 to %c16 step %c4 {
    %some = tile.fold sum %t slices 4 rows(%i) : tensor<64x128xf32> -> tensor<4x128xf32>
    %at = arith.muli %i, %c128 : index
    %ry = tile.strided_rows %at, %c128, %c4 : tensor<4x1xi64>
    tile.store %some, %y[%ry] : tensor<4x128xf32>, memref<?xf32>, tensor<4x1xi64>
  }
  return
}

// Folds of one tile share its parts, here into all slices and into one.
// CHECK-LABEL: func.func @twice
// CHECK:         tile.put
// CHECK-NOT:     tile.put
// CHECK:         tile.fold max [[T:%.*]] slices 4 {{.*}} -> tensor<64x1xf32
// CHECK-NOT:     tile.put
// CHECK:         tile.fold max [[T]] slices 4 {{.*}} -> tensor<16x1xf32
// CHECK:         return
func.func @twice(%x: memref<?xf32>, %y: memref<?xf32>) attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %c64 = arith.constant 64 : index
  %r = tile.strided_rows %c0, %c1, %c64 : tensor<64x1xi64>
  %t = tile.load %x[%r] : memref<?xf32>, tensor<64x1xi64> -> tensor<64x1xf32>
  %all = tile.fold max %t slices 4 : tensor<64x1xf32> -> tensor<64x1xf32>
  %one = tile.fold max %t slices 4 : tensor<64x1xf32> -> tensor<16x1xf32>
  tile.store %all, %y[%r] : tensor<64x1xf32>, memref<?xf32>, tensor<64x1xi64>
  %s = tile.strided_rows %c64, %c1, %c16 : tensor<16x1xi64>
  tile.store %one, %y[%s] : tensor<16x1xf32>, memref<?xf32>, tensor<16x1xi64>
  return
}

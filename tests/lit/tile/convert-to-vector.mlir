// RUN: llm-opt opt --convert-tile-to-vector=features=avx512f %s | FileCheck %s

// One place for the loop-carried tile: it is scaled and accumulated where it lies.
// CHECK-LABEL: func.func @accumulate
// CHECK-SAME:    memref<?xi8> {tile.scratch}
// CHECK-SAME:    tile.scratch_bytes = 6912
// CHECK:         scf.for
// CHECK-NOT:       iter_args(%{{.*}} = %{{.*}}) -> (tensor
// CHECK:           vector.load {{.*}} : memref<32x32xf32>, vector<32xf32>
// CHECK:           math.fma {{.*}} : vector<32xf32>
// CHECK-NOT:     tile.
// CHECK:         return
func.func @accumulate(%m: memref<?xf32>, %n: index) attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %z = arith.constant dense<0.0> : tensor<32x32xf32, #tile.order<columns>>
  %rows = tile.strided_rows %c0, %c32, %c32 : tensor<32x1xi64>
  %a = tile.load %m[%rows] : memref<?xf32>, tensor<32x1xi64> -> tensor<32x4xf32, #tile.order<columns>>
  %b = tile.load %m[%rows] : memref<?xf32>, tensor<32x1xi64> -> tensor<32x4xf32>
  %o = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %z) -> tensor<32x32xf32, #tile.order<columns>> {
    %p = tile.mma %a, %b, %acc transpose_b : tensor<32x4xf32, #tile.order<columns>>, tensor<32x4xf32>, tensor<32x32xf32, #tile.order<columns>>
    scf.yield %p : tensor<32x32xf32, #tile.order<columns>>
  }
  tile.store %o, %m[%rows] : tensor<32x32xf32, #tile.order<columns>>, memref<?xf32>, tensor<32x1xi64>
  return
}

// Padding of a row is kept out of its maximum.
// CHECK-LABEL: func.func @padded
// CHECK:         arith.cmpi slt, %{{.*}}, %{{.*}} : vector<16xi32>
// CHECK:         arith.select
// CHECK:         arith.maximumf {{.*}} fastmath<nsz> : vector<16xf32>
// CHECK:         vector.reduction <maximumf>
func.func @padded(%m: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %rows = tile.strided_rows %c0, %n, %n : tensor<3x1xi64>
  %a = tile.load %m[%rows] : memref<?xf32>, tensor<3x1xi64> -> tensor<3x9xf32>
  %x = tile.reduce max %a : tensor<3x9xf32> -> tensor<3x1xf32>
  tile.store %x, %m[%rows] : tensor<3x1xf32>, memref<?xf32>, tensor<3x1xi64>
  return
}

// A function without tiles is left alone.
// CHECK-LABEL: func.func @nothing(%{{.*}}: index) -> index {
// CHECK-NEXT:    return
func.func @nothing(%n: index) -> index {
  return %n : index
}

// RUN: llm-opt opt --convert-tile-to-vector=features=avx2,fma %s | FileCheck %s --check-prefix=FEW

// Few rows against rows that only this product reads: no copy of them, addresses alone. The
// registers of a page's rows follow from one entry of the table. One load gives the even
// elements of two registers and the odd ones.
// FEW-LABEL: func.func @few
// FEW-SAME:    tile.scratch_bytes = [[BYTES:[0-9]{4}]] : i64
// FEW:         scf.for
// FEW-NOT:       vector.gather
// FEW:           memref.load %{{.*}} : memref<?xi32>
// FEW:         scf.for
// FEW:           [[WORDS:%.*]] = llvm.load {{.*}} : !llvm.ptr -> vector<8xi32>
// FEW:           arith.shli [[WORDS]], %{{.*}} : vector<8xi32>
// FEW:           arith.andi [[WORDS]], %{{.*}} : vector<8xi32>
// FEW:           math.fma {{.*}} : vector<8xf32>
// FEW-NOT:     vector.load {{.*}} : memref<64x64xf32>
// FEW:         return
func.func @few(%m: memref<?xf32>, %b: memref<?xbf16>, %table: memref<?xi32>, %tile: index,
               %n: index) attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %key = arith.muli %tile, %c64 : index
  %z = arith.constant dense<0.0> : tensor<4x64xf32>
  %few = tile.strided_rows %c0, %c64, %n : tensor<4x1xi64>
  %a = tile.load %m[%few] : memref<?xf32>, tensor<4x1xi64> -> tensor<4x64xf32>
  %rows = tile.paged_rows %table[%c0] from %key count %n page 16 offset %c0 strides %c64, %c64
      : memref<?xi32>, tensor<64x1xi64>
  %t = tile.load %b[%rows] : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x64xf32>
  %p = tile.mma %a, %t, %z transpose_b : tensor<4x64xf32>, tensor<64x64xf32>, tensor<4x64xf32>
  tile.store %p, %m[%few] : tensor<4x64xf32>, memref<?xf32>, tensor<4x1xi64>
  return
}

// Where a register's rows may lie in several pages, each has an entry of its own.
// FEW-LABEL: func.func @pages
// FEW:         vector.gather
func.func @pages(%m: memref<?xf32>, %table: memref<?xi32>, %key: index, %n: index)
    attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %rows = tile.paged_rows %table[%c0] from %key count %n page 16 offset %c0 strides %c64, %c64
      : memref<?xi32>, tensor<64x1xi64>
  %t = tile.load %m[%rows] : memref<?xf32>, tensor<64x1xi64> -> tensor<64x64xf32>
  tile.store %t, %m[%rows] : tensor<64x64xf32>, memref<?xf32>, tensor<64x1xi64>
  return
}

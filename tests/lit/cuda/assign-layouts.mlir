// RUN: llm-opt opt --tile-gpu-assign-layouts %s | FileCheck %s

// A product on tensor cores: A in registers, loaded once; B in shared memory; the row maxima
// lie where the accumulator's rows are; the addresses where the copy wants them.
// CHECK-LABEL: func.func @scores
// CHECK-SAME:    tile.warps = 4
// CHECK:         tile.load {{.*}} tensor<64x1xi64, #tile.fragment<registers [4 rows 16], lanes [8 copies, 4 rows 1], warps [4 rows 4]>> -> tensor<64x64xbf16, #tile.shared<pitch = 128, span = 8>>
// CHECK:         tile.convert {{.*}} -> tensor<64x64xbf16, #tile.fragment<registers [2 columns 1, 2 rows 8, 8 columns 8], lanes [4 columns 2, 8 rows 1], warps [4 rows 16]>>
// CHECK:         tile.mma {{.*}} transpose_b {{.*}} tensor<32x64xbf16, #tile.shared<pitch = 128, span = 8>>, tensor<64x32xf32, #tile.fragment<registers [2 columns 1, 2 rows 8, 4 columns 8], lanes [4 columns 2, 8 rows 1], warps [4 rows 16]>>
// CHECK:         tile.reduce max {{.*}} -> tensor<64x1xf32, #tile.fragment<registers [2 rows 8], lanes [4 copies, 8 rows 1], warps [4 rows 16]>>
func.func @scores(%q: memref<?xbf16>, %k: memref<?xbf16>, %m: memref<?xf32>, %d: index) attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %c32 = arith.constant 32 : index
  %rq = tile.strided_rows %c0, %d, %c64 : tensor<64x1xi64>
  %rk = tile.strided_rows %c0, %d, %c32 : tensor<32x1xi64>
  %rm = tile.strided_rows %c0, %c1, %c64 : tensor<64x1xi64>
  %a = tile.load %q[%rq] : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x64xbf16>
  %b = tile.load %k[%rk] : memref<?xbf16>, tensor<32x1xi64> -> tensor<32x64xbf16>
  %z = arith.constant dense<0.0> : tensor<64x32xf32>
  %s = tile.mma %a, %b, %z transpose_b : tensor<64x64xbf16>, tensor<32x64xbf16>, tensor<64x32xf32>
  %x = tile.reduce max %s : tensor<64x32xf32> -> tensor<64x1xf32>
  tile.store %x, %m[%rm] : tensor<64x1xf32>, memref<?xf32>, tensor<64x1xi64>
  return
}

// f32 multiplies on the plain units, both operands from shared memory.
// CHECK-LABEL: func.func @plain
// CHECK:         tile.mma {{.*}} : tensor<20x24xf32, #tile.shared<pitch = 128, span = 8>>, tensor<24x40xf32, #tile.shared<pitch = 192, span = 4>>, tensor<20x40xf32, #tile.fragment<registers [4 columns 1, 2 columns 32, 2 rows 4], lanes [8 columns 4, 4 rows 1], warps [4 rows 8]>>
func.func @plain(%x: memref<?xf32>, %n: index) attributes {tile.kernel} {
  %r = tile.strided_rows %n, %n, %n : tensor<20x1xi64>
  %t = tile.strided_rows %n, %n, %n : tensor<24x1xi64>
  %a = tile.load %x[%r] : memref<?xf32>, tensor<20x1xi64> -> tensor<20x24xf32>
  %b = tile.load %x[%t] : memref<?xf32>, tensor<24x1xi64> -> tensor<24x40xf32>
  %z = arith.constant dense<0.0> : tensor<20x40xf32>
  %p = tile.mma %a, %b, %z : tensor<20x24xf32>, tensor<24x40xf32>, tensor<20x40xf32>
  tile.store %p, %x[%r] : tensor<20x40xf32>, memref<?xf32>, tensor<20x1xi64>
  return
}

// A function that is no kernel is left alone.
// CHECK-LABEL: func.func @other
// CHECK-NOT:     tile.warps
// CHECK:         tensor<4x1xi64>
func.func @other(%n: index) -> tensor<4x1xi64> {
  %r = tile.strided_rows %n, %n, %n : tensor<4x1xi64>
  return %r : tensor<4x1xi64>
}

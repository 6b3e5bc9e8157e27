// RUN: llm-opt opt --tile-to-gpu %s | FileCheck %s
// RUN: llm-opt opt --tile-to-gpu=stages=1 %s | FileCheck %s --check-prefix=ONE
// RUN: llm-opt opt --tile-to-gpu=stages=3 %s | FileCheck %s --check-prefix=THREE

// Two tiles of a turn, brought ahead by neighbouring copies and waited for at the turn's head: one
// group and one wait.
// CHECK-LABEL: func.func @two
// CHECK:         scf.for
// CHECK:           tile.get {{.*}} after {{.*}} pending 0
// CHECK-NEXT:      tile.get
// CHECK-NOT:       after
// CHECK-NEXT:      tile.barrier
// CHECK:           tile.copy_async {{.*}} ahead 1 if {{.*}} {tile.joins_next}
// CHECK:           tile.copy_async {{.*}} ahead 1 if
// CHECK-NOT:       joins_next
// CHECK:           scf.yield

// Three stages: the group of the turn before stays under way, as one.
// THREE-LABEL: func.func @two
// THREE:         scf.for
// THREE:           tile.get {{.*}} after {{.*}} pending 1
// THREE:           tile.copy_async {{.*}} ahead 2 if {{.*}} {tile.joins_next}
// THREE:           tile.copy_async {{.*}} ahead 2 if

// One stage: the second tile is on its way while the first product is made, in a group of its own.
// ONE-LABEL: func.func @two
// ONE:         scf.for
// ONE:           tile.copy_async
// ONE-NOT:       joins_next
// ONE:           tile.copy_async
// ONE-NOT:       joins_next
// ONE:           tile.get {{.*}} after {{.*}} pending 1
// ONE:           tile.mma
// ONE:           tile.get {{.*}} after {{.*}} pending 0
func.func @two(%x: memref<?xbf16>, %w: memref<?xbf16>, %u: memref<?xbf16>, %y: memref<?xf32>, %lo: index, %hi: index) attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %rx = tile.strided_rows %c0, %c32, %c64 : tensor<64x1xi64>
  %ry = tile.strided_rows %c0, %c64, %c64 : tensor<64x1xi64>
  %a = tile.load %x[%rx] : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x32xbf16>
  %z = arith.constant dense<0.0> : tensor<64x64xf32>
  %o = scf.for %i = %lo to %hi step %c1 iter_args(%acc = %z) -> tensor<64x64xf32> {
    %at = arith.muli %i, %c64 : index
    %rw = tile.strided_rows %at, %c32, %c64 : tensor<64x1xi64>
    %b = tile.load %w[%rw] : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x32xbf16>
    %s = tile.mma %a, %b, %z transpose_b : tensor<64x32xbf16>, tensor<64x32xbf16>, tensor<64x64xf32>
    %p = tile.map(%s : tensor<64x64xf32>) {
    ^bb0(%e: f32, %row: i32, %column: i32):
      %n = arith.truncf %e : f32 to bf16
      tile.yield %n : bf16
    } -> tensor<64x64xbf16>
    %ru = tile.strided_rows %at, %c64, %c64 : tensor<64x1xi64>
    %v = tile.load %u[%ru] : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x64xbf16>
    %r = tile.mma %p, %v, %acc : tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<64x64xf32>
    scf.yield %r : tensor<64x64xf32>
  }
  tile.store %o, %y[%ry] : tensor<64x64xf32>, memref<?xf32>, tensor<64x1xi64>
  return
}

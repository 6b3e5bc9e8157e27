// RUN: llm-opt opt --tile-gpu-assign-layouts --tile-gpu-stage %s | FileCheck %s --check-prefix=STAGE
// RUN: llm-opt opt --tile-to-gpu %s | FileCheck %s
// RUN: llm-opt opt --tile-to-gpu=stages=1 %s | FileCheck %s --check-prefix=ONE

// RUN: llm-opt opt --tile-to-gpu=stages=3 %s | FileCheck %s --check-prefix=THREE

// Staging: a load into shared memory is a copy, begun at once, and a wait for it.
// STAGE-LABEL: func.func @sum
// STAGE:         scf.for
// STAGE:           %[[T:.*]] = tile.copy_async
// STAGE:           tile.get {{.*}} after %[[T]]
// STAGE:           tile.mma

// x is in registers before the loop: its place in shared memory serves w, and then the rows of the
// result, which go out from there.
// Two stages: a turn before the first begins the first copy and does nothing else, each turn that
// of the next one; one barrier both shows the tile to all threads and frees the other slot.
// CHECK-LABEL: func.func @sum
// CHECK-SAME:    tile.shared_bytes = 16384
// CHECK:         %[[START:.*]] = arith.subi %[[LO:[a-z0-9]+]], %
// CHECK:         scf.for %[[I:.*]] = %[[START]] to {{.*}} iter_args(%[[ACC:.*]] = {{.*}}, %[[T:.*]] = %
// CHECK:           tile.get {{.*}}[%[[I]]] after %[[T]] pending 0
// CHECK-NEXT:      tile.barrier {tile.note = "Barrier: tile is there for all threads; all are done with tile, which is overwritten next."}
// CHECK:           %[[NEXT:.*]] = tile.copy_async {{.*}}[%[[I]]] ahead 1 if
// CHECK:           %[[EARLY:.*]] = arith.cmpi slt, %[[I]], %[[LO]]
// CHECK:           %[[NEW:.*]] = scf.if %[[EARLY]]
// CHECK-NEXT:        scf.yield %[[ACC]]
// CHECK-NEXT:      } else {
// CHECK-NOT:       tile.barrier
// CHECK:             tile.mma
// CHECK-NOT:       tile.barrier
// CHECK:           scf.yield %[[NEW]], %[[NEXT]]

// Three stages: the copy of the turn before stays under way during a wait.
// THREE-LABEL: func.func @sum
// THREE:         scf.for {{.*}} iter_args(%{{.*}} = {{.*}}, %[[OLD:.*]] = %{{.*}}, %{{.*}} = %
// THREE:           tile.get {{.*}} after %[[OLD]] pending 1
// THREE-NEXT:      tile.barrier
// THREE:           tile.copy_async {{.*}} ahead 2 if

// One stage: the copy waits until the tile before it was read.
// ONE-LABEL: func.func @sum
// ONE:         scf.for
// ONE:           tile.barrier
// ONE:           tile.copy_async
// ONE:           tile.get {{.*}} pending 0
// ONE-NEXT:      tile.barrier
// ONE:           tile.mma
func.func @sum(%x: memref<?xbf16>, %w: memref<?xbf16>, %y: memref<?xf32>, %lo: index, %hi: index) attributes {tile.kernel} {
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
    %rw = tile.strided_rows %at, %c64, %c32 : tensor<32x1xi64>
    %b = tile.load %w[%rw] : memref<?xbf16>, tensor<32x1xi64> -> tensor<32x64xbf16>
    %p = tile.mma %a, %b, %acc : tensor<64x32xbf16>, tensor<32x64xbf16>, tensor<64x64xf32>
    scf.yield %p : tensor<64x64xf32>
  }
  tile.store %o, %y[%ry] : tensor<64x64xf32>, memref<?xf32>, tensor<64x1xi64>
  return
}

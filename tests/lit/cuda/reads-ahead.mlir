// RUN: llm-opt opt --tile-to-gpu=reads-ahead=true %s | FileCheck %s
// RUN: llm-opt opt --tile-to-gpu %s | FileCheck %s --check-prefix=NONE

// The pages of a tile are looked up a turn before its copy, by the lanes that look up, and carried
// there. The loop begins two turns early: in the first there is nothing to copy yet.
// CHECK-LABEL: func.func @pages
// CHECK:         %[[ABSENT:.*]] = arith.constant dense<-1> : tensor<64x1xi32, #tile.fragment<{{.*}}lanes [4 rows 16, 2 copies, 4 rows 1]
// CHECK:         %[[START:.*]] = arith.subi %[[LO:[a-z0-9]+]], %c2
// CHECK:         scf.for %[[I:.*]] = %[[START]] to %[[HI:[a-z0-9]+]] {{.*}}iter_args(%{{.*}} = %{{.*}}, %[[PAGES:.*]] = %[[ABSENT]], %
// CHECK:           %[[NEXT:.*]] = arith.addi %[[I]], %c1
// CHECK:           %[[EXISTS:.*]] = arith.cmpi slt, %[[NEXT]], %[[HI]]
// CHECK:           %[[WANTED:.*]] = arith.cmpi sle, %[[LO]], %[[NEXT]]
// CHECK:           %[[MORE:.*]] = arith.andi %[[WANTED]], %[[EXISTS]]
// CHECK-NOT:       tile.paged_rows
// CHECK:           tile.convert %[[PAGES]]
// CHECK:           tile.copy_async {{.*}} ahead 1 if %[[MORE]]
// CHECK:           %[[LATER:.*]] = arith.addi %[[I]], %c2
// CHECK:           %[[IS:.*]] = arith.cmpi slt, %[[LATER]], %[[HI]]
// CHECK:           %[[COUNT:.*]] = arith.select %[[IS]]
// CHECK:           tile.paged_rows {{.*}} count %[[COUNT]]
// CHECK:           %[[FOUND:.*]] = tile.map
// CHECK:           scf.if
// CHECK:           scf.yield %{{.*}}, %[[FOUND]], %

// Without: where they are used.
// NONE-LABEL: func.func @pages
// NONE:         scf.for
// NONE:           tile.paged_rows
// NONE:           tile.convert
// NONE:           tile.copy_async
func.func @pages(%q: memref<?xbf16>, %x: memref<?xbf16>, %table: memref<?xi32>, %y: memref<?xf32>, %lo: index, %hi: index, %n: index) attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %rq = tile.strided_rows %c0, %c64, %c64 : tensor<64x1xi64>
  %a = tile.load %q[%rq] : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x64xbf16>
  %z = arith.constant dense<0.0> : tensor<64x64xf32>
  %o = scf.for %i = %lo to %hi step %c1 iter_args(%acc = %z) -> tensor<64x64xf32> {
    %key = arith.muli %i, %c64 : index
    %pages = tile.paged_rows %table[%c0] from %key count %n page 16 offset %c0 strides %c1, %c0 : memref<?xi32>, tensor<64x1xi64>
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
    %b = tile.load %x[%r] : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x64xbf16>
    %p = tile.mma %a, %b, %acc transpose_b : tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<64x64xf32>
    scf.yield %p : tensor<64x64xf32>
  }
  tile.store %o, %y[%rq] : tensor<64x64xf32>, memref<?xf32>, tensor<64x1xi64>
  return
}

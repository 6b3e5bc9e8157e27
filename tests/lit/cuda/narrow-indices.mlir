// RUN: llm-opt opt --tile-gpu-narrow-indices %s | FileCheck %s
// RUN: llm-opt opt --tile-gpu-narrow-indices --mlir-print-debuginfo %s | FileCheck %s --check-prefix=NAMES

// Numbers of a plan count in 32 bits as far as their ranges reach; what multiplies a stride does not.
// CHECK-LABEL: func @rows
func.func @rows(%rows: memref<?xi32>, %out: memref<?xi64>, %stride: index, %worker: index)
    attributes {tile.kernel} {
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c0 = arith.constant 0 : index
  // CHECK: %[[WORD:.*]] = memref.load
  %word = memref.load %rows[%worker] {tile.range = array<i64: 0, 536870911>} : memref<?xi32>
  %row = arith.index_castui %word : i32 to index
  // CHECK: %[[NEXT:.*]] = arith.addi %[[WORD]], %{{.*}} : i32
  %next = arith.addi %row, %c1 : index
  // CHECK: %[[ENTRY:.*]] = arith.divui %[[NEXT]], %{{.*}} : i32
  %entry = arith.divui %next, %c4 : index
  // CHECK: %[[WIDE:.*]] = arith.index_cast %[[ENTRY]] : i32 to index
  // CHECK: arith.cmpi slt, %[[ENTRY]], %{{.*}} : i32
  %some = arith.cmpi slt, %entry, %c4 : index
  // CHECK: arith.muli %[[WIDE]], %{{.*}} : index
  %offset = arith.muli %entry, %stride : index
  %chosen = arith.select %some, %offset, %c0 : index
  %value = arith.index_cast %chosen : index to i64
  memref.store %value, %out[%worker] : memref<?xi64>
  return
}

// Without a range, or where a sum may be too great, nothing changes.
// CHECK-LABEL: func @unknown
func.func @unknown(%rows: memref<?xi32>, %out: memref<?xi64>, %worker: index)
    attributes {tile.kernel} {
  %c1 = arith.constant 1 : index
  %word = memref.load %rows[%worker] : memref<?xi32>
  %row = arith.index_castui %word : i32 to index
  // CHECK: arith.addi %{{.*}}, %{{.*}} : index
  %next = arith.addi %row, %c1 : index
  %most = memref.load %rows[%next] {tile.range = array<i64: 0, 2147483647>} : memref<?xi32>
  %last = arith.index_cast %most : i32 to index
  // CHECK: arith.addi %{{.*}}, %{{.*}} : index
  %beyond = arith.addi %last, %c1 : index
  %value = arith.index_cast %beyond : index to i64
  memref.store %value, %out[%next] : memref<?xi64>
  return
}

// A loop over such numbers, what it carries, a number of 64 bits that fits; but not a count without an
// end.
// CHECK-LABEL: func @loop
func.func @loop(%rows: memref<?xi32>, %lengths: memref<?xi64>, %out: memref<?xi64>, %worker: index)
    attributes {tile.kernel} {
  %c1 = arith.constant 1 : index
  %c0 = arith.constant 0 : index
  %word = memref.load %rows[%worker] {tile.range = array<i64: 0, 536870911>} : memref<?xi32>
  %first = arith.index_castui %word : i32 to index
  %long = memref.load %lengths[%worker] {tile.range = array<i64: 0, 536870911>} : memref<?xi64>
  // CHECK: %[[LENGTH:.*]] = arith.trunci %{{.*}} : i64 to i32
  %length = arith.index_cast %long : i64 to index
  // CHECK: scf.for %[[I:.*]] = %{{.*}} to %[[LENGTH]] step %{{.*}} iter_args(%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}) -> (i32, index) : i32
  %least:2 = scf.for %i = %first to %length step %c1 iter_args(%low = %first, %count = %c0)
      -> (index, index) {
    // CHECK: memref.load
    %entry = memref.load %rows[%i] {tile.range = array<i64: -536870911, 536870911>} : memref<?xi32>
    %position = arith.index_cast %entry : i32 to index
    // CHECK: arith.minsi %{{.*}}, %{{.*}} : i32
    %lower = arith.minsi %low, %position : index
    // CHECK: arith.addi %{{.*}}, %{{.*}} : index
    %more = arith.addi %count, %c1 : index
    scf.yield %lower, %more : index, index
  }
  %value = arith.index_cast %least#0 : index to i64
  memref.store %value, %out[%c0] : memref<?xi64>
  %turns = arith.index_cast %least#1 : index to i64
  memref.store %turns, %out[%c1] : memref<?xi64>
  return
}

// Unsigned operations want numbers that are never negative; elements of a tile have the range of what
// made them.
// CHECK-LABEL: func @elements
func.func @elements(%rows: memref<?xi32>, %worker: index) -> tensor<16x1xi32>
    attributes {tile.kernel} {
  %c4 = arith.constant 4 : index
  %c1 = arith.constant 1 : index
  %positions = tile.map() {
  ^bb0(%r: i32, %c: i32):
    %at = arith.index_cast %r : i32 to index
    %entry = memref.load %rows[%at] {tile.range = array<i64: -536870911, 536870911>} : memref<?xi32>
    tile.yield %entry : i32
  } -> tensor<16x1xi32>
  // CHECK: tile.map(
  %after = tile.map(%positions : tensor<16x1xi32>) {
  ^bb0(%position: i32, %r: i32, %c: i32):
    %p = arith.index_cast %position : i32 to index
    // CHECK: arith.addi %{{.*}}, %{{.*}} : i32
    %next = arith.addi %p, %c1 : index
    // CHECK: arith.divui %{{.*}}, %{{.*}} : index
    %quarter = arith.divui %next, %c4 : index
    %result = arith.index_cast %quarter : index to i32
    tile.yield %result : i32
  } -> tensor<16x1xi32>
  return %after : tensor<16x1xi32>
}

// An address is arithmetic in 64 bits: the index that it is made of has a name, by which the printer
// knows it. A count of rows is compared alone, and has none.
// NAMES-LABEL: func.func @addresses
// NAMES: arith.index_cast %{{.*}} : i32 to index loc(#[[OFFSET:loc[0-9]*]])
// NAMES: arith.index_cast %{{.*}} : i32 to index loc(#[[COUNT:loc[0-9]*]])
// NAMES: #[[OFFSET]] = loc("wide_number"
// NAMES-NOT: "wide_
func.func @addresses(%x: memref<?xf32>, %rows: memref<?xi32>, %worker: index)
    attributes {tile.kernel} {
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %word = memref.load %rows[%worker] {tile.range = array<i64: 0, 536870911>} : memref<?xi32>
  %slot = arith.index_castui %word : i32 to index
  %more = memref.load %rows[%worker] {tile.range = array<i64: 0, 64>} : memref<?xi32>
  %count = arith.index_castui %more : i32 to index
  %from = tile.strided_rows %slot, %c128, %count : tensor<64x1xi64>
  %t = tile.load %x[%from] : memref<?xf32>, tensor<64x1xi64> -> tensor<64x128xf32>
  tile.store %t, %x[%from] : tensor<64x128xf32>, memref<?xf32>, tensor<64x1xi64>
  return
}

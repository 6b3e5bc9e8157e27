// RUN: llm-opt opt %s --pass-pipeline='builtin.module(attn-to-tile{rows=4,32 keys=16})' | FileCheck %s

// A function without attn ops stays as it is.
// CHECK-LABEL: func.func @other(%arg0: i32) -> i32 {
// CHECK-NEXT:    return %arg0 : i32
func.func @other(%x: i32) -> i32 {
  return %x : i32
}

// One attend kernel for each height of tile. Rows are packed pairs of (query, head of the
// group): a tile of 4 rows holds the 4 heads of one decode query.

// CHECK-LABEL: func.func @packed_attend_4(
// CHECK:         scf.for
// CHECK:           tile.load {{.*}} -> tensor<4x16xf32>
// CHECK:           scf.while
// Whole items go to the output; items of a split to the partials, as consecutive rows.
// CHECK:           tile.store {{.*}} tensor<4x16xf32>
// CHECK:           tile.store {{.*}} tensor<4x16xf32>
// CHECK:           tile.store {{.*}} tensor<4x1xf32>
// CHECK:         return
// CHECK-LABEL: func.func @packed_attend_32(
// CHECK:           tile.load {{.*}} -> tensor<32x16xf32>
// CHECK:         return
// The partials of a row, one after the other; an LSE of -inf counts for nothing.
// CHECK-LABEL: func.func @packed_merge(
// CHECK:         scf.for
// CHECK:           scf.for {{.*}} iter_args
// CHECK:             tile.load {{.*}} -> tensor<1x16xf32>
// CHECK:             tile.load {{.*}} -> tensor<1x1xf32>
// CHECK:             arith.cmpf oeq
// CHECK:             math.exp2
// CHECK:             scf.yield
// CHECK:           tile.store {{.*}} tensor<1x16xf32>
// CHECK-NOT:   attn.
func.func @packed(%q: tensor<?x8x16xf32>, %k: tensor<?x2x16xf32>, %v: tensor<?x2x16xf32>, %s: !attn.sequences) -> tensor<?x8x16xf32> {
  %o = attn.attention %q, %k, %v, %s mask(causal) split(count = 3)
       : tensor<?x8x16xf32>, tensor<?x2x16xf32>, tensor<?x2x16xf32>, !attn.sequences -> tensor<?x8x16xf32>
  return %o : tensor<?x8x16xf32>
}

// CHECK-LABEL: func.func @combined_combine(
// CHECK:         scf.for {{.*}} iter_args
// CHECK:         tile.store {{.*}} tensor<1x16xf32>
func.func @combined(%p: tensor<?x?x4x16xf32>, %l: tensor<?x?x4xf32>) -> tensor<?x4x16xf32> {
  %o = attn.merge %p, %l : tensor<?x?x4x16xf32>, tensor<?x?x4xf32> -> tensor<?x4x16xf32>
  return %o : tensor<?x4x16xf32>
}

// Slots below 0 are padding: no address, so nothing is written.
// CHECK-LABEL: func.func @stored_append(
// CHECK:         scf.for
// CHECK:           tile.store
// CHECK:           tile.store
// CHECK-NOT:     tile.store
// CHECK:         return
func.func @stored(%k: tensor<?x2x16xf32>, %v: tensor<?x2x16xf32>, %slots: tensor<?xi64>, %kv: !attn.kv_cache<2x16xf32, page = 16>) {
  attn.append %k, %v, %slots, %kv : tensor<?x2x16xf32>, tensor<?x2x16xf32>, tensor<?xi64>, !attn.kv_cache<2x16xf32, page = 16>
  return
}

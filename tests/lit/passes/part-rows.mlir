// RUN: llm-opt opt %s --split-input-file --pass-pipeline='builtin.module(attn-to-tile{rows=192 keys=64 one-loop branch-scores part-rows=64})' | FileCheck %s
// RUN: llm-opt opt %s --split-input-file --pass-pipeline='builtin.module(attn-to-tile{rows=64 keys=64 one-loop branch-scores part-rows=64})' | FileCheck %s --check-prefix=NONE
// NONE-NOT: tile.used_rows

// Rows before 64 and 128 that see no key of the tile, and rows that the item does not have.
// CHECK-LABEL: func.func @causal_attend_192(
// CHECK:         scf.for {{.*}} -> (tensor<192x64xf32>, tensor<192x1xf32>, tensor<192x1xf32>, index)
// CHECK:           arith.cmpi sle
// CHECK:           arith.select %{{.*}}, %c64{{.*}},
// CHECK:           arith.cmpi sle
// CHECK:           %[[FROM:.*]] = arith.select %{{.*}}, %c128{{.*}},
// CHECK:           tile.used_rows %[[FROM]] to %{{.*}} of 192
func.func @causal(%q: tensor<?x?x8x64xbf16>, %k: tensor<?x?x8x64xbf16>, %v: tensor<?x?x8x64xbf16>)
    -> tensor<?x?x8x64xbf16> {
  %o = attn.attention %q, %k, %v mask(causal) : tensor<?x?x8x64xbf16>, tensor<?x?x8x64xbf16>,
       tensor<?x?x8x64xbf16> -> tensor<?x?x8x64xbf16>
  return %o : tensor<?x?x8x64xbf16>
}

// -----

// A window also ends what rows see: the last ones are left out where it has passed the tile.
// CHECK-LABEL: func.func @window_attend_192(
// CHECK:           arith.cmpi sge
// CHECK:           arith.cmpi sge
// CHECK:           arith.minsi
// CHECK-NEXT:      %[[TO:.*]] = arith.select
// CHECK-NEXT:      tile.used_rows %{{.*}} to %[[TO]] of 192
func.func @window(%q: tensor<?x?x8x64xbf16>, %k: tensor<?x?x8x64xbf16>, %v: tensor<?x?x8x64xbf16>)
    -> tensor<?x?x8x64xbf16> {
  %o = attn.attention %q, %k, %v mask(causal and window<100>) : tensor<?x?x8x64xbf16>, tensor<?x?x8x64xbf16>,
       tensor<?x?x8x64xbf16> -> tensor<?x?x8x64xbf16>
  return %o : tensor<?x?x8x64xbf16>
}

// -----

// Two runs of tiles (a sink, a window): only the item's end is known.
// CHECK-LABEL: func.func @sink_attend_192(
// CHECK:           tile.used_rows %c0{{.*}} to %{{.*}} of 192
func.func @sink(%q: tensor<?x?x8x64xbf16>, %k: tensor<?x?x8x64xbf16>, %v: tensor<?x?x8x64xbf16>)
    -> tensor<?x?x8x64xbf16> {
  %o = attn.attention %q, %k, %v mask(causal and (sink<4> or window<100>)) : tensor<?x?x8x64xbf16>, tensor<?x?x8x64xbf16>,
       tensor<?x?x8x64xbf16> -> tensor<?x?x8x64xbf16>
  return %o : tensor<?x?x8x64xbf16>
}

// -----

// An item may hold rows of several sequences, in no order: then all are computed.
// CHECK-LABEL: func.func @paged_attend_192(
// CHECK:         scf.for {{.*}} -> (tensor<192x64xf32>, tensor<192x1xf32>, tensor<192x1xf32>, index)
// CHECK:           %[[MIXED:.*]] = arith.cmpi eq
// CHECK:           %[[FROM:.*]] = arith.select %[[MIXED]], %c0{{.*}},
// CHECK-NEXT:      %[[TO:.*]] = arith.select %[[MIXED]]
// CHECK-NEXT:      tile.used_rows %[[FROM]] to %[[TO]] of 192
func.func @paged(%q: tensor<?x8x64xbf16>, %kv: !attn.kv_cache<8x64xbf16, page = 32>,
                 %seq: !attn.sequences) -> tensor<?x8x64xbf16> {
  %o = attn.attention %q, %kv, %seq mask(causal) : tensor<?x8x64xbf16>,
       !attn.kv_cache<8x64xbf16, page = 32>, !attn.sequences -> tensor<?x8x64xbf16>
  return %o : tensor<?x8x64xbf16>
}

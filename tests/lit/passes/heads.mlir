// RUN: llm-opt opt %s --pass-pipeline='builtin.module(attn-to-tile{rows=4 heads=2 keys=64 one-loop branch-scores})' | FileCheck %s

// Two KV heads in one walk: items in pairs, rows of one head after those of the other, keys by the
// addresses of the first, the state for all rows.

// CHECK-LABEL: func.func @decode_attend_4(
// CHECK:         scf.for %[[ITEM:.*]] = %{{.*}} to %{{.*}} step %c2
// CHECK:           tile.load %{{.*}}[%{{.*}}] stride(%{{.*}}) : memref<?xbf16>, tensor<8x1xi64> -> tensor<8x64xbf16>
// CHECK:           scf.for %{{.*}} iter_args(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) -> (tensor<8x64xf32>, tensor<8x1xf32>, tensor<8x1xf32>, index)
// CHECK:             tile.paged_rows {{.*}} tensor<64x1xi64>
// CHECK:             tile.load {{.*}} slices 2 apart(%{{.*}}) : memref<?xbf16>, tensor<64x1xi64> -> tensor<128x64xbf16>
// CHECK:             tile.mma {{.*}} transpose_b slices 2 {{.*}} tensor<8x64xbf16>, tensor<128x64xbf16>, tensor<8x64xf32>
// CHECK:             tile.load {{.*}} slices 2 apart(%{{.*}}) : memref<?xbf16>, tensor<64x1xi64> -> tensor<128x64xbf16>
// CHECK:             tile.mma {{.*}} slices 2 : tensor<8x64xbf16>, tensor<128x64xbf16>, tensor<8x64xf32>
// A row's partial is at its own head's slot: of the item, or of the next.
// CHECK:           tile.map
// CHECK:             tile.constant = "work_item::partial_slot"
// CHECK:             tile.yield
// CHECK:           tile.store
func.func @decode(%q: tensor<?x8x64xbf16>, %kv: !attn.kv_cache<2x64xbf16, page = 32>,
                  %seq: !attn.sequences) -> tensor<?x8x64xbf16> {
  %o = attn.attention %q, %kv, %seq mask(causal) : tensor<?x8x64xbf16>,
       !attn.kv_cache<2x64xbf16, page = 32>, !attn.sequences -> tensor<?x8x64xbf16>
  return %o : tensor<?x8x64xbf16>
}

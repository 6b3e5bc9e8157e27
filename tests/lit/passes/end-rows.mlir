// RUN: llm-opt opt %s --pass-pipeline='builtin.module(attn-to-tile{rows=16 keys=64 slices=4 one-loop end-rows=4})' | FileCheck %s
// RUN: llm-opt opt %s --pass-pipeline='builtin.module(attn-to-tile{rows=16 keys=64 slices=4 one-loop})' | FileCheck %s --check-prefix=ONCE

// The results of an item's 16 rows are folded out of the slices' states, normalised and written
// four rows at a time; a turn's rows are those from its own first one on.
// CHECK-LABEL: func.func @ends_attend_16(
// CHECK:         tile.fold max {{.*}} slices 4 {{.*}}: tensor<64x1xf32> -> tensor<64x1xf32>
// CHECK:         scf.for [[FIRST:%[a-z0-9]+]] = %c0{{.*}} to %c16{{.*}} step %c4
// CHECK:           tile.fold sum {{.*}} slices 4 rows([[FIRST]]) {{.*}} -> tensor<4x16xf32>
// CHECK:           tile.fold max {{.*}} slices 4 rows([[FIRST]]) {{.*}} -> tensor<4x1xf32>
// CHECK:           tile.fold sum {{.*}} slices 4 rows([[FIRST]]) {{.*}} -> tensor<4x1xf32>
// CHECK:           arith.addi [[FIRST]]
// CHECK:           tile.store {{.*}} tensor<4x16xf32>
// CHECK:           arith.subi {{.*}}, [[FIRST]]
// CHECK:           tile.store {{.*}} tensor<4x16xf32>
// CHECK:           tile.store {{.*}} tensor<4x1xf32>
// CHECK-LABEL: func.func @ends_merge(

// ONCE-LABEL: func.func @ends_attend_16(
// ONCE:         tile.fold sum {{.*}} slices 4 : tensor<64x16xf32> -> tensor<16x16xf32>
// ONCE:         tile.store {{.*}} tensor<16x16xf32>
// ONCE-LABEL: func.func @ends_merge(
func.func @ends(%q: tensor<?x8x16xbf16>, %k: tensor<?x2x16xbf16>, %v: tensor<?x2x16xbf16>, %s: !attn.sequences) -> tensor<?x8x16xbf16> {
  %o = attn.attention %q, %k, %v, %s mask(causal)
       : tensor<?x8x16xbf16>, tensor<?x2x16xbf16>, tensor<?x2x16xbf16>, !attn.sequences -> tensor<?x8x16xbf16>
  return %o : tensor<?x8x16xbf16>
}

// RUN: llm-opt opt %s --pass-pipeline='builtin.module(attn-to-tile{rows=8 keys=16})' | FileCheck %s

// The loop over key tiles: a run of full tiles, whose body hides nothing, then at most one
// tile with the mask. Both bodies exist once, whatever the mask.

// CHECK-LABEL: func.func @causal_attend_8(
// CHECK:         scf.while
// CHECK:           scf.condition
// CHECK:         } do {
// The full run: scores are scaled and no key is hidden.
// CHECK:           scf.for
// CHECK:             tile.mma {{.*}} transpose_b
// CHECK:             tile.map
// CHECK-NOT:           0xFF800000
// CHECK-NOT:           arith.cmpi
// CHECK:               tile.yield
// CHECK:             scf.yield
// The masked tile: key <= position, -inf where hidden.
// CHECK:           scf.for
// CHECK:             tile.mma {{.*}} transpose_b
// CHECK:             tile.map
// CHECK:               arith.cmpi sle
// CHECK:               0xFF800000
// CHECK:               arith.select
// CHECK:               tile.yield
// CHECK:             scf.yield
// CHECK:           scf.yield
// CHECK-NOT:     tile.mma
// CHECK:         return
func.func @causal(%q: tensor<?x4x16xf32>, %k: tensor<?x2x16xf32>, %v: tensor<?x2x16xf32>, %s: !attn.sequences) -> tensor<?x4x16xf32> {
  %o = attn.attention %q, %k, %v, %s mask(causal) : tensor<?x4x16xf32>, tensor<?x2x16xf32>, tensor<?x2x16xf32>, !attn.sequences -> tensor<?x4x16xf32>
  return %o : tensor<?x4x16xf32>
}

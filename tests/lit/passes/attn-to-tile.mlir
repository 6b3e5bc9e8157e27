// RUN: llm-opt opt %s --pass-pipeline='builtin.module(attn-to-tile{rows=8 keys=16})' | FileCheck %s
// RUN: llm-opt opt %s --pass-pipeline='builtin.module(attn-to-tile{rows=8 keys=16 one-loop})' | FileCheck %s --check-prefix=ONE
// RUN: llm-opt opt %s --pass-pipeline='builtin.module(attn-to-tile{rows=8 keys=16 one-loop branch-scores})' | FileCheck %s --check-prefix=SIDES

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

// With one loop: one body, whose mask is in a branch. All tiles of this mask are neighbours, so
// no loop over runs of tiles is around it.
// ONE-LABEL: func.func @causal_attend_8(
// ONE-NOT:     scf.while
// ONE:           scf.for
// ONE:           scf.for
// ONE:             %[[PARTIAL:.*]] = arith.ori
// ONE:             tile.mma {{.*}} transpose_b
// ONE:             %[[S:.*]] = tile.map
// ONE-NOT:           0xFF800000
// ONE:               tile.yield
// ONE:             scf.if %[[PARTIAL]]
// ONE:               tile.map(%[[S]]
// ONE:                 arith.cmpi ult
// ONE:                 0xFF800000
// ONE:                 tile.yield
// ONE:             } else {
// ONE-NEXT:          scf.yield %[[S]]
// ONE:             tile.mma
// ONE:             scf.yield
// ONE-NOT:     tile.mma
// ONE:         return

// Scores and maxima in the branch: the side of a partial tile hides, the other does not.
// SIDES-LABEL: func.func @causal_attend_8(
// SIDES:           scf.for
// SIDES:             %[[PARTIAL:.*]] = arith.ori
// SIDES:             tile.mma {{.*}} transpose_b
// SIDES:             scf.if %[[PARTIAL]]
// SIDES:               tile.map
// SIDES:                 arith.cmpi sle
// SIDES:                 0xFF800000
// SIDES:               tile.reduce max
// SIDES:             } else {
// SIDES:               tile.map
// SIDES-NOT:             0xFF800000
// SIDES-NOT:             arith.cmpi
// SIDES:               tile.reduce max
// SIDES:             }
// SIDES:             tile.mma
// SIDES:             scf.yield
// SIDES-NOT:     tile.mma
// SIDES:         return
func.func @causal(%q: tensor<?x4x16xf32>, %k: tensor<?x2x16xf32>, %v: tensor<?x2x16xf32>, %s: !attn.sequences) -> tensor<?x4x16xf32> {
  %o = attn.attention %q, %k, %v, %s mask(causal) : tensor<?x4x16xf32>, tensor<?x2x16xf32>, tensor<?x2x16xf32>, !attn.sequences -> tensor<?x4x16xf32>
  return %o : tensor<?x4x16xf32>
}

// RUN: llm-opt opt %s --pass-pipeline='builtin.module(attn-to-tile{rows=8 keys=16})' | FileCheck %s

// Every mask gives the same loop: a run of full tiles whose scores are only scaled, then at
// most one tile whose body holds the mask. The mask's ends are computed before the loop.

// CHECK-LABEL: func.func @nomask_attend_8(
// CHECK:         scf.while
// CHECK:         } do {
// CHECK:           scf.for
// CHECK:             tile.mma {{.*}} transpose_b
// CHECK:             tile.map
// CHECK-NOT:           arith.cmpi
// CHECK-NOT:           arith.select
// CHECK:               tile.yield
// CHECK:             scf.yield
// CHECK:           scf.for
// CHECK:             tile.mma {{.*}} transpose_b
// CHECK:             tile.map
// CHECK:               0xFF800000
// CHECK:               arith.select
// CHECK:               tile.yield
// CHECK:             scf.yield
// CHECK:           scf.yield
// CHECK-NOT:     transpose_b
// CHECK:         return
func.func @nomask(%q: tensor<?x4x16xf32>, %k: tensor<?x2x16xf32>, %v: tensor<?x2x16xf32>, %s: !attn.sequences) -> tensor<?x4x16xf32> {
  %o = attn.attention %q, %k, %v, %s 
       : tensor<?x4x16xf32>, tensor<?x2x16xf32>, tensor<?x2x16xf32>, !attn.sequences -> tensor<?x4x16xf32>
  return %o : tensor<?x4x16xf32>
}

// CHECK-LABEL: func.func @window_attend_8(
// CHECK:         scf.while
// CHECK:         } do {
// CHECK:           scf.for
// CHECK:             tile.mma {{.*}} transpose_b
// CHECK:             tile.map
// CHECK-NOT:           arith.cmpi
// CHECK-NOT:           arith.select
// CHECK:               tile.yield
// CHECK:             scf.yield
// CHECK:           scf.for
// CHECK:             tile.mma {{.*}} transpose_b
// CHECK:             tile.map
// CHECK:               arith.cmpi sle
// CHECK:               arith.cmpi
// CHECK:               0xFF800000
// CHECK:               arith.select
// CHECK:               tile.yield
// CHECK:             scf.yield
// CHECK:           scf.yield
// CHECK-NOT:     transpose_b
// CHECK:         return
func.func @window(%q: tensor<?x4x16xf32>, %k: tensor<?x2x16xf32>, %v: tensor<?x2x16xf32>, %s: !attn.sequences) -> tensor<?x4x16xf32> {
  %o = attn.attention %q, %k, %v, %s mask(window<40>)
       : tensor<?x4x16xf32>, tensor<?x2x16xf32>, tensor<?x2x16xf32>, !attn.sequences -> tensor<?x4x16xf32>
  return %o : tensor<?x4x16xf32>
}

// CHECK-LABEL: func.func @dilated_attend_8(
// CHECK:         scf.while
// CHECK:         } do {
// CHECK:           scf.for
// CHECK:             tile.mma {{.*}} transpose_b
// CHECK:             tile.map
// CHECK-NOT:           arith.cmpi
// CHECK-NOT:           arith.select
// CHECK:               tile.yield
// CHECK:             scf.yield
// CHECK:           scf.for
// CHECK:             tile.mma {{.*}} transpose_b
// CHECK:             tile.map
// CHECK:               arith.remsi
// CHECK:               arith.cmpi eq
// CHECK:               0xFF800000
// CHECK:               arith.select
// CHECK:               tile.yield
// CHECK:             scf.yield
// CHECK:           scf.yield
// CHECK-NOT:     transpose_b
// CHECK:         return
func.func @dilated(%q: tensor<?x4x16xf32>, %k: tensor<?x2x16xf32>, %v: tensor<?x2x16xf32>, %s: !attn.sequences) -> tensor<?x4x16xf32> {
  %o = attn.attention %q, %k, %v, %s mask(window<40> and dilated<4>)
       : tensor<?x4x16xf32>, tensor<?x2x16xf32>, tensor<?x2x16xf32>, !attn.sequences -> tensor<?x4x16xf32>
  return %o : tensor<?x4x16xf32>
}

// CHECK-LABEL: func.func @sink_attend_8(
// CHECK:         scf.while
// CHECK:         } do {
// CHECK:           scf.for
// CHECK:             tile.mma {{.*}} transpose_b
// CHECK:             tile.map
// CHECK-NOT:           arith.cmpi
// CHECK-NOT:           arith.select
// CHECK:               tile.yield
// CHECK:             scf.yield
// CHECK:           scf.for
// CHECK:             tile.mma {{.*}} transpose_b
// CHECK:             tile.map
// CHECK:               arith.cmpi slt
// CHECK:               arith.ori
// CHECK:               0xFF800000
// CHECK:               arith.select
// CHECK:               tile.yield
// CHECK:             scf.yield
// CHECK:           scf.yield
// CHECK-NOT:     transpose_b
// CHECK:         return
func.func @sink(%q: tensor<?x4x16xf32>, %k: tensor<?x2x16xf32>, %v: tensor<?x2x16xf32>, %s: !attn.sequences) -> tensor<?x4x16xf32> {
  %o = attn.attention %q, %k, %v, %s mask(causal and (sink<4> or window<40>))
       : tensor<?x4x16xf32>, tensor<?x2x16xf32>, tensor<?x2x16xf32>, !attn.sequences -> tensor<?x4x16xf32>
  return %o : tensor<?x4x16xf32>
}

// CHECK-LABEL: func.func @negated_attend_8(
// CHECK:         scf.while
// CHECK:         } do {
// CHECK:           scf.for
// CHECK:             tile.mma {{.*}} transpose_b
// CHECK:             tile.map
// CHECK-NOT:           arith.cmpi
// CHECK-NOT:           arith.select
// CHECK:               tile.yield
// CHECK:             scf.yield
// CHECK:           scf.for
// CHECK:             tile.mma {{.*}} transpose_b
// CHECK:             tile.map
// CHECK:               arith.cmpi sle
// CHECK:               arith.xori
// CHECK:               0xFF800000
// CHECK:               arith.select
// CHECK:               tile.yield
// CHECK:             scf.yield
// CHECK:           scf.yield
// CHECK-NOT:     transpose_b
// CHECK:         return
func.func @negated(%q: tensor<?x4x16xf32>, %k: tensor<?x2x16xf32>, %v: tensor<?x2x16xf32>, %s: !attn.sequences) -> tensor<?x4x16xf32> {
  %o = attn.attention %q, %k, %v, %s mask(not causal)
       : tensor<?x4x16xf32>, tensor<?x2x16xf32>, tensor<?x2x16xf32>, !attn.sequences -> tensor<?x4x16xf32>
  return %o : tensor<?x4x16xf32>
}

// CHECK-LABEL: func.func @region_attend_8(
// CHECK:         scf.while
// CHECK:         } do {
// CHECK:           scf.for
// CHECK:             tile.mma {{.*}} transpose_b
// CHECK:             tile.map
// CHECK-NOT:           arith.cmpi
// CHECK-NOT:           arith.select
// CHECK:               tile.yield
// CHECK:             scf.yield
// CHECK:           scf.for
// CHECK:             tile.mma {{.*}} transpose_b
// CHECK:             tile.map
// CHECK:               arith.divsi
// CHECK:               arith.divsi
// CHECK:               arith.cmpi eq
// CHECK:               0xFF800000
// CHECK:               arith.select
// CHECK:               tile.yield
// CHECK:             scf.yield
// CHECK:           scf.yield
// CHECK-NOT:     transpose_b
// CHECK:         return
func.func @region(%q: tensor<?x4x16xf32>, %k: tensor<?x2x16xf32>, %v: tensor<?x2x16xf32>, %s: !attn.sequences) -> tensor<?x4x16xf32> {
  %o = attn.attention %q, %k, %v, %s mask(custom) where {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %n = arith.constant 64 : index
      %x = arith.divsi %i, %n : index
      %y = arith.divsi %j, %n : index
      %sees = arith.cmpi eq, %x, %y : index
      attn.yield %sees : i1
    }
       : tensor<?x4x16xf32>, tensor<?x2x16xf32>, tensor<?x2x16xf32>, !attn.sequences -> tensor<?x4x16xf32>
  return %o : tensor<?x4x16xf32>
}

// The sets of a tree are loaded once for the rows of an item, and looked at in the tile that
// holds the drafts alone.

// CHECK-LABEL: func.func @tree_attend_8(
// CHECK:         math.ctpop
// CHECK:         scf.while
// CHECK:         } do {
// CHECK:           scf.for
// CHECK:             tile.mma {{.*}} transpose_b
// CHECK:             tile.map
// CHECK-NOT:           arith.cmpi
// CHECK-NOT:           arith.select
// CHECK:               tile.yield
// CHECK:             scf.yield
// CHECK:           scf.for
// CHECK:             tile.mma {{.*}} transpose_b
// CHECK:             tile.map
// CHECK:               arith.shrui
// CHECK:               arith.trunci
// CHECK:               0xFF800000
// CHECK:               arith.select
// CHECK:               tile.yield
// CHECK:         return
func.func @tree(%q: tensor<?x4x16xf32>, %k: tensor<?x2x16xf32>, %v: tensor<?x2x16xf32>, %s: !attn.sequences, %t: tensor<?xi64>) -> tensor<?x4x16xf32> {
  %o = attn.attention %q, %k, %v, %s args(%t : tensor<?xi64>) mask(tree<arg0> and window<40>)
       : tensor<?x4x16xf32>, tensor<?x2x16xf32>, tensor<?x2x16xf32>, !attn.sequences -> tensor<?x4x16xf32>
  return %o : tensor<?x4x16xf32>
}

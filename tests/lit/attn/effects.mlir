// RUN: llm-opt opt %s -cse -canonicalize -loop-invariant-code-motion | FileCheck %s

!q = tensor<?x32x128xbf16>
!rows = tensor<?x8x128xbf16>
!kv = !attn.kv_cache<8x128xbf16, page = 16>

// Equal appends are two writes.
// CHECK-LABEL: func @append_stays
// CHECK: attn.append
// CHECK: attn.append
func.func @append_stays(%k: !rows, %slots: tensor<?xi64>, %kv: !kv) {
  attn.append %k, %k, %slots, %kv : !rows, !rows, tensor<?xi64>, !kv
  attn.append %k, %k, %slots, %kv : !rows, !rows, tensor<?xi64>, !kv
  return
}

// The attention after an append reads other keys than the one before.
// CHECK-LABEL: func @append_separates
// CHECK: %[[BEFORE:.*]] = attn.attention
// CHECK: attn.append
// CHECK: %[[AFTER:.*]] = attn.attention
// CHECK: return %[[BEFORE]], %[[AFTER]]
func.func @append_separates(%q: !q, %k: !rows, %slots: tensor<?xi64>, %kv: !kv, %seq: !attn.sequences) -> (!q, !q) {
  %0 = attn.attention %q, %kv, %seq : !q, !kv, !attn.sequences -> !q
  attn.append %k, %k, %slots, %kv : !rows, !rows, tensor<?xi64>, !kv
  %1 = attn.attention %q, %kv, %seq : !q, !kv, !attn.sequences -> !q
  return %0, %1 : !q, !q
}

// Two reads with no write between are one; one that nobody uses is none.
// CHECK-LABEL: func @reads_join
// CHECK-COUNT-1: attn.attention
// CHECK-NOT: attn.attention
// CHECK: return
func.func @reads_join(%q: !q, %kv: !kv, %seq: !attn.sequences) -> (!q, !q) {
  %0 = attn.attention %q, %kv, %seq mask(causal) : !q, !kv, !attn.sequences -> !q
  %1 = attn.attention %q, %kv, %seq mask(causal) : !q, !kv, !attn.sequences -> !q
  %unused = attn.attention %q, %kv, %seq : !q, !kv, !attn.sequences -> !q
  return %0, %1 : !q, !q
}

// Dense keys are values: an append in between does not matter.
// CHECK-LABEL: func @dense_is_pure
// CHECK: %[[O:.*]] = attn.attention
// CHECK: attn.append
// CHECK-NOT: attn.attention
// CHECK: return %[[O]], %[[O]]
func.func @dense_is_pure(%q: tensor<?x?x8x128xbf16>, %k: !rows, %slots: tensor<?xi64>, %kv: !kv)
    -> (tensor<?x?x8x128xbf16>, tensor<?x?x8x128xbf16>) {
  %0 = attn.attention %q, %q, %q
      : tensor<?x?x8x128xbf16>, tensor<?x?x8x128xbf16>, tensor<?x?x8x128xbf16> -> tensor<?x?x8x128xbf16>
  attn.append %k, %k, %slots, %kv : !rows, !rows, tensor<?xi64>, !kv
  %1 = attn.attention %q, %q, %q
      : tensor<?x?x8x128xbf16>, tensor<?x?x8x128xbf16>, tensor<?x?x8x128xbf16> -> tensor<?x?x8x128xbf16>
  return %0, %1 : tensor<?x?x8x128xbf16>, tensor<?x?x8x128xbf16>
}

// Other masks, other results.
// CHECK-LABEL: func @properties_differ
// CHECK: attn.attention {{.*}} mask(causal)
// CHECK: attn.attention {{.*}} mask(causal<top_left>)
func.func @properties_differ(%q: !q, %kv: !kv, %seq: !attn.sequences) -> (!q, !q) {
  %0 = attn.attention %q, %kv, %seq mask(causal) : !q, !kv, !attn.sequences -> !q
  %1 = attn.attention %q, %kv, %seq mask(causal<top_left>) : !q, !kv, !attn.sequences -> !q
  return %0, %1 : !q, !q
}

// Neither leaves a loop in which an append writes.
// CHECK-LABEL: func @loop
// CHECK: scf.for
// CHECK:   attn.append
// CHECK:   attn.attention
func.func @loop(%n: index, %q: !q, %k: !rows, %slots: tensor<?xi64>, %kv: !kv, %seq: !attn.sequences) -> !q {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %o = scf.for %i = %zero to %n step %one iter_args(%last = %q) -> !q {
    attn.append %k, %k, %slots, %kv : !rows, !rows, tensor<?xi64>, !kv
    %0 = attn.attention %q, %kv, %seq : !q, !kv, !attn.sequences -> !q
    scf.yield %0 : !q
  }
  return %o : !q
}

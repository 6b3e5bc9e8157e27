// RUN: llm-opt opt %s --pass-pipeline='builtin.module(attn-to-tile)' -split-input-file -verify-diagnostics

func.func @twice(%q: tensor<?x2x8xf32>, %k: tensor<?x2x8xf32>, %s: !attn.sequences) -> tensor<?x2x8xf32> {
  %o = attn.attention %q, %k, %k, %s : tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?x2x8xf32>, !attn.sequences -> tensor<?x2x8xf32>
  // expected-error@+1 {{appears twice; a spec function holds one of each attn op}}
  %p = attn.attention %o, %k, %k, %s : tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?x2x8xf32>, !attn.sequences -> tensor<?x2x8xf32>
  return %p : tensor<?x2x8xf32>
}

// -----

func.func @other(%q: tensor<?x2x8xf32>, %k: tensor<?x2x8xf32>, %s: !attn.sequences, %x: f32) -> (tensor<?x2x8xf32>, f32) {
  %o = attn.attention %q, %k, %k, %s : tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?x2x8xf32>, !attn.sequences -> tensor<?x2x8xf32>
  // expected-error@+1 {{has no place in a spec; attn ops, constants and return are allowed}}
  %y = arith.addf %x, %x : f32
  return %o, %y : tensor<?x2x8xf32>, f32
}

// -----

func.func @both(%q: tensor<?x2x8xf32>, %k: tensor<?x2x8xf32>, %s: !attn.sequences, %p: tensor<?x?x2x8xf32>, %l: tensor<?x?x2xf32>) -> (tensor<?x2x8xf32>, tensor<?x2x8xf32>) {
  %o = attn.attention %q, %k, %k, %s : tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?x2x8xf32>, !attn.sequences -> tensor<?x2x8xf32>
  // expected-error@+1 {{stands beside attn.attention; a spec holds one of the two}}
  %m = attn.merge %p, %l : tensor<?x?x2x8xf32>, tensor<?x?x2xf32> -> tensor<?x2x8xf32>
  return %o, %m : tensor<?x2x8xf32>, tensor<?x2x8xf32>
}

// -----

func.func @too_many_heads(%q: tensor<?x65537x8xf32>, %k: tensor<?x1x8xf32>, %s: !attn.sequences) -> tensor<?x65537x8xf32> {
  // expected-error@+1 {{'attn.attention' op has 65537 query heads; at most 65536 are allowed}}
  %o = attn.attention %q, %k, %k, %s : tensor<?x65537x8xf32>, tensor<?x1x8xf32>, tensor<?x1x8xf32>, !attn.sequences -> tensor<?x65537x8xf32>
  return %o : tensor<?x65537x8xf32>
}

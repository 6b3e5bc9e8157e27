// RUN: llm-opt opt %s -split-input-file -verify-diagnostics

// attn.merge and attn.append.

func.func @partials_rank(%p: tensor<?x8x64xf32>, %m: tensor<?x?x8xf32>) {
  // expected-error @below {{'attn.merge' op partials must be an f32 tensor (N, T, H, Dv), got 'tensor<?x8x64xf32>'}}
  %o = attn.merge %p, %m : tensor<?x8x64xf32>, tensor<?x?x8xf32> -> tensor<?x8x64xbf16>
  return
}

// -----

func.func @partials_elements(%p: tensor<?x?x8x64xbf16>, %m: tensor<?x?x8xf32>) {
  // expected-error @below {{'attn.merge' op partials must be an f32 tensor (N, T, H, Dv), got 'tensor<?x?x8x64xbf16>'}}
  %o = attn.merge %p, %m : tensor<?x?x8x64xbf16>, tensor<?x?x8xf32> -> tensor<?x8x64xbf16>
  return
}

// -----

func.func @partials_heads(%p: tensor<?x?x?x64xf32>, %m: tensor<?x?x8xf32>) {
  // expected-error @below {{'attn.merge' op partials must have a static number of heads, 1 or more, got 'tensor<?x?x?x64xf32>'}}
  %o = attn.merge %p, %m : tensor<?x?x?x64xf32>, tensor<?x?x8xf32> -> tensor<?x8x64xbf16>
  return
}

// -----

func.func @partials_dim(%p: tensor<?x?x8x577xf32>, %m: tensor<?x?x8xf32>) {
  // expected-error @below {{'attn.merge' op partials must have a static head dimension of 1 to 576, got 'tensor<?x?x8x577xf32>'}}
  %o = attn.merge %p, %m : tensor<?x?x8x577xf32>, tensor<?x?x8xf32> -> tensor<?x8x64xbf16>
  return
}

// -----

func.func @lses_heads(%p: tensor<?x?x8x64xf32>, %m: tensor<?x?x4xf32>) {
  // expected-error @below {{'attn.merge' op lses must be 'tensor<?x?x8xf32>' for partials 'tensor<?x?x8x64xf32>', got 'tensor<?x?x4xf32>'}}
  %o = attn.merge %p, %m : tensor<?x?x8x64xf32>, tensor<?x?x4xf32> -> tensor<?x8x64xbf16>
  return
}

// -----

func.func @lses_elements(%p: tensor<?x?x8x64xf32>, %m: tensor<?x?x8xbf16>) {
  // expected-error @below {{'attn.merge' op lses must be 'tensor<?x?x8xf32>' for partials 'tensor<?x?x8x64xf32>', got 'tensor<?x?x8xbf16>'}}
  %o = attn.merge %p, %m : tensor<?x?x8x64xf32>, tensor<?x?x8xbf16> -> tensor<?x8x64xbf16>
  return
}

// -----

func.func @lses_count(%p: tensor<3x?x8x64xf32>, %m: tensor<2x?x8xf32>) {
  // expected-error @below {{'attn.merge' op lses must be 'tensor<3x?x8xf32>' for partials 'tensor<3x?x8x64xf32>', got 'tensor<2x?x8xf32>'}}
  %o = attn.merge %p, %m : tensor<3x?x8x64xf32>, tensor<2x?x8xf32> -> tensor<?x8x64xbf16>
  return
}

// -----

func.func @merged_elements(%p: tensor<?x?x8x64xf32>, %m: tensor<?x?x8xf32>) {
  // expected-error @below {{'attn.merge' op output elements must be f32, f16 or bf16, got 'f64'}}
  %o = attn.merge %p, %m : tensor<?x?x8x64xf32>, tensor<?x?x8xf32> -> tensor<?x8x64xf64>
  return
}

// -----

func.func @merged_shape(%p: tensor<?x?x8x64xf32>, %m: tensor<?x?x8xf32>) {
  // expected-error @below {{'attn.merge' op output must be 'tensor<?x8x64xbf16>' for partials 'tensor<?x?x8x64xf32>', got 'tensor<?x8x32xbf16>'}}
  %o = attn.merge %p, %m : tensor<?x?x8x64xf32>, tensor<?x?x8xf32> -> tensor<?x8x32xbf16>
  return
}

// -----

func.func @merged_lse(%p: tensor<?x?x8x64xf32>, %m: tensor<?x?x8xf32>) {
  // expected-error @below {{'attn.merge' op lse must be 'tensor<?x8xf32>' for partials 'tensor<?x?x8x64xf32>', got 'tensor<?x4xf32>'}}
  %o, %l = attn.merge %p, %m : tensor<?x?x8x64xf32>, tensor<?x?x8xf32> -> tensor<?x8x64xbf16>, tensor<?x4xf32>
  return
}

// -----

func.func @keys_rank(%k: tensor<8x128xbf16>, %v: tensor<?x8x128xbf16>, %s: tensor<?xi64>, %c: !attn.kv_cache<8x128xbf16, page = 16>) {
  // expected-error @below {{'attn.append' op keys must be 'tensor<?x8x128xbf16>' for this cache, got 'tensor<8x128xbf16>'}}
  attn.append %k, %v, %s, %c
      : tensor<8x128xbf16>, tensor<?x8x128xbf16>, tensor<?xi64>, !attn.kv_cache<8x128xbf16, page = 16>
  return
}

// -----

func.func @keys_heads(%k: tensor<?x4x128xbf16>, %v: tensor<?x8x128xbf16>, %s: tensor<?xi64>, %c: !attn.kv_cache<8x128xbf16, page = 16>) {
  // expected-error @below {{'attn.append' op keys must be 'tensor<?x8x128xbf16>' for this cache, got 'tensor<?x4x128xbf16>'}}
  attn.append %k, %v, %s, %c
      : tensor<?x4x128xbf16>, tensor<?x8x128xbf16>, tensor<?xi64>, !attn.kv_cache<8x128xbf16, page = 16>
  return
}

// -----

func.func @keys_elements(%k: tensor<?x8x128xf16>, %v: tensor<?x8x128xbf16>, %s: tensor<?xi64>, %c: !attn.kv_cache<8x128xbf16, page = 16>) {
  // expected-error @below {{'attn.append' op keys must be 'tensor<?x8x128xbf16>' for this cache, got 'tensor<?x8x128xf16>'}}
  attn.append %k, %v, %s, %c
      : tensor<?x8x128xf16>, tensor<?x8x128xbf16>, tensor<?xi64>, !attn.kv_cache<8x128xbf16, page = 16>
  return
}

// -----

func.func @values_dim(%k: tensor<?x8x128xbf16>, %v: tensor<?x8x128xbf16>, %s: tensor<?xi64>, %c: !attn.kv_cache<8x128xbf16, v_dim = 64, page = 16>) {
  // expected-error @below {{'attn.append' op values must be 'tensor<?x8x64xbf16>' for this cache, got 'tensor<?x8x128xbf16>'}}
  attn.append %k, %v, %s, %c
      : tensor<?x8x128xbf16>, tensor<?x8x128xbf16>, tensor<?xi64>, !attn.kv_cache<8x128xbf16, v_dim = 64, page = 16>
  return
}

// -----

func.func @slots_elements(%k: tensor<?x8x128xbf16>, %v: tensor<?x8x128xbf16>, %s: tensor<?xi32>, %c: !attn.kv_cache<8x128xbf16, page = 16>) {
  // expected-error @below {{'attn.append' op slots must be tensor<?xi64>, got 'tensor<?xi32>'}}
  attn.append %k, %v, %s, %c
      : tensor<?x8x128xbf16>, tensor<?x8x128xbf16>, tensor<?xi32>, !attn.kv_cache<8x128xbf16, page = 16>
  return
}

// -----

func.func @slots_rank(%k: tensor<?x8x128xbf16>, %v: tensor<?x8x128xbf16>, %s: tensor<?x1xi64>, %c: !attn.kv_cache<8x128xbf16, page = 16>) {
  // expected-error @below {{'attn.append' op slots must be tensor<?xi64>, got 'tensor<?x1xi64>'}}
  attn.append %k, %v, %s, %c
      : tensor<?x8x128xbf16>, tensor<?x8x128xbf16>, tensor<?x1xi64>, !attn.kv_cache<8x128xbf16, page = 16>
  return
}

// -----

func.func @row_counts(%k: tensor<4x8x128xbf16>, %v: tensor<?x8x128xbf16>, %s: tensor<5xi64>, %c: !attn.kv_cache<8x128xbf16, page = 16>) {
  // expected-error @below {{'attn.append' op keys, values and slots must have equally many rows, got 'tensor<4x8x128xbf16>', 'tensor<?x8x128xbf16>' and 'tensor<5xi64>'}}
  attn.append %k, %v, %s, %c
      : tensor<4x8x128xbf16>, tensor<?x8x128xbf16>, tensor<5xi64>, !attn.kv_cache<8x128xbf16, page = 16>
  return
}

// -----

func.func @not_a_cache(%k: tensor<?x8x128xbf16>, %v: tensor<?x8x128xbf16>, %s: tensor<?xi64>, %c: tensor<?x8x128xbf16>) {
  // expected-error @below {{'attn.append' op operand #3 must be a paged KV cache, but got 'tensor<?x8x128xbf16>'}}
  attn.append %k, %v, %s, %c
      : tensor<?x8x128xbf16>, tensor<?x8x128xbf16>, tensor<?xi64>, tensor<?x8x128xbf16>
  return
}

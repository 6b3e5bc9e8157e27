// RUN: llm-opt opt %s -split-input-file -verify-diagnostics

// Operands and results of attn.attention.

func.func @query_not_a_tensor(%q: f32, %k: tensor<?x?x8x64xf32>, %v: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op query must be a tensor (B, Lq, H, D) or (T, H, D), got 'f32'}}
  %o = attn.attention %q, %k, %v
      : f32, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @query_rank(%q: tensor<8x64xf32>, %k: tensor<?x?x8x64xf32>, %v: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op query must be a tensor (B, Lq, H, D) or (T, H, D), got 'tensor<8x64xf32>'}}
  %o = attn.attention %q, %k, %v
      : tensor<8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @query_unranked(%q: tensor<*xf32>, %k: tensor<?x?x8x64xf32>, %v: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op query must be a tensor (B, Lq, H, D) or (T, H, D), got 'tensor<*xf32>'}}
  %o = attn.attention %q, %k, %v
      : tensor<*xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @query_elements(%q: tensor<?x?x8x64xf64>, %k: tensor<?x?x8x64xf32>, %v: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op query elements must be f32, f16 or bf16, got 'f64'}}
  %o = attn.attention %q, %k, %v
      : tensor<?x?x8x64xf64>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf64>
  return
}

// -----

func.func @query_dynamic_heads(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x8x64xf32>, %v: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op query must have static heads and head dimension, got 'tensor<?x?x?x64xf32>'}}
  %o = attn.attention %q, %k, %v
      : tensor<?x?x?x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x?x64xf32>
  return
}

// -----

func.func @query_dynamic_dim(%q: tensor<?x?x8x?xf32>, %k: tensor<?x?x8x64xf32>, %v: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op query must have static heads and head dimension, got 'tensor<?x?x8x?xf32>'}}
  %o = attn.attention %q, %k, %v
      : tensor<?x?x8x?xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x?xf32>
  return
}

// -----

func.func @query_no_heads(%q: tensor<?x?x0x64xf32>, %k: tensor<?x?x8x64xf32>, %v: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op query must have 1 head or more, got 'tensor<?x?x0x64xf32>'}}
  %o = attn.attention %q, %k, %v
      : tensor<?x?x0x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x0x64xf32>
  return
}

// -----

func.func @query_dim_0(%q: tensor<?x?x8x0xf32>, %k: tensor<?x?x8x64xf32>, %v: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op head dimension of query must be 1 to 576, got 0}}
  %o = attn.attention %q, %k, %v
      : tensor<?x?x8x0xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x0xf32>
  return
}

// -----

func.func @query_dim_577(%q: tensor<?x?x8x577xf32>, %k: tensor<?x?x8x64xf32>, %v: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op head dimension of query must be 1 to 576, got 577}}
  %o = attn.attention %q, %k, %v
      : tensor<?x?x8x577xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x577xf32>
  return
}

// -----

func.func @query_encoding(%q: tensor<?x?x8x64xf32, 1 : i32>, %k: tensor<?x?x8x64xf32>, %v: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op query must have no encoding, got 'tensor<?x?x8x64xf32, 1 : i32>'}}
  %o = attn.attention %q, %k, %v
      : tensor<?x?x8x64xf32, 1 : i32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32, 1 : i32>
  return
}

// -----

func.func @key_not_a_tensor(%q: tensor<?x?x8x64xf32>, %k: i32, %v: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op key must be a tensor (B, Lkv, Hkv, D) or (T, Hkv, D), or a kv_cache, got 'i32'}}
  %o = attn.attention %q, %k, %v
      : tensor<?x?x8x64xf32>, i32, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @key_rank(%q: tensor<?x?x8x64xf32>, %k: tensor<64xf32>, %v: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op key must be a tensor (B, Lkv, Hkv, D) or (T, Hkv, D), or a kv_cache, got 'tensor<64xf32>'}}
  %o = attn.attention %q, %k, %v
      : tensor<?x?x8x64xf32>, tensor<64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @key_elements(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf16>, %v: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op key elements must be 'f32' like the query's, got 'f16'}}
  %o = attn.attention %q, %k, %v
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf16>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @key_dynamic_heads(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op key must have static heads and head dimension, got 'tensor<?x?x?x64xf32>'}}
  %o = attn.attention %q, %k, %v
      : tensor<?x?x8x64xf32>, tensor<?x?x?x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @key_dim(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x32xf32>, %v: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op key must have the query's head dimension 64, got 32}}
  %o = attn.attention %q, %k, %v
      : tensor<?x?x8x64xf32>, tensor<?x?x8x32xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @key_batch(%q: tensor<2x?x8x64xf32>, %k: tensor<3x?x8x64xf32>, %v: tensor<3x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op key must have the query's batch extent 2, got 3}}
  %o = attn.attention %q, %k, %v
      : tensor<2x?x8x64xf32>, tensor<3x?x8x64xf32>, tensor<3x?x8x64xf32> -> tensor<2x?x8x64xf32>
  return
}

// -----

func.func @heads_not_divisible(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x3x64xf32>, %v: tensor<?x?x3x64xf32>) {
  // expected-error @below {{'attn.attention' op query heads must be a multiple of the KV heads, got 8 and 3}}
  %o = attn.attention %q, %k, %v
      : tensor<?x?x8x64xf32>, tensor<?x?x3x64xf32>, tensor<?x?x3x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @cache_elements(%q: tensor<?x8x64xf32>, %k: !attn.kv_cache<8x64xbf16, page = 16>, %s: !attn.sequences) {
  // expected-error @below {{'attn.attention' op cache elements must be 'f32' like the query's, got 'bf16'}}
  %o = attn.attention %q, %k, %s
      : tensor<?x8x64xf32>, !attn.kv_cache<8x64xbf16, page = 16>, !attn.sequences -> tensor<?x8x64xf32>
  return
}

// -----

func.func @cache_dim(%q: tensor<?x8x64xf32>, %k: !attn.kv_cache<8x128xf32, page = 16>, %s: !attn.sequences) {
  // expected-error @below {{'attn.attention' op key must have the query's head dimension 64, got 128}}
  %o = attn.attention %q, %k, %s
      : tensor<?x8x64xf32>, !attn.kv_cache<8x128xf32, page = 16>, !attn.sequences -> tensor<?x8x64xf32>
  return
}

// -----

func.func @value_superfluous(%q: tensor<?x8x64xf32>, %k: !attn.kv_cache<8x64xf32, page = 16>, %v: tensor<?x8x64xf32>, %s: !attn.sequences) {
  // expected-error @below {{'attn.attention' op a kv_cache holds the values: no value operand, got 'tensor<?x8x64xf32>'}}
  %o = attn.attention %q, %k, %v, %s
      : tensor<?x8x64xf32>, !attn.kv_cache<8x64xf32, page = 16>, tensor<?x8x64xf32>, !attn.sequences -> tensor<?x8x64xf32>
  return
}

// -----

func.func @value_missing(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op a key tensor needs a value operand after it}}
  %o = attn.attention %q, %k
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @value_rank(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %v: tensor<?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op value must be a tensor of the key's rank 4, got 'tensor<?x8x64xf32>'}}
  %o = attn.attention %q, %k, %v
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @value_elements(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %v: tensor<?x?x8x64xbf16>) {
  // expected-error @below {{'attn.attention' op value elements must be 'f32' like the query's, got 'bf16'}}
  %o = attn.attention %q, %k, %v
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xbf16> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @value_heads(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %v: tensor<?x?x4x64xf32>) {
  // expected-error @below {{'attn.attention' op value must have the key's extent 8 in dimension 2, got 4}}
  %o = attn.attention %q, %k, %v
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x4x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @value_length(%q: tensor<?x?x8x64xf32>, %k: tensor<?x7x8x64xf32>, %v: tensor<?x9x8x64xf32>) {
  // expected-error @below {{'attn.attention' op value must have the key's extent 7 in dimension 1, got 9}}
  %o = attn.attention %q, %k, %v
      : tensor<?x?x8x64xf32>, tensor<?x7x8x64xf32>, tensor<?x9x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @value_dim(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %v: tensor<?x?x8x600xf32>) {
  // expected-error @below {{'attn.attention' op head dimension of value must be 1 to 576, got 600}}
  %o = attn.attention %q, %k, %v
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x600xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @sequences_missing_paged(%q: tensor<?x?x8x64xf32>, %k: !attn.kv_cache<8x64xf32, page = 16>) {
  // expected-error @below {{'attn.attention' op a kv_cache needs a !attn.sequences operand}}
  %o = attn.attention %q, %k
      : tensor<?x?x8x64xf32>, !attn.kv_cache<8x64xf32, page = 16> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @sequences_missing_ragged_query(%q: tensor<?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %v: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op a ragged query needs a !attn.sequences operand}}
  %o = attn.attention %q, %k, %v
      : tensor<?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x8x64xf32>
  return
}

// -----

func.func @sequences_missing_ragged_key(%q: tensor<?x?x8x64xf32>, %k: tensor<?x8x64xf32>, %v: tensor<?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op a ragged key needs a !attn.sequences operand}}
  %o = attn.attention %q, %k, %v
      : tensor<?x?x8x64xf32>, tensor<?x8x64xf32>, tensor<?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @output_shape(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %v: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op output must be 'tensor<?x?x8x64xf32>', got 'tensor<?x?x8x32xf32>'}}
  %o = attn.attention %q, %k, %v
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x32xf32>
  return
}

// -----

func.func @output_value_dim(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %v: tensor<?x?x8x32xf32>) {
  // expected-error @below {{'attn.attention' op output must be 'tensor<?x?x8x32xf32>', got 'tensor<?x?x8x64xf32>'}}
  %o = attn.attention %q, %k, %v
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x32xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @output_elements(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %v: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op output must be 'tensor<?x?x8x64xf32>', got 'tensor<?x?x8x64xbf16>'}}
  %o = attn.attention %q, %k, %v
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xbf16>
  return
}

// -----

func.func @lse_shape(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %v: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op lse must be 'tensor<?x?x8xf32>', got 'tensor<?x8xf32>'}}
  %o, %lse = attn.attention %q, %k, %v
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>, tensor<?x8xf32>
  return
}

// -----

func.func @lse_elements(%q: tensor<?x?x8x64xbf16>, %k: tensor<?x?x8x64xbf16>, %v: tensor<?x?x8x64xbf16>) {
  // expected-error @below {{'attn.attention' op lse must be 'tensor<?x?x8xf32>', got 'tensor<?x?x8xbf16>'}}
  %o, %lse = attn.attention %q, %k, %v
      : tensor<?x?x8x64xbf16>, tensor<?x?x8x64xbf16>, tensor<?x?x8x64xbf16> -> tensor<?x?x8x64xbf16>, tensor<?x?x8xbf16>
  return
}

// -----

func.func @three_results(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %v: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op result group starting at #1 requires 0 or 1 element, but found 2}}
  %o:3 = attn.attention %q, %k, %v
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>
  return
}

// -----

func.func @segments(%q: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op operand count (3) does not match with the total size (4) specified in attribute 'operandSegmentSizes'}}
  %o = "attn.attention"(%q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 0>}>
      : (tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>) -> tensor<?x?x8x64xf32>
  return
}

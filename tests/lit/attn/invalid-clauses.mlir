// RUN: llm-opt opt %s -split-input-file -verify-diagnostics

// Clauses of attn.attention and the args and regions that they name.

func.func @window_arg_out_of_range(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %a0: i32) {
  // expected-error @below {{'attn.attention' op window names arg1, but the op has 1 arg}}
  %o = attn.attention %q, %k, %k args(%a0 : i32)
      mask(window<arg1>)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @window_arg_without_args(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op window names arg0, but the op has 0 args}}
  %o = attn.attention %q, %k, %k mask(window<arg0>)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @window_arg_type(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %a0: f32) {
  // expected-error @below {{'attn.attention' op window takes arg0 as index, i32, i64, tensor<8xi32> or tensor<8xi64>, got 'f32'}}
  %o = attn.attention %q, %k, %k args(%a0 : f32)
      mask(window<arg0>)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @window_arg_heads(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %a0: tensor<4xi32>) {
  // expected-error @below {{'attn.attention' op window takes arg0 as index, i32, i64, tensor<8xi32> or tensor<8xi64>, got 'tensor<4xi32>'}}
  %o = attn.attention %q, %k, %k args(%a0 : tensor<4xi32>)
      mask(window<arg0>)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @window_arg_index_tensor(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %a0: tensor<8xindex>) {
  // expected-error @below {{'attn.attention' op window takes arg0 as index, i32, i64, tensor<8xi32> or tensor<8xi64>, got 'tensor<8xindex>'}}
  %o = attn.attention %q, %k, %k args(%a0 : tensor<8xindex>)
      mask(window<arg0>)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @window_left_arg(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %a0: i8) {
  // expected-error @below {{'attn.attention' op window_left takes arg0 as index, i32, i64, tensor<8xi32> or tensor<8xi64>, got 'i8'}}
  %o = attn.attention %q, %k, %k args(%a0 : i8)
      mask(window<left = arg0, right = 0>)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @sink_keys_arg(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %a0: tensor<8x1xi32>) {
  // expected-error @below {{'attn.attention' op sink_keys takes arg0 as index, i32, i64, tensor<8xi32> or tensor<8xi64>, got 'tensor<8x1xi32>'}}
  %o = attn.attention %q, %k, %k args(%a0 : tensor<8x1xi32>)
      mask(causal or not sink<arg0>)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @dilation_arg(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %a0: f32) {
  // expected-error @below {{'attn.attention' op dilation takes arg0 as index, i32, i64, tensor<8xi32> or tensor<8xi64>, got 'f32'}}
  %o = attn.attention %q, %k, %k args(%a0 : f32)
      mask(dilated<arg0>)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @chunk_arg(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %a0: f32) {
  // expected-error @below {{'attn.attention' op chunk takes arg0 as index, i32, i64, tensor<8xi32> or tensor<8xi64>, got 'f32'}}
  %o = attn.attention %q, %k, %k args(%a0 : f32)
      mask(chunked<arg0>)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @dense_arg_out_of_range(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op dense names arg2, but the op has 0 args}}
  %o = attn.attention %q, %k, %k mask(dense<arg2>)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @tree_arg_out_of_range(%q: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op tree names arg1, but the op has 0 args}}
  %o = attn.attention %q, %q, %q mask(tree<arg1>)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @tree_rank(%q: tensor<?x?x8x64xf32>, %a0: tensor<?xi64>) {
  // expected-error @below {{'attn.attention' op tree takes arg0 as 'tensor<?x?xi64>', one set for each query, got 'tensor<?xi64>'}}
  %o = attn.attention %q, %q, %q args(%a0 : tensor<?xi64>) mask(tree<arg0>)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @tree_elements(%q: tensor<?x8x64xf32>, %s: !attn.sequences, %a0: tensor<?xi32>) {
  // expected-error @below {{'attn.attention' op tree takes arg0 as 'tensor<?xi64>', one set for each query, got 'tensor<?xi32>'}}
  %o = attn.attention %q, %q, %q, %s args(%a0 : tensor<?xi32>) mask(tree<arg0>)
      : tensor<?x8x64xf32>, tensor<?x8x64xf32>, tensor<?x8x64xf32>, !attn.sequences -> tensor<?x8x64xf32>
  return
}

// -----

func.func @tree_queries(%q: tensor<2x5x8x64xf32>, %a0: tensor<2x4xi64>) {
  // expected-error @below {{'attn.attention' op tree takes arg0 as 'tensor<2x5xi64>', one set for each query, got 'tensor<2x4xi64>'}}
  %o = attn.attention %q, %q, %q args(%a0 : tensor<2x4xi64>) mask(causal and tree<arg0>)
      : tensor<2x5x8x64xf32>, tensor<2x5x8x64xf32>, tensor<2x5x8x64xf32> -> tensor<2x5x8x64xf32>
  return
}

// -----

func.func @two_trees(%q: tensor<?x?x8x64xf32>, %a0: tensor<?x?xi64>, %a1: tensor<?x?xi64>) {
  // expected-error @below {{'attn.attention' op mask has trees of arg0 and arg1; the queries of an op form one tree}}
  %o = attn.attention %q, %q, %q args(%a0, %a1 : tensor<?x?xi64>, tensor<?x?xi64>)
      mask(tree<arg0> or tree<arg1>)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @dense_rank(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %a0: tensor<?x?xi1>) {
  // expected-error @below {{'attn.attention' op dense takes arg0 as a tensor (B, H, Lq, Lkv) of i1 or i8, got 'tensor<?x?xi1>'}}
  %o = attn.attention %q, %k, %k args(%a0 : tensor<?x?xi1>)
      mask(dense<arg0>)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @dense_elements(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %a0: tensor<?x?x?x?xf32>) {
  // expected-error @below {{'attn.attention' op dense takes arg0 as a tensor (B, H, Lq, Lkv) of i1 or i8, got 'tensor<?x?x?x?xf32>'}}
  %o = attn.attention %q, %k, %k args(%a0 : tensor<?x?x?x?xf32>)
      mask(dense<arg0>)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @dense_heads(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %a0: tensor<?x4x?x?xi1>) {
  // expected-error @below {{'attn.attention' op dense takes arg0 with extent 1 or 8 in dimension 1 (query heads), got 'tensor<?x4x?x?xi1>'}}
  %o = attn.attention %q, %k, %k args(%a0 : tensor<?x4x?x?xi1>)
      mask(causal and dense<arg0>)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @dense_batch(%q: tensor<2x?x8x64xf32>, %k: tensor<2x?x8x64xf32>, %a0: tensor<3x?x?x?xi8>) {
  // expected-error @below {{'attn.attention' op dense takes arg0 with extent 1 or 2 in dimension 0 (batch), got 'tensor<3x?x?x?xi8>'}}
  %o = attn.attention %q, %k, %k args(%a0 : tensor<3x?x?x?xi8>)
      mask(dense<arg0>)
      : tensor<2x?x8x64xf32>, tensor<2x?x8x64xf32>, tensor<2x?x8x64xf32> -> tensor<2x?x8x64xf32>
  return
}

// -----

func.func @dense_empty(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %a0: tensor<0x?x?x?xi8>) {
  // expected-error @below {{'attn.attention' op dense takes arg0 with extent 1 or more in dimension 0 (batch), got 'tensor<0x?x?x?xi8>'}}
  %o = attn.attention %q, %k, %k args(%a0 : tensor<0x?x?x?xi8>)
      mask(dense<arg0>)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @bias_arg_out_of_range(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op bias names arg0, but the op has 0 args}}
  %o = attn.attention %q, %k, %k bias(arg0)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @bias_scalar(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %a0: f32) {
  // expected-error @below {{'attn.attention' op bias takes arg0 as a tensor (B, H, Lq, Lkv) of f32, f16 or bf16, got 'f32'}}
  %o = attn.attention %q, %k, %k args(%a0 : f32)
      bias(arg0)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @bias_elements(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %a0: tensor<?x?x?x?xf64>) {
  // expected-error @below {{'attn.attention' op bias takes arg0 as a tensor (B, H, Lq, Lkv) of f32, f16 or bf16, got 'tensor<?x?x?x?xf64>'}}
  %o = attn.attention %q, %k, %k args(%a0 : tensor<?x?x?x?xf64>)
      bias(arg0)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @bias_query_length(%q: tensor<2x5x8x64xf32>, %k: tensor<2x7x8x64xf32>, %a0: tensor<1x8x6x?xf32>) {
  // expected-error @below {{'attn.attention' op bias takes arg0 with extent 1 or 5 in dimension 2 (query length), got 'tensor<1x8x6x?xf32>'}}
  %o = attn.attention %q, %k, %k args(%a0 : tensor<1x8x6x?xf32>)
      bias(arg0)
      : tensor<2x5x8x64xf32>, tensor<2x7x8x64xf32>, tensor<2x7x8x64xf32> -> tensor<2x5x8x64xf32>
  return
}

// -----

func.func @bias_key_length(%q: tensor<2x5x8x64xf32>, %k: tensor<2x7x8x64xf32>, %a0: tensor<1x8x5x5xf32>) {
  // expected-error @below {{'attn.attention' op bias takes arg0 with extent 1 or 7 in dimension 3 (key length), got 'tensor<1x8x5x5xf32>'}}
  %o = attn.attention %q, %k, %k args(%a0 : tensor<1x8x5x5xf32>)
      bias(arg0)
      : tensor<2x5x8x64xf32>, tensor<2x7x8x64xf32>, tensor<2x7x8x64xf32> -> tensor<2x5x8x64xf32>
  return
}

// -----

func.func @scale_arg_type(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %a0: f64) {
  // expected-error @below {{'attn.attention' op scale takes arg0 as f32 or tensor<8xf32>, got 'f64'}}
  %o = attn.attention %q, %k, %k args(%a0 : f64)
      scale(arg0)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @scale_arg_out_of_range(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op scale names arg3, but the op has 0 args}}
  %o = attn.attention %q, %k, %k scale(arg3)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @softcap_arg_type(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %a0: bf16) {
  // expected-error @below {{'attn.attention' op softcap takes arg0 as f32 or tensor<8xf32>, got 'bf16'}}
  %o = attn.attention %q, %k, %k args(%a0 : bf16)
      softcap(arg0)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @alibi_arg_heads(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %a0: tensor<2xf32>) {
  // expected-error @below {{'attn.attention' op alibi_slope takes arg0 as f32 or tensor<8xf32>, got 'tensor<2xf32>'}}
  %o = attn.attention %q, %k, %k args(%a0 : tensor<2xf32>)
      alibi(arg0)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @sink_arg_out_of_range(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op sink names arg0, but the op has 0 args}}
  %o = attn.attention %q, %k, %k sink(arg0)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @sink_arg_scalar(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %a0: f32) {
  // expected-error @below {{'attn.attention' op sink takes arg0 as tensor<8xf32>, got 'f32'}}
  %o = attn.attention %q, %k, %k args(%a0 : f32)
      sink(arg0)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @sink_arg_elements(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %a0: tensor<8xbf16>) {
  // expected-error @below {{'attn.attention' op sink takes arg0 as tensor<8xf32>, got 'tensor<8xbf16>'}}
  %o = attn.attention %q, %k, %k args(%a0 : tensor<8xbf16>)
      sink(arg0)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @unused_arg(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>, %a0: i32, %a1: f32) {
  // expected-error @below {{'attn.attention' op arg1 is named by no clause}}
  %o = attn.attention %q, %k, %k args(%a0, %a1 : i32, f32)
      mask(window<arg0>)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @batch_invariant_split(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op batch_invariant needs split(length = N) or split(none), got split(count = 4)}}
  %o = attn.attention %q, %k, %k split(count = 4) schedule(batch_invariant)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @mask_region_missing(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op mask names region 0, but the op has 0 mask regions}}
  %o = attn.attention %q, %k, %k mask(custom)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @mask_region_number(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op mask names region 2, but the op has 1 mask region}}
  %o = attn.attention %q, %k, %k mask(custom<2>) where {
      ^bb0(%b: index, %h: index, %i: index, %j: index):
        %t = arith.constant true
        attn.yield %t : i1
      }
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @mask_region_unnamed(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op mask region 0 is named by no custom mask; write custom<0> in the mask clause}}
  %o = attn.attention %q, %k, %k mask(causal) where {
      ^bb0(%b: index, %h: index, %i: index, %j: index):
        %t = arith.constant true
        attn.yield %t : i1
      }
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @mask_region_without_mask(%q: tensor<?x?x8x64xf32>, %k: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op mask region 0 is named by no custom mask; write custom<0> in the mask clause}}
  %o = attn.attention %q, %k, %k where {
      ^bb0(%b: index, %h: index, %i: index, %j: index):
        %t = arith.constant true
        attn.yield %t : i1
      }
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @mask_is_no_mask(%q: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op mask does not implement MaskAttrInterface: 3 : i64}}
  %o = "attn.attention"(%q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>, mask = 3 : i64}>
      : (tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>) -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @score_is_no_score(%q: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op score 1 does not implement ScoreAttrInterface: #attn.causal}}
  %o = "attn.attention"(%q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>, scores = [#attn.softcap<30.0>, #attn.causal]}>
      : (tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>) -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @score_region_missing(%q: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op score 0 needs a region, but the op has 0}}
  %o = "attn.attention"(%q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>, scores = [#attn.custom_score<0>]}>
      : (tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>) -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @score_region_number(%q: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op score 0 must name region 0 (score regions follow mask regions, in order), got 1}}
  %o = "attn.attention"(%q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>, scores = [#attn.custom_score<1>]}>
      ({
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        "attn.yield"(%s) : (f32) -> ()
      }) : (tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>) -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @scale_type(%q: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op scale is an f64 number or argN, got 2 : i64}}
  %o = "attn.attention"(%q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>, scale = 2 : i64}>
      : (tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>) -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @scale_infinite(%q: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op scale is finite, got 0x7FF0000000000000 : f64}}
  %o = "attn.attention"(%q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>, scale = 0x7FF0000000000000 : f64}>
      : (tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>) -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @scale_nan(%q: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op scale is finite, got 0x7FF8000000000000 : f64}}
  %o = "attn.attention"(%q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>, scale = 0x7FF8000000000000 : f64}>
      : (tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>) -> tensor<?x?x8x64xf32>
  return
}

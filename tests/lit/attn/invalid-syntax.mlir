// RUN: llm-opt opt %s -split-input-file -verify-diagnostics

// Text of attn.attention that does not parse.

func.func @unknown_clause(%q: tensor<?x?x8x64xf32>, %w: i32) {
  // expected-error @below {{unknown clause 'masked'; known are args, mask, where, scale, softcap, bias, alibi, score, sink, split, schedule}}
  %o = attn.attention %q, %q, %q masked(causal)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @clause_twice(%q: tensor<?x?x8x64xf32>, %w: i32) {
  // expected-error @below {{clause 'mask' is given twice}}
  %o = attn.attention %q, %q, %q mask(causal) mask(causal)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @unknown_mask(%q: tensor<?x?x8x64xf32>, %w: i32) {
  // expected-error @below {{unknown mask 'windw'; known are causal, window, sink, dilated, chunked, dense, tree, custom, joined by and, or, not}}
  %o = attn.attention %q, %q, %q mask(causal and windw<4>)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @score_in_mask(%q: tensor<?x?x8x64xf32>, %w: i32) {
  // expected-error @below {{expected a mask, got #attn.softcap<3.0>, which does not implement MaskAttrInterface}}
  %o = attn.attention %q, %q, %q mask(softcap<3.0>)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @number_in_mask(%q: tensor<?x?x8x64xf32>, %w: i32) {
  // expected-error @below {{expected a mask, got 4 : i64, which does not implement MaskAttrInterface}}
  %o = attn.attention %q, %q, %q mask(causal or 4)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @mask_parenthesis(%q: tensor<?x?x8x64xf32>, %w: i32) {
  // expected-error @below {{expected ')', 'and' or 'or' after a mask}}
  %o = attn.attention %q, %q, %q mask((causal or sink<4>) scale(1.0)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @mask_depth(%q: tensor<?x?x8x64xf32>, %w: i32) {
  // expected-error @below {{mask expression is nested deeper than 200}}
  %o = attn.attention %q, %q, %q mask(not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not not causal)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @score_attribute_region(%q: tensor<?x?x8x64xf32>, %w: i32) {
  // expected-error @below {{write a score region as score {...}}}
  %o = attn.attention %q, %q, %q score(#attn.custom_score<0>)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @score_word(%q: tensor<?x?x8x64xf32>, %w: i32) {
  // expected-error @below {{expected a number or argN, got 'large'}}
  %o = attn.attention %q, %q, %q scale(large)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @mask_bar(%q: tensor<?x?x8x64xf32>, %w: i32) {
  // expected-error @below {{expected ')', 'and' or 'or' after a mask}}
  %o = attn.attention %q, %q, %q mask(causal || sink<4>)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @scale_expression(%q: tensor<?x?x8x64xf32>, %w: i32) {
  // expected-error @below {{expected ')' after the number; scale takes one number or argN, and nothing is calculated: write 0.125 for 1/8}}
  %o = attn.attention %q, %q, %q scale(1/sqrt(64))
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @bias_number(%q: tensor<?x?x8x64xf32>, %w: i32) {
  // expected-error @below {{expected an operand as argN}}
  %o = attn.attention %q, %q, %q bias(0)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @clause_in_dictionary(%q: tensor<?x?x8x64xf32>, %w: i32) {
  // expected-error @below {{attribute 'scale' is written as a clause, not in the dictionary}}
  %o = attn.attention %q, %q, %q mask(causal) {scale = 1.0 : f64}
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @segments_in_dictionary(%q: tensor<?x?x8x64xf32>, %w: i32) {
  // expected-error @below {{attribute 'operandSegmentSizes' is written as a clause, not in the dictionary}}
  %o = attn.attention %q, %q, %q {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>}
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @args_types(%q: tensor<?x?x8x64xf32>, %w: i32) {
  // expected-error @below {{2 args need as many types, got 1}}
  %o = attn.attention %q, %q, %q args(%w, %w : i32) mask(window<arg0>)
      : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @one_operand(%q: tensor<?x?x8x64xf32>, %w: i32) {
  // expected-error @below {{expected query, key or cache, value and sequences (2 to 4 operands), got 1}}
  %o = attn.attention %q : tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @operand_types(%q: tensor<?x?x8x64xf32>, %w: i32) {
  // expected-error @below {{3 operands need as many types, got 2}}
  %o = attn.attention %q, %q, %q : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @two_values(%q: tensor<?x?x8x64xf32>, %w: i32) {
  // expected-error @below {{expected query, key or cache, and value where there is no cache before the sequences, got 4 operands}}
  %o = attn.attention %q, %q, %q, %q : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

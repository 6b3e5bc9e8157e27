// RUN: llm-opt opt %s -split-input-file -verify-diagnostics

// Attributes and types on their own.

// expected-error @below {{window is 1 to 2147483647, got 0}}
func.func private @window_0() attributes {x = #attn.window<0>}

// -----

// expected-error @below {{window is 1 to 2147483647, got 2147483648}}
func.func private @window_too_large() attributes {x = #attn.window<2147483648>}

// -----

// expected-error @below {{expected an integer or argN, got 1.500000e+00 : f64}}
func.func private @window_float() attributes {x = #attn.window<1.5>}

// -----

// expected-error @below {{expected an integer or argN, got 4 : i32}}
func.func private @window_i32() attributes {x = #attn.window<4 : i32>}

// -----

// expected-error @below {{expected an integer or argN, got 'four'}}
func.func private @window_word() attributes {x = #attn.window<four>}

// -----

// expected-error @below {{expected an integer or argN, got 'argx'}}
func.func private @window_arg_word() attributes {x = #attn.window<argx>}

// -----

// expected-error @below {{expected an integer or argN}}
func.func private @window_nothing() attributes {x = #attn.window<>}

// -----

// expected-error @below {{left of a window is -1 to 2147483647, got -2}}
func.func private @window_left() attributes {x = #attn.window<left = -2, right = 0>}

// -----

// expected-error @below {{right of a window is -1 to 2147483647, got -7}}
func.func private @window_right() attributes {x = #attn.window<left = 0, right = -7>}

// -----

// expected-error @below {{the count of a sink is 0 to 2147483647, got -1}}
func.func private @sink_negative() attributes {x = #attn.sink<-1>}

// -----

// expected-error @below {{the stride of dilated is 1 to 2147483647, got 0}}
func.func private @dilated_0() attributes {x = #attn.dilated<0>}

// -----

// expected-error @below {{the size of chunked is 1 to 2147483647, got 0}}
func.func private @chunked_0() attributes {x = #attn.chunked<0>}

// -----

// expected-error @below {{expected bottom_right or top_left, got 'middle'}}
func.func private @causal_alignment() attributes {x = #attn.causal<middle>}

// -----

// expected-error @below {{expected an operand as argN}}
func.func private @dense_number() attributes {x = #attn.dense<0>}

// -----

// expected-error @below {{expected an operand as argN, got 'mask'}}
func.func private @dense_word() attributes {x = #attn.dense<mask>}

// -----

// expected-error @below {{expected an operand as argN, got 'drafts'}}
func.func private @tree_word() attributes {x = #attn.tree<drafts>}

// -----

// expected-error @below {{'and' has 2 operands or more, got 1}}
func.func private @and_of_one() attributes {x = #attn.and<#attn.causal>}

// -----

// expected-error @below {{operand 1 of 'and' is one itself; list its operands instead}}
func.func private @and_nested() attributes {x = #attn.and<#attn.causal, #attn.and<#attn.causal, #attn.sink<1>>>}

// -----

// expected-error @below {{operand 1 of 'or' does not implement MaskAttrInterface: 3 : i64}}
func.func private @or_of_number() attributes {x = #attn.or<#attn.causal, 3 : i64>}

// -----

// expected-error @below {{the operand of 'not' does not implement MaskAttrInterface: #attn.softcap<3.0>}}
func.func private @not_of_score() attributes {x = #attn.not<#attn.softcap<3.0>>}

// -----

// expected-error @below {{softcap is 0 (off) or more, got -1.500000e+00 : f64}}
func.func private @softcap_negative() attributes {x = #attn.softcap<-1.5>}

// -----

// expected-error @below {{softcap is finite, got 0x7FF0000000000000 : f64}}
func.func private @softcap_infinite() attributes {x = #attn.softcap<0x7FF0000000000000 : f64>}

// -----

// expected-error @below {{expected a number or argN, got 3.000000e+01 : f32}}
func.func private @softcap_f32() attributes {x = #attn.softcap<30.0 : f32>}

// -----

// expected-error @below {{the slope of alibi is finite, got 0x7FF8000000000000 : f64}}
func.func private @alibi_nan() attributes {x = #attn.alibi<0x7FF8000000000000 : f64>}

// -----

// expected-error @below {{split count is 1 to 2147483647, got 0}}
func.func private @split_count_0() attributes {x = #attn.split<count = 0>}

// -----

// expected-error @below {{split length is 1 to 2147483647, got -3}}
func.func private @split_length_negative() attributes {x = #attn.split<length = -3>}

// -----

// expected-error @below {{expected none, count = N or length = N, got 'all'}}
func.func private @split_word() attributes {x = #attn.split<all>}

// -----

// expected-error @below {{schedule rows is 1 to 2147483647, got 0}}
func.func private @schedule_rows_0() attributes {x = #attn.schedule<rows = 0>}

// -----

// expected-error @below {{'schedule keys' is given twice}}
func.func private @schedule_keys_twice() attributes {x = #attn.schedule<keys = 8, keys = 16>}

// -----

// expected-error @below {{'batch_invariant' is given twice}}
func.func private @schedule_flag_twice() attributes {x = #attn.schedule<batch_invariant, batch_invariant>}

// -----

// expected-error @below {{expected rows = N, keys = N or batch_invariant, got 'warps'}}
func.func private @schedule_word() attributes {x = #attn.schedule<warps = 4>}

// -----

// expected-error @below {{a kv_cache has 2 dimensions (KV heads x head dimension), got 1}}
func.func private @cache_dimensions(!attn.kv_cache<8xbf16, page = 16>)

// -----

// expected-error @below {{a kv_cache has 1 KV head or more, got 0}}
func.func private @cache_no_heads(!attn.kv_cache<0x128xbf16, page = 16>)

// -----

// expected-error @below {{the head dimension of a kv_cache is 1 to 576, got 577}}
func.func private @cache_head_dim(!attn.kv_cache<8x577xbf16, page = 16>)

// -----

// expected-error @below {{v_dim of a kv_cache is 1 to 576, got 0}}
func.func private @cache_v_dim(!attn.kv_cache<8x128xbf16, v_dim = 0, page = 16>)

// -----

// expected-error @below {{the elements of a kv_cache are f32, f16 or bf16, got 'f64'}}
func.func private @cache_elements(!attn.kv_cache<8x128xf64, page = 16>)

// -----

// expected-error @below {{page of a kv_cache is 1 to 2147483647, got 0}}
func.func private @cache_page_0(!attn.kv_cache<8x128xbf16, page = 0>)

// -----

// expected-error @below {{a kv_cache needs 'page = N', the slots a page}}
func.func private @cache_no_page(!attn.kv_cache<8x128xbf16>)

// -----

// expected-error @below {{'page' is given twice}}
func.func private @cache_page_twice(!attn.kv_cache<8x128xbf16, page = 16, page = 32>)

// -----

// expected-error @below {{'indptr' is given twice}}
func.func private @cache_flag_twice(!attn.kv_cache<8x128xbf16, page = 16, indptr, indptr>)

// -----

// expected-error @below {{unknown kv_cache option 'nhd'; known are v_dim, page, head_major, interleaved, indptr}}
func.func private @cache_option(!attn.kv_cache<8x128xbf16, page = 16, nhd>)

// -----

// expected-error @below {{an interleaved kv_cache holds K and V of one head dimension, got 192 and v_dim 128}}
func.func private @cache_interleaved(!attn.kv_cache<8x192xbf16, v_dim = 128, page = 16, interleaved>)

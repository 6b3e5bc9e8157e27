// RUN: llm-opt opt %s --pass-pipeline='builtin.module(attn-to-tile)' -split-input-file -verify-diagnostics

func.func @twice(%q: tensor<?x2x8xf32>, %k: tensor<?x2x8xf32>, %v: tensor<?x2x8xf32>, %s: !attn.sequences) -> tensor<?x2x8xf32> {
  %o = attn.attention %q, %k, %v, %s : tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?x2x8xf32>, !attn.sequences -> tensor<?x2x8xf32>
  // expected-error@+1 {{appears twice; a spec function holds one of each attn op}}
  %p = attn.attention %o, %k, %v, %s : tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?x2x8xf32>, !attn.sequences -> tensor<?x2x8xf32>
  return %p : tensor<?x2x8xf32>
}

// -----

func.func @other(%q: tensor<?x2x8xf32>, %k: tensor<?x2x8xf32>, %v: tensor<?x2x8xf32>, %s: !attn.sequences, %x: f32) -> (tensor<?x2x8xf32>, f32) {
  %o = attn.attention %q, %k, %v, %s : tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?x2x8xf32>, !attn.sequences -> tensor<?x2x8xf32>
  // expected-error@+1 {{has no place in a spec; attn ops, constants and return are allowed}}
  %y = arith.addf %x, %x : f32
  return %o, %y : tensor<?x2x8xf32>, f32
}

// -----

func.func @both(%q: tensor<?x2x8xf32>, %k: tensor<?x2x8xf32>, %v: tensor<?x2x8xf32>, %s: !attn.sequences, %p: tensor<?x?x2x8xf32>, %l: tensor<?x?x2xf32>) -> (tensor<?x2x8xf32>, tensor<?x2x8xf32>) {
  %o = attn.attention %q, %k, %v, %s : tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?x2x8xf32>, !attn.sequences -> tensor<?x2x8xf32>
  // expected-error@+1 {{stands beside attn.attention; a merge is a spec of its own}}
  %m = attn.merge %p, %l : tensor<?x?x2x8xf32>, tensor<?x?x2xf32> -> tensor<?x2x8xf32>
  return %o, %m : tensor<?x2x8xf32>, tensor<?x2x8xf32>
}

// -----

func.func @too_many_heads(%q: tensor<?x65537x8xf32>, %k: tensor<?x1x8xf32>, %v: tensor<?x1x8xf32>, %s: !attn.sequences) -> tensor<?x65537x8xf32> {
  // expected-error@+1 {{'attn.attention' op has 65537 query heads; at most 65536 are allowed}}
  %o = attn.attention %q, %k, %v, %s : tensor<?x65537x8xf32>, tensor<?x1x8xf32>, tensor<?x1x8xf32>, !attn.sequences -> tensor<?x65537x8xf32>
  return %o : tensor<?x65537x8xf32>
}

// -----

func.func @append_and_merge(%k: tensor<?x2x8xf32>, %v: tensor<?x2x8xf32>, %slots: tensor<?xi64>, %kv: !attn.kv_cache<2x8xf32, page = 4>, %p: tensor<?x?x2x8xf32>, %l: tensor<?x?x2xf32>) -> tensor<?x2x8xf32> {
  attn.append %k, %v, %slots, %kv : tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?xi64>, !attn.kv_cache<2x8xf32, page = 4>
  // expected-error@+1 {{'attn.merge' op stands beside attn.append; a merge is a spec of its own}}
  %o = attn.merge %p, %l : tensor<?x?x2x8xf32>, tensor<?x?x2xf32> -> tensor<?x2x8xf32>
  return %o : tensor<?x2x8xf32>
}

// -----

func.func @append_after(%q: tensor<?x2x8xf32>, %k: tensor<?x2x8xf32>, %v: tensor<?x2x8xf32>, %slots: tensor<?xi64>, %kv: !attn.kv_cache<2x8xf32, page = 4>, %s: !attn.sequences) -> tensor<?x2x8xf32> {
  %o = attn.attention %q, %kv, %s : tensor<?x2x8xf32>, !attn.kv_cache<2x8xf32, page = 4>, !attn.sequences -> tensor<?x2x8xf32>
  // expected-error@+1 {{'attn.append' op comes after attn.attention; a spec appends before it attends, so move it up, or write it as a spec of its own}}
  attn.append %k, %v, %slots, %kv : tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?xi64>, !attn.kv_cache<2x8xf32, page = 4>
  return %o : tensor<?x2x8xf32>
}

// -----

func.func @other_cache(%q: tensor<?x2x8xf32>, %k: tensor<?x2x8xf32>, %v: tensor<?x2x8xf32>, %slots: tensor<?xi64>, %kv: !attn.kv_cache<2x8xf32, page = 4>, %s: !attn.sequences, %kv2: !attn.kv_cache<2x8xf32, page = 4>) -> tensor<?x2x8xf32> {
  // expected-error@+1 {{'attn.append' op writes a cache that attn.attention does not read; give both the same cache, or write the append as a spec of its own}}
  attn.append %k, %v, %slots, %kv2 : tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?xi64>, !attn.kv_cache<2x8xf32, page = 4>
  %o = attn.attention %q, %kv, %s : tensor<?x2x8xf32>, !attn.kv_cache<2x8xf32, page = 4>, !attn.sequences -> tensor<?x2x8xf32>
  return %o : tensor<?x2x8xf32>
}

// -----

func.func @append_beside_tensors(%q: tensor<?x2x8xf32>, %k: tensor<?x2x8xf32>, %v: tensor<?x2x8xf32>, %slots: tensor<?xi64>, %kv: !attn.kv_cache<2x8xf32, page = 4>, %s: !attn.sequences) -> tensor<?x2x8xf32> {
  // expected-error@+1 {{'attn.append' op writes a cache that attn.attention does not read}}
  attn.append %k, %v, %slots, %kv : tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?xi64>, !attn.kv_cache<2x8xf32, page = 4>
  %o = attn.attention %q, %k, %v, %s : tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?x2x8xf32>, !attn.sequences -> tensor<?x2x8xf32>
  return %o : tensor<?x2x8xf32>
}

// -----

func.func @constant_number(%q: tensor<?x2x8xf32>, %k: tensor<?x2x8xf32>, %v: tensor<?x2x8xf32>, %s: !attn.sequences) -> tensor<?x2x8xf32> {
  %w = arith.constant 3 : i32
  // expected-error@+1 {{'attn.attention' op operand 0 of args is a constant; operands of a spec are arguments of the function, and numbers are written in the clause, as in window<3>}}
  %o = attn.attention %q, %k, %v, %s args(%w : i32) mask(window<arg0>) : tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?x2x8xf32>, !attn.sequences -> tensor<?x2x8xf32>
  return %o : tensor<?x2x8xf32>
}

// -----

func.func @constant_numbers(%q: tensor<?x2x8xf32>, %k: tensor<?x2x8xf32>, %v: tensor<?x2x8xf32>, %s: !attn.sequences) -> tensor<?x2x8xf32> {
  %w = arith.constant dense<[3, 1]> : tensor<2xi32>
  // expected-error@+1 {{'attn.attention' op operand 0 of args is a constant; operands of a spec are arguments of the function}}
  %o = attn.attention %q, %k, %v, %s args(%w : tensor<2xi32>) mask(window<arg0>) : tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?x2x8xf32>, !attn.sequences -> tensor<?x2x8xf32>
  return %o : tensor<?x2x8xf32>
}

// -----

func.func @constant_query(%k: tensor<6x2x8xf32>, %v: tensor<6x2x8xf32>, %s: !attn.sequences) -> tensor<6x2x8xf32> {
  %q = arith.constant dense<0.5> : tensor<6x2x8xf32>
  // expected-error@+1 {{'attn.attention' op operand 'query' is a constant; operands of a spec are arguments of the function}}
  %o = attn.attention %q, %k, %v, %s : tensor<6x2x8xf32>, tensor<6x2x8xf32>, tensor<6x2x8xf32>, !attn.sequences -> tensor<6x2x8xf32>
  return %o : tensor<6x2x8xf32>
}

// -----

func.func @constant_partials(%l: tensor<1x1x2xf32>) -> tensor<1x2x8xf32> {
  %p = arith.constant dense<0.5> : tensor<1x1x2x8xf32>
  // expected-error@+1 {{'attn.merge' op operand 'partials' is a constant}}
  %o = attn.merge %p, %l : tensor<1x1x2x8xf32>, tensor<1x1x2xf32> -> tensor<1x2x8xf32>
  return %o : tensor<1x2x8xf32>
}

// -----

func.func @constant_slots(%k: tensor<?x2x8xf32>, %v: tensor<?x2x8xf32>, %kv: !attn.kv_cache<2x8xf32, page = 4>) {
  %slots = arith.constant dense<[3, 1]> : tensor<2xi64>
  // expected-error@+1 {{'attn.append' op operand 'slots' is a constant}}
  attn.append %k, %v, %slots, %kv : tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<2xi64>, !attn.kv_cache<2x8xf32, page = 4>
  return
}

// -----

func.func @keys_as_values(%q: tensor<?x2x8xf32>, %k: tensor<?x2x8xf32>, %v: tensor<?x2x8xf32>, %s: !attn.sequences) -> tensor<?x2x8xf32> {
  // expected-error@+1 {{'attn.attention' op operand 'value' is the same argument as operand 'key'; give each an argument of its own, or name one twice in the clauses}}
  %o = attn.attention %q, %k, %k, %s : tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?x2x8xf32>, !attn.sequences -> tensor<?x2x8xf32>
  return %o : tensor<?x2x8xf32>
}

// -----

func.func @number_twice(%q: tensor<?x2x8xf32>, %k: tensor<?x2x8xf32>, %v: tensor<?x2x8xf32>, %s: !attn.sequences, %w: i32) -> tensor<?x2x8xf32> {
  // expected-error@+1 {{'attn.attention' op operand 1 of args is the same argument as operand 0 of args; give each an argument of its own, or name one twice in the clauses}}
  %o = attn.attention %q, %k, %v, %s args(%w, %w : i32, i32) mask(window<left = arg0, right = arg1>) : tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?x2x8xf32>, !attn.sequences -> tensor<?x2x8xf32>
  return %o : tensor<?x2x8xf32>
}

// -----

func.func @appended_query(%q: tensor<?x2x8xf32>, %v: tensor<?x2x8xf32>, %slots: tensor<?xi64>, %kv: !attn.kv_cache<2x8xf32, page = 4>, %s: !attn.sequences) -> tensor<?x2x8xf32> {
  attn.append %q, %v, %slots, %kv : tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?xi64>, !attn.kv_cache<2x8xf32, page = 4>
  // expected-error@+1 {{'attn.attention' op operand 'query' is the same argument as operand 'keys'}}
  %o = attn.attention %q, %kv, %s : tensor<?x2x8xf32>, !attn.kv_cache<2x8xf32, page = 4>, !attn.sequences -> tensor<?x2x8xf32>
  return %o : tensor<?x2x8xf32>
}

// -----

func.func @returns_query(%q: tensor<?x2x8xf32>, %k: tensor<?x2x8xf32>, %v: tensor<?x2x8xf32>, %s: !attn.sequences) -> tensor<?x2x8xf32> {
  %o = attn.attention %q, %k, %v, %s : tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?x2x8xf32>, !attn.sequences -> tensor<?x2x8xf32>
  // expected-error@+1 {{gives back a value, number 0, that is no result of the spec's attn op; only its output and log-sum-exp are computed}}
  return %q : tensor<?x2x8xf32>
}

// -----

func.func @returns_number(%k: tensor<?x2x8xf32>, %v: tensor<?x2x8xf32>, %slots: tensor<?xi64>, %kv: !attn.kv_cache<2x8xf32, page = 4>) -> tensor<?x2x8xf32> {
  attn.append %k, %v, %slots, %kv : tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?xi64>, !attn.kv_cache<2x8xf32, page = 4>
  // expected-error@+1 {{gives back a value, number 0, that is no result of the spec's attn op}}
  return %k : tensor<?x2x8xf32>
}

// -----

// expected-error@+1 {{'func.func' op has 2 blocks; a spec function has one}}
func.func @two_blocks(%q: tensor<?x2x8xf32>, %k: tensor<?x2x8xf32>, %v: tensor<?x2x8xf32>, %s: !attn.sequences) -> tensor<?x2x8xf32> {
  %o = attn.attention %q, %k, %v, %s : tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?x2x8xf32>, !attn.sequences -> tensor<?x2x8xf32>
  cf.br ^bb1
  ^bb1:
  return %o : tensor<?x2x8xf32>
}

// -----

// Arguments and constants that nothing reads; results that are not given back; a number for
// two clauses and a region.
func.func @allowed(%q: tensor<?x2x8xf32>, %k: tensor<?x2x8xf32>, %v: tensor<?x2x8xf32>, %s: !attn.sequences, %w: i32, %unused: index) {
  %c = arith.constant dense<1.0> : tensor<1x1x4xf32>
  %o = attn.attention %q, %k, %v, %s args(%w : i32) mask(window<left = arg0, right = arg0> and custom) where {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %n = arith.index_cast %w : i32 to index
    %x = arith.cmpi ne, %j, %n : index
    attn.yield %x : i1
  } : tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?x2x8xf32>, !attn.sequences -> tensor<?x2x8xf32>
  return
}

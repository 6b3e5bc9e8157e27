// RUN: llm-opt opt %s | llm-opt opt | FileCheck %s
// RUN: llm-opt opt %s --mlir-print-op-generic | llm-opt opt | FileCheck %s
// RUN: llm-opt opt %s --emit-bytecode | llm-opt opt | FileCheck %s

// CHECK-LABEL: func @decode
// CHECK: attn.attention %{{.*}}, %{{.*}}, %{{.*}} mask(causal and window<4096>) scale(0.08838835) : tensor<?x32x128xbf16>, !attn.kv_cache<8x128xbf16, page = 16>, !attn.sequences -> tensor<?x32x128xbf16>
func.func @decode(%q: tensor<?x32x128xbf16>, %kv: !attn.kv_cache<8x128xbf16, page = 16>, %seq: !attn.sequences)
    -> tensor<?x32x128xbf16> {
  %o = attn.attention %q, %kv, %seq mask(causal and window<4096>) scale(0.08838835)
       : tensor<?x32x128xbf16>, !attn.kv_cache<8x128xbf16, page = 16>, !attn.sequences -> tensor<?x32x128xbf16>
  return %o : tensor<?x32x128xbf16>
}

// CHECK-LABEL: func @encoder
// CHECK: %{{.*}}, %{{.*}} = attn.attention %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : tensor<?x?x16x64xf32>
// CHECK-SAME: -> tensor<?x?x16x64xf32>, tensor<?x?x16xf32>
func.func @encoder(%q: tensor<?x?x16x64xf32>, %seq: !attn.sequences) -> (tensor<?x?x16x64xf32>, tensor<?x?x16xf32>) {
  %o, %lse = attn.attention %q, %q, %q, %seq
      : tensor<?x?x16x64xf32>, tensor<?x?x16x64xf32>, tensor<?x?x16x64xf32>, !attn.sequences
      -> tensor<?x?x16x64xf32>, tensor<?x?x16xf32>
  return %o, %lse : tensor<?x?x16x64xf32>, tensor<?x?x16xf32>
}

// CHECK-LABEL: func @score_region
// CHECK: args(%{{.*}}, %{{.*}} : tensor<1x8x?x?xf32>, tensor<8xi32>)
// CHECK-SAME: mask(causal and (sink<4> or window<arg1>)) scale(0.125) softcap(30.0) score {
// CHECK-NEXT: ^bb0(%[[S:.*]]: f32, %{{.*}}: index, %{{.*}}: index, %{{.*}}: index, %{{.*}}: index):
// CHECK-NEXT:   arith.addf %[[S]], %[[S]] : f32
// CHECK-NEXT:   attn.yield %{{.*}} : f32
// CHECK-NEXT: } bias(arg0) : tensor<?x8x64xf16>
func.func @score_region(%q: tensor<?x8x64xf16>, %k: tensor<?x2x64xf16>, %v: tensor<?x2x32xf16>, %seq: !attn.sequences,
                        %bias: tensor<1x8x?x?xf32>, %w: tensor<8xi32>) -> tensor<?x8x32xf16> {
  %o = attn.attention %q, %k, %v, %seq args(%bias, %w : tensor<1x8x?x?xf32>, tensor<8xi32>)
       mask(causal and (sink<4> or window<arg1>)) scale(0.125) softcap(30)
       score {
       ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
         %s2 = arith.addf %s, %s : f32
         attn.yield %s2 : f32
       } bias(arg0)
       : tensor<?x8x64xf16>, tensor<?x2x64xf16>, tensor<?x2x32xf16>, !attn.sequences -> tensor<?x8x32xf16>
  return %o : tensor<?x8x32xf16>
}

// Clauses in any order come out in the canonical one; score modifications keep theirs.
// CHECK-LABEL: func @clause_order
// CHECK: args(%{{.*}}, %{{.*}} : tensor<8xf32>, f32) mask(causal) scale(arg1) alibi(arg0) softcap(1.5) alibi(0.25)
// CHECK-SAME: sink(arg0) split(length = 1024) schedule(rows = 64, keys = 128, batch_invariant) {note = "x"} :
func.func @clause_order(%q: tensor<?x?x8x64xf32>, %h: tensor<8xf32>, %x: f32) {
  %o = attn.attention %q, %q, %q schedule(batch_invariant, keys = 128, rows = 64) alibi(arg0) split(length = 1024)
       sink(arg0) softcap(1.5) mask(causal) alibi(0.25) scale(arg1) args(%h, %x : tensor<8xf32>, f32) {note = "x"}
       : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// Two mask regions and two score regions, the text's order notwithstanding.
// CHECK-LABEL: func @regions
// CHECK: mask(custom and not custom<1>) where {
// CHECK:   %[[T:.*]] = arith.constant true
// CHECK:   attn.yield %[[T]] : i1
// CHECK: } where {
// CHECK:   %[[F:.*]] = arith.constant false
// CHECK:   attn.yield %[[F]] : i1
// CHECK: } score {
// CHECK:   arith.constant 1.000000e+00 : f32
// CHECK: } softcap(2.0) score {
// CHECK:   arith.constant 2.000000e+00 : f32
// CHECK: } :
func.func @regions(%q: tensor<?x?x8x64xf32>) {
  %o = attn.attention %q, %q, %q
       score {
       ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
         %c = arith.constant 1.0 : f32
         attn.yield %c : f32
       } softcap(2) score {
       ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
         %c = arith.constant 2.0 : f32
         attn.yield %c : f32
       } where {
       ^bb0(%b: index, %h: index, %i: index, %j: index):
         %t = arith.constant true
         attn.yield %t : i1
       } where {
       ^bb0(%b: index, %h: index, %i: index, %j: index):
         %f = arith.constant false
         attn.yield %f : i1
       } mask(custom<0> and not custom<1>)
       : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// A region may use scalars from outside.
// CHECK-LABEL: func @captured
// CHECK-SAME: %[[N:[^ ,]*]]: index)
// CHECK: arith.cmpi slt, %{{.*}}, %[[N]] : index
func.func @captured(%q: tensor<?x?x8x64xf32>, %n: index) {
  %o = attn.attention %q, %q, %q mask(custom) where {
       ^bb0(%b: index, %h: index, %i: index, %j: index):
         %v = arith.cmpi slt, %j, %n : index
         attn.yield %v : i1
       } : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// CHECK-LABEL: func @precedence
// CHECK: mask(causal or sink<4> and window<8>) :
// CHECK: mask((causal or sink<4>) and window<8>) :
// CHECK: mask(causal and sink<4> and window<8>) :
// CHECK: mask(not causal and not (sink<4> or window<8>) or not not causal) :
// CHECK: mask(causal and chunked<256>) :
func.func @precedence(%q: tensor<?x?x8x64xf32>) {
  %0 = attn.attention %q, %q, %q mask(causal or (sink<4> and window<8>))
       : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  %1 = attn.attention %q, %q, %q mask((causal or sink<4>) and window<8>)
       : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  %2 = attn.attention %q, %q, %q mask(causal and (sink<4> and (window<8>)))
       : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  %3 = attn.attention %q, %q, %q mask(not causal and not (sink<4> or window<8>) or not not causal)
       : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  %4 = attn.attention %q, %q, %q mask(#attn.causal and #attn.chunked<256>)
       : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// CHECK-LABEL: func @masks_of_data
// CHECK: args(%{{.*}}, %{{.*}} : tensor<?x1x?x?xi8>, i64) mask(dense<arg0> or window<left = arg1, right = -1> and dilated<arg1>) :
func.func @masks_of_data(%q: tensor<?x?x8x64xf32>, %m: tensor<?x1x?x?xi8>, %n: i64) {
  %0 = attn.attention %q, %q, %q args(%m, %n : tensor<?x1x?x?xi8>, i64)
       mask(dense<arg0> or window<left = arg1, right = -1> and dilated<arg1>)
       : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// CHECK-LABEL: func @trees
// CHECK: args(%{{.*}} : tensor<?xi64>) mask(tree<arg0> and (sink<4> or window<64>)) :
// CHECK: args(%{{.*}} : tensor<2x5xi64>) mask(tree<arg0>) :
func.func @trees(%q: tensor<?x8x64xf32>, %s: !attn.sequences, %t: tensor<?xi64>,
                 %d: tensor<2x5x8x64xf32>, %dt: tensor<2x5xi64>) {
  %0 = attn.attention %q, %q, %q, %s args(%t : tensor<?xi64>)
       mask(tree<arg0> and (sink<4> or window<64>))
       : tensor<?x8x64xf32>, tensor<?x8x64xf32>, tensor<?x8x64xf32>, !attn.sequences -> tensor<?x8x64xf32>
  %1 = attn.attention %d, %d, %d args(%dt : tensor<2x5xi64>) mask(tree<arg0>)
       : tensor<2x5x8x64xf32>, tensor<2x5x8x64xf32>, tensor<2x5x8x64xf32> -> tensor<2x5x8x64xf32>
  return
}

// CHECK-LABEL: func private @caches
// CHECK-SAME: !attn.kv_cache<8x128xbf16, page = 16>,
// CHECK-SAME: !attn.kv_cache<8x192xf16, v_dim = 128, page = 64, head_major, indptr>,
// CHECK-SAME: !attn.kv_cache<1x64xf32, page = 1, interleaved>
func.func private @caches(!attn.kv_cache<8x128xbf16, page = 16, v_dim = 128>,
                          !attn.kv_cache<8x192xf16, indptr, head_major, page = 64, v_dim = 128>,
                          !attn.kv_cache<1x64xf32, page = 1, interleaved>)

// CHECK-LABEL: func private @attributes
// CHECK-SAME: a = #attn.arg<3>
// CHECK-SAME: b = #attn.causal, c = #attn.causal<top_left>
// CHECK-SAME: d = #attn.window<4096>, e = #attn.window<left = 128, right = 0>, f = #attn.window<arg1>
// CHECK-SAME: g = #attn.sink<0>, h = #attn.dilated<4>, i = #attn.chunked<256>, j = #attn.dense<arg0>
// CHECK-SAME: k = #attn.custom, l = #attn.custom<1>
// CHECK-SAME: m = #attn.and<#attn.causal, #attn.or<#attn.sink<4>, #attn.not<#attn.window<8>>>>
// CHECK-SAME: n = #attn.softcap<30.0>, o = #attn.bias<arg0>, p = #attn.alibi<arg2>, q = #attn.alibi<1.0e-30>
// CHECK-SAME: r = #attn.custom_score<2>
// CHECK-SAME: s = #attn.split<none>, t = #attn.split<count = 4>, u = #attn.split<length = 512>
// CHECK-SAME: v = #attn.schedule<keys = 128>, w = #attn.schedule<rows = 64, keys = 32, batch_invariant>
func.func private @attributes() attributes {
  a = #attn.arg<3>,
  b = #attn.causal<bottom_right>, c = #attn.causal<top_left>,
  d = #attn.window<4096>, e = #attn.window<left = 128, right = 0>, f = #attn.window<arg1>,
  g = #attn.sink<0>, h = #attn.dilated<4>, i = #attn.chunked<256>, j = #attn.dense<arg0>,
  k = #attn.custom<0>, l = #attn.custom<1>,
  m = #attn.and<#attn.causal, #attn.or<#attn.sink<4>, #attn.not<#attn.window<8>>>>,
  n = #attn.softcap<30>, o = #attn.bias<arg0>, p = #attn.alibi<arg2>, q = #attn.alibi<1.0e-30>,
  r = #attn.custom_score<2>,
  s = #attn.split<count = 1>, t = #attn.split<count = 4>, u = #attn.split<length = 512>,
  v = #attn.schedule<keys = 128>, w = #attn.schedule<batch_invariant, keys = 32, rows = 64>
}

// CHECK-LABEL: func @merge_append
// CHECK: attn.merge %{{.*}}, %{{.*}} : tensor<?x?x32x128xf32>, tensor<?x?x32xf32> -> tensor<?x32x128xbf16>, tensor<?x32xf32>
// CHECK: attn.merge %{{.*}}, %{{.*}} : tensor<?x?x32x128xf32>, tensor<?x?x32xf32> -> tensor<?x32x128xf32>
// CHECK: attn.append %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : tensor<?x8x128xbf16>, tensor<?x8x128xbf16>, tensor<?xi64>, !attn.kv_cache<8x128xbf16, page = 16>
func.func @merge_append(%po: tensor<?x?x32x128xf32>, %pl: tensor<?x?x32xf32>, %k: tensor<?x8x128xbf16>,
                        %slots: tensor<?xi64>, %kv: !attn.kv_cache<8x128xbf16, page = 16>) {
  %o, %l = attn.merge %po, %pl
      : tensor<?x?x32x128xf32>, tensor<?x?x32xf32> -> tensor<?x32x128xbf16>, tensor<?x32xf32>
  %p = attn.merge %po, %pl : tensor<?x?x32x128xf32>, tensor<?x?x32xf32> -> tensor<?x32x128xf32>
  attn.append %k, %k, %slots, %kv
      : tensor<?x8x128xbf16>, tensor<?x8x128xbf16>, tensor<?xi64>, !attn.kv_cache<8x128xbf16, page = 16>
  return
}

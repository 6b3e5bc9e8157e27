// RUN: llm-opt opt %s | llm-opt opt | FileCheck %s
// RUN: llm-opt opt %s --mlir-print-op-generic | llm-opt opt | FileCheck %s

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

// ALiBi slopes for 12 heads, then an additive bias that all sequences share.
func.func @alibi(%q: tensor<?x?x12x48xf32>, %k: tensor<?x?x12x48xf32>, %v: tensor<?x?x12x48xf32>,
                 %slopes: tensor<12xf32>, %bias: tensor<1x12x?x?xf32>) -> tensor<?x?x12x48xf32> {
  %o = attn.attention %q, %k, %v args(%slopes, %bias : tensor<12xf32>, tensor<1x12x?x?xf32>)
       mask(causal) alibi(arg0) bias(arg1)
       : tensor<?x?x12x48xf32>, tensor<?x?x12x48xf32>, tensor<?x?x12x48xf32>
         -> tensor<?x?x12x48xf32>
  return %o : tensor<?x?x12x48xf32>
}

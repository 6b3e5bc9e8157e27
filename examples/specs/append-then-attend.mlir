// A decode step: the new K and V rows go into the cache, then the queries read it.
func.func @step(%q: tensor<?x9x64xf32>, %k: tensor<?x3x64xf32>, %v: tensor<?x3x64xf32>,
                %slots: tensor<?xi64>, %kv: !attn.kv_cache<3x64xf32, page = 5>,
                %seq: !attn.sequences) -> tensor<?x9x64xf32> {
  attn.append %k, %v, %slots, %kv : tensor<?x3x64xf32>, tensor<?x3x64xf32>, tensor<?xi64>,
              !attn.kv_cache<3x64xf32, page = 5>
  %o = attn.attention %q, %kv, %seq mask(causal)
       : tensor<?x9x64xf32>, !attn.kv_cache<3x64xf32, page = 5>, !attn.sequences
         -> tensor<?x9x64xf32>
  return %o : tensor<?x9x64xf32>
}

// Odd everything: 71 heads on one KV head (Falcon-7B), d 37, split in three, pages of 7.
func.func @odd(%q: tensor<?x71x37xf32>, %kv: !attn.kv_cache<1x37xf32, v_dim = 5, page = 7>,
               %seq: !attn.sequences) -> (tensor<?x71x5xf32>, tensor<?x71xf32>) {
  %o, %lse = attn.attention %q, %kv, %seq mask(causal) split(count = 3)
       : tensor<?x71x37xf32>, !attn.kv_cache<1x37xf32, v_dim = 5, page = 7>, !attn.sequences
         -> tensor<?x71x5xf32>, tensor<?x71xf32>
  return %o, %lse : tensor<?x71x5xf32>, tensor<?x71xf32>
}

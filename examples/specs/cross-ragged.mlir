// Cross-attention over ragged queries and keys, d_qk 72 and d_v 40, multi-query.
func.func @cross(%q: tensor<?x7x72xf32>, %k: tensor<?x1x72xf32>, %v: tensor<?x1x40xf32>,
                 %seq: !attn.sequences) -> (tensor<?x7x40xf32>, tensor<?x7xf32>) {
  %o, %lse = attn.attention %q, %k, %v, %seq
       : tensor<?x7x72xf32>, tensor<?x1x72xf32>, tensor<?x1x40xf32>, !attn.sequences
         -> tensor<?x7x40xf32>, tensor<?x7xf32>
  return %o, %lse : tensor<?x7x40xf32>, tensor<?x7xf32>
}

// Mistral-7B: a sliding window of 4096 keys; the log-sum-exp is wanted too.
func.func @decode(%q: tensor<?x32x128xbf16>, %kv: !attn.kv_cache<8x128xbf16, page = 16>,
                  %seq: !attn.sequences) -> (tensor<?x32x128xbf16>, tensor<?x32xf32>) {
  %o, %lse = attn.attention %q, %kv, %seq mask(causal and window<4096>)
       : tensor<?x32x128xbf16>, !attn.kv_cache<8x128xbf16, page = 16>, !attn.sequences
         -> tensor<?x32x128xbf16>, tensor<?x32xf32>
  return %o, %lse : tensor<?x32x128xbf16>, tensor<?x32xf32>
}

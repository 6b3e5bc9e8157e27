// Llama-3.1-8B: GQA 32/8, causal, paged bf16 cache with a block table.
func.func @decode(%q: tensor<?x32x128xbf16>, %kv: !attn.kv_cache<8x128xbf16, page = 16>,
                  %seq: !attn.sequences) -> tensor<?x32x128xbf16> {
  %o = attn.attention %q, %kv, %seq mask(causal) scale(0.088388347648318447)
       : tensor<?x32x128xbf16>, !attn.kv_cache<8x128xbf16, page = 16>, !attn.sequences
         -> tensor<?x32x128xbf16>
  return %o : tensor<?x32x128xbf16>
}

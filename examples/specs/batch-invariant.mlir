// The bits of a row depend on that row alone: splits at fixed keys, one way of summing.
func.func @invariant(%q: tensor<?x8x64xbf16>, %kv: !attn.kv_cache<2x64xbf16, page = 16>,
                     %seq: !attn.sequences) -> tensor<?x8x64xbf16> {
  %o = attn.attention %q, %kv, %seq mask(causal) scale(0.125) split(length = 256)
       schedule(batch_invariant)
       : tensor<?x8x64xbf16>, !attn.kv_cache<2x64xbf16, page = 16>, !attn.sequences
         -> tensor<?x8x64xbf16>
  return %o : tensor<?x8x64xbf16>
}

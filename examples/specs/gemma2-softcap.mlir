// Gemma-2-9B, a local layer: soft cap before the mask, head-major pages of 32 slots.
func.func @extend(%q: tensor<?x16x256xbf16>,
                  %kv: !attn.kv_cache<8x256xbf16, page = 32, head_major>,
                  %seq: !attn.sequences) -> tensor<?x16x256xbf16> {
  %o = attn.attention %q, %kv, %seq mask(causal and window<4096>) scale(0.0625) softcap(50.0)
       : tensor<?x16x256xbf16>, !attn.kv_cache<8x256xbf16, page = 32, head_major>, !attn.sequences
         -> tensor<?x16x256xbf16>
  return %o : tensor<?x16x256xbf16>
}

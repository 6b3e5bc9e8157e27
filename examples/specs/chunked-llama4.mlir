// Llama 4, a layer with rotary embedding: causal inside chunks (of 128 keys here).
func.func @chunked(%q: tensor<?x10x64xbf16>,
                   %kv: !attn.kv_cache<2x64xbf16, page = 16, interleaved>,
                   %seq: !attn.sequences) -> tensor<?x10x64xbf16> {
  %o = attn.attention %q, %kv, %seq mask(causal and chunked<128>)
       : tensor<?x10x64xbf16>, !attn.kv_cache<2x64xbf16, page = 16, interleaved>, !attn.sequences
         -> tensor<?x10x64xbf16>
  return %o : tensor<?x10x64xbf16>
}

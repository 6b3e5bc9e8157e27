// Speculative verify: a tree of drafts behind each sequence, over a window of 4096.
func.func @verify(%q: tensor<?x32x128xbf16>, %kv: !attn.kv_cache<8x128xbf16, page = 16>,
                  %seq: !attn.sequences, %sets: tensor<?xi64>) -> tensor<?x32x128xbf16> {
  %o = attn.attention %q, %kv, %seq args(%sets : tensor<?xi64>) mask(tree<arg0> and window<4096>)
       : tensor<?x32x128xbf16>, !attn.kv_cache<8x128xbf16, page = 16>, !attn.sequences
         -> tensor<?x32x128xbf16>
  return %o : tensor<?x32x128xbf16>
}

// StreamingLLM: the first 4 keys and the last 64; f16, FlashInfer's indptr page table.
func.func @stream(%q: tensor<?x8x64xf16>, %kv: !attn.kv_cache<2x64xf16, page = 3, indptr>,
                  %seq: !attn.sequences) -> tensor<?x8x64xf16> {
  %o = attn.attention %q, %kv, %seq mask(causal and (sink<4> or window<64>))
       : tensor<?x8x64xf16>, !attn.kv_cache<2x64xf16, page = 3, indptr>, !attn.sequences
         -> tensor<?x8x64xf16>
  return %o : tensor<?x8x64xf16>
}

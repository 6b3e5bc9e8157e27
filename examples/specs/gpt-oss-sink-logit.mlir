// gpt-oss: a learned logit for each head joins the softmax denominator; window of 128.
func.func @gptoss(%q: tensor<?x16x64xbf16>, %kv: !attn.kv_cache<2x64xbf16, page = 16>,
                  %seq: !attn.sequences, %logit: tensor<16xf32>) -> tensor<?x16x64xbf16> {
  %o = attn.attention %q, %kv, %seq args(%logit : tensor<16xf32>)
       mask(causal and window<128>) scale(0.125) sink(arg0)
       : tensor<?x16x64xbf16>, !attn.kv_cache<2x64xbf16, page = 16>, !attn.sequences
         -> tensor<?x16x64xbf16>
  return %o : tensor<?x16x64xbf16>
}

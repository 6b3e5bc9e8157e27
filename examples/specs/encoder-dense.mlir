// An encoder: dense f32, every key visible but the padding of each sequence.
func.func @encode(%q: tensor<?x?x4x64xf32>, %k: tensor<?x?x4x64xf32>, %v: tensor<?x?x4x64xf32>,
                  %seq: !attn.sequences) -> tensor<?x?x4x64xf32> {
  %o = attn.attention %q, %k, %v, %seq
       : tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>, tensor<?x?x4x64xf32>, !attn.sequences
         -> tensor<?x?x4x64xf32>
  return %o : tensor<?x?x4x64xf32>
}

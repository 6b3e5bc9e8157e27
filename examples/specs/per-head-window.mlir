// A window and a scale for each head; two-sided window for the rest of the mask.
func.func @perhead(%q: tensor<?x6x16xf32>, %k: tensor<?x3x16xf32>, %v: tensor<?x3x16xf32>,
                   %seq: !attn.sequences, %w: tensor<6xi32>, %s: tensor<6xf32>) -> tensor<?x6x16xf32> {
  %o = attn.attention %q, %k, %v, %seq args(%w, %s : tensor<6xi32>, tensor<6xf32>)
       mask(window<arg0> or window<left = 8, right = 2>) scale(arg1)
       : tensor<?x6x16xf32>, tensor<?x3x16xf32>, tensor<?x3x16xf32>, !attn.sequences
         -> tensor<?x6x16xf32>
  return %o : tensor<?x6x16xf32>
}

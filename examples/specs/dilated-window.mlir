// Every 4th key of the last 128, counted from the query.
func.func @dilated(%q: tensor<?x6x32xf32>, %k: tensor<?x2x32xf32>, %v: tensor<?x2x32xf32>,
                   %seq: !attn.sequences) -> tensor<?x6x32xf32> {
  %o = attn.attention %q, %k, %v, %seq mask(window<128> and dilated<4>)
       : tensor<?x6x32xf32>, tensor<?x2x32xf32>, tensor<?x2x32xf32>, !attn.sequences
         -> tensor<?x6x32xf32>
  return %o : tensor<?x6x32xf32>
}

// A boolean mask tensor as ONNX has it, with the causal diagonal from the top left.
func.func @masked(%q: tensor<?x?x4x24xf16>, %k: tensor<?x?x2x24xf16>, %v: tensor<?x?x2x24xf16>,
                  %mask: tensor<?x1x?x?xi1>) -> tensor<?x?x4x24xf16> {
  %o = attn.attention %q, %k, %v args(%mask : tensor<?x1x?x?xi1>)
       mask(dense<arg0> and causal<top_left>) scale(0.25)
       : tensor<?x?x4x24xf16>, tensor<?x?x2x24xf16>, tensor<?x?x2x24xf16>
         -> tensor<?x?x4x24xf16>
  return %o : tensor<?x?x4x24xf16>
}

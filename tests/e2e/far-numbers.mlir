// Masks of numbers with a value a head, as i64: `verify --cases hard` gives them values beyond 32
// bits. See tests/e2e/CMakeLists.txt.

func.func @window(%q: tensor<?x?x8x64xbf16>, %k: tensor<?x?x2x64xbf16>, %v: tensor<?x?x2x64xbf16>, %a0: tensor<8xi64>)
    -> tensor<?x?x8x64xbf16> {
  %o = attn.attention %q, %k, %v args(%a0 : tensor<8xi64>)
         mask(causal and window<arg0>)
       : tensor<?x?x8x64xbf16>, tensor<?x?x2x64xbf16>, tensor<?x?x2x64xbf16> -> tensor<?x?x8x64xbf16>
  return %o : tensor<?x?x8x64xbf16>
}

func.func @sides(%q: tensor<?x?x8x64xbf16>, %k: tensor<?x?x2x64xbf16>, %v: tensor<?x?x2x64xbf16>, %a0: tensor<8xi64>, %a1: tensor<8xi64>)
    -> tensor<?x?x8x64xbf16> {
  %o = attn.attention %q, %k, %v args(%a0, %a1 : tensor<8xi64>, tensor<8xi64>)
         mask(window<left = arg0, right = arg1>)
       : tensor<?x?x8x64xbf16>, tensor<?x?x2x64xbf16>, tensor<?x?x2x64xbf16> -> tensor<?x?x8x64xbf16>
  return %o : tensor<?x?x8x64xbf16>
}

func.func @sink(%q: tensor<?x?x8x16xf32>, %k: tensor<?x?x2x16xf32>, %v: tensor<?x?x2x16xf32>, %a0: tensor<8xi64>)
    -> tensor<?x?x8x16xf32> {
  %o = attn.attention %q, %k, %v args(%a0 : tensor<8xi64>)
         mask((causal and window<4>) or sink<arg0>)
       : tensor<?x?x8x16xf32>, tensor<?x?x2x16xf32>, tensor<?x?x2x16xf32> -> tensor<?x?x8x16xf32>
  return %o : tensor<?x?x8x16xf32>
}

func.func @dilated(%q: tensor<?x?x8x16xf32>, %k: tensor<?x?x2x16xf32>, %v: tensor<?x?x2x16xf32>, %a0: tensor<8xi64>)
    -> tensor<?x?x8x16xf32> {
  %o = attn.attention %q, %k, %v args(%a0 : tensor<8xi64>)
         mask(causal and dilated<arg0>)
       : tensor<?x?x8x16xf32>, tensor<?x?x2x16xf32>, tensor<?x?x2x16xf32> -> tensor<?x?x8x16xf32>
  return %o : tensor<?x?x8x16xf32>
}

func.func @chunked(%q: tensor<?x?x8x16xf32>, %k: tensor<?x?x2x16xf32>, %v: tensor<?x?x2x16xf32>, %a0: tensor<8xi64>)
    -> tensor<?x?x8x16xf32> {
  %o = attn.attention %q, %k, %v args(%a0 : tensor<8xi64>)
         mask(causal and chunked<arg0>)
       : tensor<?x?x8x16xf32>, tensor<?x?x2x16xf32>, tensor<?x?x2x16xf32> -> tensor<?x?x8x16xf32>
  return %o : tensor<?x?x8x16xf32>
}

func.func @negated(%q: tensor<?x?x8x16xf32>, %k: tensor<?x?x2x16xf32>, %v: tensor<?x?x2x16xf32>, %a0: tensor<8xi64>)
    -> tensor<?x?x8x16xf32> {
  %o = attn.attention %q, %k, %v args(%a0 : tensor<8xi64>)
         mask(causal and not window<arg0>)
       : tensor<?x?x8x16xf32>, tensor<?x?x2x16xf32>, tensor<?x?x2x16xf32> -> tensor<?x?x8x16xf32>
  return %o : tensor<?x?x8x16xf32>
}

// Partial results over disjoint keys into one.
func.func @combine(%po: tensor<?x?x4x32xf32>, %plse: tensor<?x?x4xf32>)
    -> (tensor<?x4x32xbf16>, tensor<?x4xf32>) {
  %o, %lse = attn.merge %po, %plse : tensor<?x?x4x32xf32>, tensor<?x?x4xf32>
             -> tensor<?x4x32xbf16>, tensor<?x4xf32>
  return %o, %lse : tensor<?x4x32xbf16>, tensor<?x4xf32>
}

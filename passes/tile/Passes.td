#ifndef LLMOPT_PASSES_TILE_PASSES
#define LLMOPT_PASSES_TILE_PASSES

include "mlir/Pass/PassBase.td"

def TileFuseMaps : Pass<"tile-fuse-maps", "::mlir::func::FuncOp"> {
  let summary = "merge elementwise maps and row reductions, so that tiles are passed over rarely";
  let description = [{
    - `tile.reduce` becomes a combined result of the map that makes its operand (or of a
      new map, when a product or a load makes it).
    - A map whose result feeds another map over the same space is merged into it, if that
      is its only user, or copied into it, if it is a few cheap operations.
    - An operand that is a splat constant becomes a scalar inside the region.
    - Results that nobody uses, and operands that the region does not, are dropped.

    Softmax becomes two passes over the scores:
    ```mlir
    %s1 = tile.map(%s : tensor<64x64xf32>) { scale } -> tensor<64x64xf32>
    %mx = tile.reduce max %s1 : tensor<64x64xf32> -> tensor<64x1xf32>
    %p = tile.map(%s1, %mx : ...) { exp2 of the difference } -> tensor<64x64xf32>
    %l = tile.reduce sum %p : tensor<64x64xf32> -> tensor<64x1xf32>
    // becomes
    %mx = tile.map(%s : tensor<64x64xf32>) { scale } combine [max] -> tensor<64x1xf32>
    %p, %l = tile.map(%s, %mx : ...) { scale, exp2 of the difference } combine [none, sum]
    ```
  }];
  let dependentDialects = ["::llmopt::tile::TileDialect", "::mlir::arith::ArithDialect"];
}

#endif

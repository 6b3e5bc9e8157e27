#ifndef LLMOPT_PASSES
#define LLMOPT_PASSES

include "mlir/Pass/PassBase.td"

def AttnToTile : Pass<"attn-to-tile", "::mlir::ModuleOp"> {
  let summary = "lower specs of the attn dialect to kernels of the tile dialect";
  let description = [{
    Replaces every function that holds attn ops by tile kernels (`tile.kernel`): one
    `@<name>_attend_<rows>` for each row tile of the schedule and `@<name>_merge` for an
    `attn.attention`; `@<name>_append` for an `attn.append`; `@<name>_combine` for an
    `attn.merge`. Their arguments are the slots of the program's parameter block.

    The attend kernel runs the online softmax (Milakov and Gimelshein, arXiv:1805.02867;
    tiles as in FlashAttention, arXiv:2205.14135) over the work items of one worker. The
    mask's key intervals become the loop:

    ```
    t = first tile that MAY hold a visible key
    while t is in range:
      e = end of the run of tiles, from t on, that SURELY are visible throughout
      for u in [t, e):        the body without any predicate
      for u in [t, t + (e == t)):  the body with the mask predicate
      t = next tile from max(e, t + 1) that MAY hold a visible key
    ```

    so tiles outside the mask are not visited and full tiles evaluate no mask, whatever
    the mask. With `one-loop`, a turn is a run of tiles that MAY be visible, with one body:

    ```
      e = end of the run of tiles, from t on, that MAY hold a visible key
      for u in [t, e):        the body; the mask in a branch, taken where u is not SURELY visible
      t = next tile from e that MAY hold a visible key
    ```

    All targets take that: the branch costs one comparison for a tile, the code is half as
    long, and copies that run ahead do not stop where partial tiles begin. CPUs take
    `branch-scores` as well: each side of the branch makes scores and row maxima in one pass
    over the products. A mask that depends on data keeps two loops, since it takes addresses
    from V by the scores.

    `rows` and `keys` override the schedule's tile sizes; otherwise they follow
    from the spec and the target's numbers (see Schedule.h), and a remark tells why.
  }];
  let options = [
    ListOption<"rows", "rows", "int64_t", "rows of the attend kernels' tiles, one kernel each">,
    Option<"keys", "keys", "int64_t", "0", "keys of a tile; 0: the schedule's choice">,
    ListOption<"slices", "slices", "int64_t",
               "for each of `rows`: parts of a tile's keys with a softmax state each; left out: 1">,
    ListOption<"heads", "heads", "int64_t",
               "for each of `rows`: KV heads whose items a kernel takes together; left out: 1">,
    Option<"oneLoop", "one-loop", "bool", "false", "full and partial tiles by one body">,
    Option<"endRows", "end-rows", "int64_t", "0",
           "rows that a turn of the loop at an item's end takes; 0: all at once">,
    Option<"partRows", "part-rows", "int64_t", "0",
           "rows that a trip leaves out together where none of them sees a key of its tile "
           "(`tile.used_rows`); 0: all rows are computed">,
    Option<"branchScores", "branch-scores", "bool", "false",
           "with `one-loop`: scores and their maxima in each side of the branch">,
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::llmopt::tile::TileDialect"];
}

#endif

#ifndef LLMOPT_CODEGEN_CUDA_PASSES
#define LLMOPT_CODEGEN_CUDA_PASSES

include "mlir/Pass/PassBase.td"

def TileGpuAssignLayouts : Pass<"tile-gpu-assign-layouts", "::mlir::func::FuncOp"> {
  let summary = "choose which thread holds which element of each tile";
  let description = [{
    Products decide: the accumulator of a `tile.mma` of f16 or bf16 gets the fragment of
    mma.m16n8k16, its second operand a place in shared memory, its first one registers (a
    tile that was just computed, or one of few registers, loaded once) or shared memory.
    Products of f32, and those whose rows are no multiple of 16, run on the plain units from
    shared memory. Warps share the rows of a product, so that row maxima and sums stay
    within a warp; with `slices`, each warp has keys of its own.

    From there layouts spread: operands and results of a `tile.map` agree, as does what a
    loop carries; a vector over rows gets the slice of its tile's layout. Row addresses get
    the layout of the copy that uses them: producers that are cheap to repeat (addresses,
    constants) are cloned for each use; what is read from memory for them lies in the lanes that
    share a row, one row a lane, and a `tile.convert` exchanges within the warp. A group that no product touches takes threads along
    the columns. Where two wishes meet, a `tile.convert` is inserted.
    ```mlir
    %s = tile.mma %q, %k, %zero transpose_b : ... tensor<64x64xf32>
    // becomes, with 4 warps
    %s = tile.mma %q, %k, %zero transpose_b
       : tensor<64x128xbf16, #tile.fragment<...>>, tensor<64x128xbf16, #tile.shared<...>>,
         tensor<64x64xf32, #tile.fragment<registers [2 columns 1, 2 rows 8, 8 columns 8],
                                          lanes [4 columns 2, 8 rows 1], warps [4 rows 16]>>
    ```
  }];
  let options = [Option<"warps", "warps", "int64_t", "4", "warps of a block, a power of two">];
  let dependentDialects = ["::llmopt::tile::TileDialect", "::mlir::arith::ArithDialect"];
}

def TileGpuStage : Pass<"tile-gpu-stage", "::mlir::func::FuncOp"> {
  let summary = "bring tiles into shared memory by asynchronous copies";
  let description = [{
    A `tile.load` whose result lies in shared memory becomes a buffer, a `tile.copy_async`
    and a `tile.get` after its token. A conversion from registers into shared memory becomes
    `tile.put` and `tile.get`; one between two layouts of registers goes through shared
    memory, unless lanes exchange the rows of a copy. A tile that `tile.fold` takes is put where it is made,
    for all folds of it; `tile.reduce_columns` gets a buffer to exchange through. Copies are begun as early in
    their block as their addresses are known. A read by ldmatrix whose layout covers more rows
    than the tile has (64 of 48) becomes `tile.bounded`: what is beyond is read from the last
    16 rows, and nobody reads the products.
  }];
  let dependentDialects = ["::llmopt::tile::TileDialect", "::mlir::memref::MemRefDialect"];
}

def TileGpuPipeline : Pass<"tile-gpu-pipeline", "::mlir::func::FuncOp"> {
  let summary = "begin the copies of a loop some iterations ahead";
  let description = [{
    In an `scf.for` whose copies have addresses that follow from the induction variable and
    from values outside the loop, the copies for iteration i + stages - 1 are begun in
    iteration i, right after the tiles of iteration i were waited for. The loop begins
    `stages - 1` turns earlier: these turns begin the copies of the first iterations and skip
    the rest of the body, so that copies, with all their addresses, exist once. Such a loop may run its first turn whatever its bounds (`tile.at_least_once`), so it is
    printed as do-while. Buffers get
    `stages` slots, tokens are carried by the loop. Loops with loops inside, loops that run at
    most once (`tile.once`), and stages 1, are left alone.
    ```mlir
    scf.for %i = %lo to %hi {
      %t = tile.copy_async %k[%rows_of_i], %buffer[%c0] ...
      %k = tile.get %buffer[%c0] after %t
    // becomes, with 2 stages
    %t0 = ub.poison : !tile.token
    scf.for %i = %lo - 1 to %hi iter_args(%x, %t = %t0) {
      %k = tile.get %buffer[%i] after %t
      %t1 = tile.copy_async %k[%rows_of_next], %buffer[%i] ahead 1 if %i + 1 < %hi
      %y = scf.if %i < %lo { scf.yield %x } else { ... }
      scf.yield %y, %t1
    ```
  }];
  let options = [
    Option<"stages", "stages", "int64_t", "2", "tiles of a loop in shared memory at a time">,
    Option<"readsAhead", "reads-ahead", "bool", "false",
           "read what addresses follow from, such as pages, a turn before their copies">,
  ];
  let dependentDialects = ["::llmopt::tile::TileDialect", "::mlir::arith::ArithDialect",
                           "::mlir::ub::UBDialect"];
}

def TileGpuAllocate : Pass<"tile-gpu-allocate", "::mlir::func::FuncOp"> {
  let summary = "give every shared buffer its place";
  let description = [{
    Buffers that are never in use at the same time may share bytes. A buffer is in use from
    its first to its last access; a loop that holds some of its accesses, but not all,
    or begins copies for a later turn, belongs to that time. The place is the attribute `tile.offset` of the allocation, the
    sum `tile.shared_bytes` of the function. A function that needs more than `budget` is
    refused, with what takes most; so is a read by ldmatrix of rows that its tile does not
    have, unless it is `tile.bounded`.
  }];
  let options = [Option<"budget", "budget", "int64_t", "101376", "bytes of shared memory of a block">];
}

def TileGpuSync : Pass<"tile-gpu-sync", "::mlir::func::FuncOp"> {
  let summary = "place barriers and counts of waits, from effects";
  let description = [{
    Walks the program in order and knows, for each byte range of shared memory, who has read
    or written it since the last barrier. A `tile.barrier` is placed before an access that
    conflicts with one of them (other threads may still be at it), and after the wait of a
    `tile.get`. Loops are walked until nothing changes; slots `i` and `i ahead 1` of one
    buffer are different places, and moving on to the next iteration renames them. The same
    walk counts, for each token, the groups of copies begun after it: that many may be pending when
    its `tile.get` goes on. Neighbouring copies that gets in a row wait for are one group
    (`tile.joins_next`), and such gets wait once, before the first of them.

    `memref.store` of a scalar is done by one thread; neighbours are in one branch.
  }];
  let dependentDialects = ["::llmopt::tile::TileDialect", "::mlir::scf::SCFDialect"];
}

def TileGpuNarrowIndices : Pass<"tile-gpu-narrow-indices", "::mlir::func::FuncOp"> {
  let summary = "count in 32 bits what fits them";
  let description = [{
    Rows, keys, positions and tiles of an item fit 32 bits, and a GPU adds and compares 64 in two
    steps and two registers. Ranges follow from `tile.range` at what is read from a plan
    (runtime/bundle/WorkItem.h names the limits) through arithmetic, loops and the elements of
    maps. An operation on `index` whose operands and result all fit becomes one on i32; so do a
    loop's bounds and what it carries. What multiplies a stride or is added to an offset of
    64 bits becomes an `index` before.
    ```mlir
    %word = memref.load %rows[%at] {tile.range = array<i64: 0, 536870911>}
    %row = arith.index_castui %word : i32 to index
    %next = arith.addi %row, %c1 : index
    %offset = arith.muli %next, %stride : index
    // becomes
    %next = arith.addi %word, %c1_i32 : i32
    %wide = arith.index_cast %next : i32 to index
    %offset = arith.muli %wide, %stride : index
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

#endif

#ifndef LLMOPT_DIALECT_TILE_TILEOPS
#define LLMOPT_DIALECT_TILE_TILEOPS

include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinTypeInterfaces.td"
include "mlir/IR/EnumAttr.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Tile_Dialect : Dialect {
  let name = "tile";
  let cppNamespace = "::llmopt::tile";
  let extraClassDeclaration = "void registerOps();";
  let summary = "tile programs: loops over tiles of values, shared by all targets";
  let description = [{
    A tile program is `scf` loops over *tiles*: builtin 2-D tensors of static shape, with an
    optional layout encoding that a target's passes choose. `scf`, `arith`, `math` and
    `memref` do the control flow and scalars; this dialect adds what they lack: tiles move
    between memory and values row by row (`tile.load`, `tile.store`), every row at an
    address of its own, so that dense, ragged, paged and packed operands are one case; they
    are multiplied (`tile.mma`), and mapped element by element (`tile.map`).

    *Row addresses* are a tile `tensor<Nx1xi64>`: the offset, in elements from the base, of
    each row's first element; a negative one names no memory: a load gives zeros there
    and a store writes nothing, and neither touches anything.

    A kernel is a `func.func` with the unit attribute `tile.kernel` and no results. Its
    arguments are 1-D memrefs with dynamic extent (a base pointer), `index`, `i64`, `i32`
    or `f32` values; one `index` argument may carry `tile.worker`: which worker runs it.
    All others are, in order, the 8-byte slots of the parameter block.
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
}

class Tile_Op<string mnemonic, list<Trait> traits = []> : Op<Tile_Dialect, mnemonic, traits>;

def Tile_Tile : RankedTensorOf<[AnyFloat, AnySignlessInteger]>;
def Tile_Base : MemRefRankOf<[AnyFloat, AnySignlessInteger], [1]>;
def Tile_RowAddresses : RankedTensorOf<[I64]>;

def Tile_Combiner : I32EnumAttr<"Combiner", "how a result of tile.map combines along a row", [
    I32EnumAttrCase<"None", 0, "none">, I32EnumAttrCase<"Max", 1, "max">,
    I32EnumAttrCase<"Sum", 2, "sum">]> {
  let cppNamespace = "::llmopt::tile";
  let genSpecializedAttr = 0;
}
def Tile_CombinerAttr : EnumAttr<Tile_Dialect, Tile_Combiner, "combiner">;

def Tile_Order : I32EnumAttr<"Order", "which dimension of a tile is contiguous", [
    I32EnumAttrCase<"Rows", 0, "rows">, I32EnumAttrCase<"Columns", 1, "columns">]> {
  let cppNamespace = "::llmopt::tile";
  let genSpecializedAttr = 0;
}

def Tile_OrderAttr : AttrDef<Tile_Dialect, "Order"> {
  let mnemonic = "order";
  let summary = "CPU layout: `rows` = a row is contiguous; `columns` = a column is (lanes run over rows)";
  let parameters = (ins EnumParameter<Tile_Order>:$value);
  let assemblyFormat = "`<` $value `>`";
}

/// Slots x rows x columns of shared memory: one tile for each slot (GPUs only).
def Tile_Buffer : MemRefRankOf<[AnyFloat, AnySignlessInteger], [3]>;

def Tile_LoadOp : Tile_Op<"load", [AttrSizedOperandSegments, MemoryEffects<[MemRead]>]> {
  let summary = "gather rows of memory into a tile";
  let description = [{
    ```mlir
    %k = tile.load %base[%rows] : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x128xbf16>
    %b = tile.load %base[%rows] cols(%first) stride(%s) limit(%n)
         : memref<?xf32>, tensor<64x1xi64> -> tensor<64x64xf32>
    ```
    Element (r, c) is `base[rows[r] + (first + c) * stride]`, or 0 where rows[r] < 0, or
    first + c >= limit. `first` is 0 and `stride` 1 when left out; without a limit all
    columns are there. The result's float type may be wider than memory's: values are
    extended exactly. With `slices` (see `tile.mma`), slice i begins i * columns further on.

    ```mlir
    %k = tile.load %base[%rows] slices 4 apart(%h) : memref<?xbf16>, tensor<64x1xi64> -> tensor<256x128xbf16>
    ```
    With `apart`, the rows named are those of the first slice, and the result has as many for
    each: row (i, r) lies i * apart elements beyond row r. So the keys of several heads are loaded
    by the addresses of one.
  }];
  let arguments = (ins Tile_Base:$base, Tile_RowAddresses:$rows, Optional<Index>:$first,
                       Optional<Index>:$stride, Optional<Index>:$limit, Optional<Index>:$apart,
                       DefaultValuedAttr<I64Attr, "1">:$slices);
  let results = (outs Tile_Tile:$tile);
  let assemblyFormat = "$base `[` $rows `]` (`cols` `(` $first^ `)`)? (`stride` `(` $stride^ `)`)? (`limit` `(` $limit^ `)`)? (`slices` $slices^)? (`apart` `(` $apart^ `)`)? attr-dict `:` type($base) `,` type($rows) `->` type($tile)";
  let builders = [OpBuilder<(ins "::mlir::Type":$tile, "::mlir::Value":$base, "::mlir::Value":$rows,
                                 "::mlir::Value":$first, "::mlir::Value":$stride, "::mlir::Value":$limit,
                                 CArg<"int64_t", "1">:$slices),
    [{ build($_builder, $_state, tile, base, rows, first, stride, limit, ::mlir::Value(), slices); }]>];
  let hasVerifier = 1;
}

def Tile_PrefetchOp : Tile_Op<"prefetch", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "rows that will be loaded soon: a hint";
  let description = [{
    ```mlir
    tile.prefetch %base[%rows] columns 128 : memref<?xbf16>, tensor<64x1xi64>
    ```
    Elements 0 to `columns` of each row will be read soon. Reads and changes nothing that a
    program could see; rows that are nowhere are skipped. `slices` and `apart` as in `tile.load`.
    A product that follows may spread the requests over its own work: a burst of them would wait
    for memory.
  }];
  let arguments = (ins Tile_Base:$base, Tile_RowAddresses:$rows, I64Attr:$columns,
                       Optional<Index>:$apart, DefaultValuedAttr<I64Attr, "1">:$slices);
  let assemblyFormat = "$base `[` $rows `]` `columns` $columns (`slices` $slices^)? (`apart` `(` $apart^ `)`)? attr-dict `:` type($base) `,` type($rows)";
  let hasVerifier = 1;
}

def Tile_UsedRowsOp : Tile_Op<"used_rows", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "the rows that a trip of a loop changes: a permission";
  let description = [{
    ```mlir
    %o = scf.for %t = %a to %b step %c1 iter_args(%acc = %zero) -> (tensor<192x64xf32>) {
      tile.used_rows %from to %to of 192
      ...
    }
    ```
    Of tiles with 192 rows that the rest of this block computes, only rows `from` to `to` - 1 are
    wanted; what the loop carries keeps its value in the others. A program says so where that is
    what it computes (no such row sees a key of this trip) or where nobody reads the result. A
    target may compute the other rows as well, or leave them out: the CPU does so with tiles by
    columns, in steps of four vectors; CUDA computes all.
  }];
  let arguments = (ins Index:$from, Index:$to, I64Attr:$rows);
  let assemblyFormat = "$from `to` $to `of` $rows attr-dict";
  let hasVerifier = 1;
}

def Tile_StoreOp : Tile_Op<"store", [AttrSizedOperandSegments, MemoryEffects<[MemWrite]>]> {
  let summary = "scatter the rows of a tile to memory";
  let description = [{
    ```mlir
    tile.store %o, %base[%rows] limit(%d) : tensor<64x128xf32>, memref<?xbf16>, tensor<64x1xi64>
    ```
    Addresses as in `tile.load`. Rows with a negative address and columns at or beyond the
    limit are not written. Memory's float type may be narrower: rounds to nearest even.
  }];
  let arguments = (ins Tile_Tile:$tile, Tile_Base:$base, Tile_RowAddresses:$rows,
                       Optional<Index>:$first, Optional<Index>:$stride, Optional<Index>:$limit);
  let assemblyFormat = "$tile `,` $base `[` $rows `]` (`cols` `(` $first^ `)`)? (`stride` `(` $stride^ `)`)? (`limit` `(` $limit^ `)`)? attr-dict `:` type($tile) `,` type($base) `,` type($rows)";
  let hasVerifier = 1;
}

def Tile_StridedRowsOp : Tile_Op<"strided_rows", [Pure]> {
  let summary = "row addresses at a fixed stride";
  let description = [{
    ```mlir
    %rows = tile.strided_rows %offset, %stride, %count : tensor<64x1xi64>
    ```
    Row r lies at offset + r * stride for r < count, nowhere (-1) otherwise.
  }];
  let arguments = (ins Index:$offset, Index:$stride, Index:$count);
  let results = (outs Tile_RowAddresses:$rows);
  let assemblyFormat = "$offset `,` $stride `,` $count attr-dict `:` type($rows)";
  let hasVerifier = 1;
}

def Tile_PagedRowsOp : Tile_Op<"paged_rows", [MemoryEffects<[MemRead]>]> {
  let summary = "row addresses through a page table";
  let description = [{
    ```mlir
    %rows = tile.paged_rows %table[%base] from %key count %n page 16
            offset %o strides %page_stride, %slot_stride : memref<?xi32>, tensor<64x1xi64>
    ```
    Row r is key j = key + r. For r < n and a page id p = table[base + j / page] >= 0 it
    lies at offset + p * page_stride + (j mod page) * slot_stride (64-bit), else nowhere.
    Table entries of rows at or beyond n are not read.
  }];
  let arguments = (ins Tile_Base:$table, Index:$base, Index:$key, Index:$count, I64Attr:$page,
                       Index:$offset, Index:$pageStride, Index:$slotStride);
  let results = (outs Tile_RowAddresses:$rows);
  let assemblyFormat = "$table `[` $base `]` `from` $key `count` $count `page` $page `offset` $offset `strides` $pageStride `,` $slotStride attr-dict `:` type($table) `,` type($rows)";
  let hasVerifier = 1;
}

def Tile_MmaOp : Tile_Op<"mma", [Pure, AllTypesMatch<["c", "result"]>]> {
  let summary = "matrix product of tiles, accumulated: c + a * b";
  let description = [{
    ```mlir
    %s = tile.mma %q, %k, %zero transpose_b
         : tensor<64x128xbf16>, tensor<64x128xbf16>, tensor<64x64xf32>
    %o = tile.mma %p, %v, %acc : tensor<64x64xbf16>, tensor<64x128xbf16>, tensor<64x128xf32>
    ```
    a is M x K, b is K x N, or N x K with `transpose_b`, c and the result M x N in f32.
    Products and sums are f32.

    With `slices` S, the rows of a and c are S slices of M / S, one after another, and each
    is multiplied by a slice of its own of b, which has S times the rows. An a of M / S rows
    is that of all slices. So keys are shared out: the same queries, keys of a slice's own.
  }];
  let arguments = (ins Tile_Tile:$a, Tile_Tile:$b, Tile_Tile:$c, UnitAttr:$transposeB,
                       DefaultValuedAttr<I64Attr, "1">:$slices);
  let results = (outs Tile_Tile:$result);
  let assemblyFormat = "$a `,` $b `,` $c (`transpose_b` $transposeB^)? (`slices` $slices^)? attr-dict `:` type($a) `,` type($b) `,` type($c)";
  let hasVerifier = 1;
}

def Tile_ReduceOp : Tile_Op<"reduce", [Pure]> {
  let summary = "combine the elements of each row: `tile.reduce max %s`";
  let arguments = (ins Tile_CombinerAttr:$combiner, Tile_Tile:$tile);
  let results = (outs Tile_Tile:$result);
  let assemblyFormat = "$combiner $tile attr-dict `:` type($tile) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_ReduceColumnsOp : Tile_Op<"reduce_columns", [Pure]> {
  let summary = "combine the elements of each column: `tile.reduce_columns max %s`";
  let description = [{
    ```mlir
    %seen = tile.reduce_columns max %s : tensor<192x64xf32> -> tensor<64x1xf32>
    ```
    Row c of the result combines column c of the M x N operand: N x 1, so that it meets
    tiles whose rows are the operand's columns, such as the addresses of keys. With
    `slices` S (see `tile.mma`), each slice of rows makes N results of its own: S * N x 1.
  }];
  let arguments = (ins Tile_CombinerAttr:$combiner, Tile_Tile:$tile,
                       DefaultValuedAttr<I64Attr, "1">:$slices, Optional<Tile_Buffer>:$scratch);
  let results = (outs Tile_Tile:$result);
  let assemblyFormat = "$combiner $tile (`slices` $slices^)? (`scratch` `(` $scratch^ `:` type($scratch) `)`)? attr-dict `:` type($tile) `->` type($result)";
  let builders = [OpBuilder<(ins "::mlir::Type":$result, "Combiner":$combiner, "::mlir::Value":$tile,
                                 CArg<"int64_t", "1">:$slices),
    [{ build($_builder, $_state, result, combiner, tile, slices, ::mlir::Value()); }]>];
  let hasVerifier = 1;
}

def Tile_FoldOp : Tile_Op<"fold", [Pure]> {
  let summary = "combine the slices of a tile, element by element";
  let description = [{
    ```mlir
    %top = tile.fold max %m slices 4 : tensor<64x1xf32> -> tensor<64x1xf32>
    %acc = tile.fold sum %x slices 4 : tensor<64x128xf32> -> tensor<16x128xf32>
    ```
    The rows of the operand are S slices of R rows. Element (r, c) of the result combines
    the elements (i * R + r, c) of all slices i; the result has R rows, or all S * R, in
    which case every slice gets the same values. With `rows(%first)` it has some of the R,
    from `first` on: a loop over them needs few registers and little code.
    ```mlir
    %some = tile.fold sum %x slices 4 rows(%r) : tensor<64x128xf32> -> tensor<4x128xf32>
    ```
  }];
  let arguments = (ins Tile_CombinerAttr:$combiner, Tile_Tile:$tile, I64Attr:$slices,
                       Optional<Index>:$first);
  let results = (outs Tile_Tile:$result);
  let assemblyFormat = "$combiner $tile `slices` $slices (`rows` `(` $first^ `)`)? attr-dict `:` type($tile) `->` type($result)";
  let builders = [OpBuilder<(ins "::mlir::Type":$result, "Combiner":$combiner, "::mlir::Value":$tile,
                                 "int64_t":$slices),
    [{ build($_builder, $_state, result, combiner, tile, slices, ::mlir::Value()); }]>];
  let hasVerifier = 1;
}

def Tile_MapOp : Tile_Op<"map", [RecursiveMemoryEffects, SingleBlockImplicitTerminator<"YieldOp">]> {
  let summary = "compute tiles element by element";
  let description = [{
    ```mlir
    %p, %sum = tile.map(%s, %m : tensor<64x64xf32>, tensor<64x1xf32>) {
    ^bb0(%x: f32, %mx: f32, %row: i32, %col: i32):
      %d = arith.subf %x, %mx : f32
      %e = math.exp2 %d : f32
      tile.yield %e, %e : f32, f32
    } combine [none, sum] -> tensor<64x64xf32>, tensor<64x1xf32>
    ```
    The region runs for every element of an M x N space, in no order; it sees the operands'
    elements (operands of extent 1 in a dimension are broadcast) and the row and column
    index. Each yielded value makes one result: a tile M x N (`none`, which may be left out
    when all are), or its combination along the row, M x 1 (`max`, which propagates NaN,
    or `sum`). The region may hold arith and math ops on scalars and `memref.load`.
    Masks, score modifications, conversions and the softmax's arithmetic are all this op.
  }];
  let arguments = (ins Variadic<Tile_Tile>:$inputs, OptionalAttr<TypedArrayAttrBase<Tile_CombinerAttr, "combiners">>:$combiners);
  let results = (outs Variadic<Tile_Tile>:$results);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// Combiner of result `i`.
    ::llmopt::tile::Combiner getCombiner(unsigned i);
    /// Extents (M, N) of the iteration space.
    std::pair<int64_t, int64_t> getSpace();
    ::mlir::Value getRowIndex() { return getBody().front().getArgument(getInputs().size()); }
    ::mlir::Value getColumnIndex() { return getBody().front().getArgument(getInputs().size() + 1); }
  }];
}

def Tile_YieldOp : Tile_Op<"yield", [Pure, Terminator, ReturnLike, ParentOneOf<["MapOp"]>]> {
  let summary = "end of a tile.map region";
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
  let builders = [OpBuilder<(ins), [{ }]>];
}

include "dialect/tile/TileGpuOps.td"

#endif

// What tile programs for GPUs need beside TileOps.td: layouts, shared memory, copies
// that run by themselves, and waiting. Included by TileOps.td.
#ifndef LLMOPT_DIALECT_TILE_TILEGPUOPS
#define LLMOPT_DIALECT_TILE_TILEGPUOPS

def Tile_Fragment : AttrDef<Tile_Dialect, "Fragment"> {
  let mnemonic = "fragment";
  let summary = "layout of a tile in the registers of a block's threads (see Layout.h)";
  let description = [{
    ```mlir
    #tile.fragment<registers [2 columns 1, 2 rows 8, 8 columns 8],
                   lanes [4 columns 2, 8 rows 1], warps [4 rows 16]>
    ```
  }];
  let parameters = (ins ArrayRefParameter<"::llmopt::tile::LayoutAxis">:$registers,
                        ArrayRefParameter<"::llmopt::tile::LayoutAxis">:$lanes,
                        ArrayRefParameter<"::llmopt::tile::LayoutAxis">:$warps);
  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = [{
    static FragmentAttr get(::mlir::MLIRContext *context, const Layout &layout);
    Layout getLayout() const;
  }];
}

def Tile_Shared : AttrDef<Tile_Dialect, "Shared"> {
  let mnemonic = "shared";
  let summary = "layout of a tile in shared memory; as memory space: shared memory in this layout";
  let description = [{
    Row r begins at r * pitch bytes; its 16-byte chunk c lies at place
    c xor ((r / (8 / span)) mod span). See SharedLayout.
  }];
  let parameters = (ins "int64_t":$pitch, "int64_t":$span);
  let assemblyFormat = "`<` struct(params) `>`";
  let extraClassDeclaration = [{
    SharedLayout getLayout() const { return {getPitch(), getSpan()}; }
  }];
}

def Tile_Token : TypeDef<Tile_Dialect, "Token"> {
  let mnemonic = "token";
  let summary = "a copy under way";
}

def Tile_CopyAsyncOp : Tile_Op<"copy_async", [AttrSizedOperandSegments,
    MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "begin to copy rows of memory into a tile of shared memory";
  let description = [{
    ```mlir
    %t = tile.copy_async %base[%rows], %buffer[%i] ahead 1 if %more
         : memref<?xbf16>, tensor<64x1xi64, ...>, memref<2x64x128xbf16, #tile.shared<...>>
    ```
    Copies as `tile.load` reads, into slot (i + ahead) mod slots, if the condition holds.
    What lies beyond the memory's columns in a row of the buffer becomes zero, so that
    products may run over the padded row. The data may be read once `tile.get` has waited.
  }];
  let arguments = (ins Tile_Base:$base, Tile_RowAddresses:$rows, Optional<Index>:$first,
    Optional<Index>:$stride, Optional<Index>:$limit, Tile_Buffer:$buffer, Index:$slot,
    Optional<I1>:$condition, DefaultValuedAttr<I64Attr, "0">:$ahead);
  let results = (outs Tile_Token:$token);
  let assemblyFormat = "$base `[` $rows `]` (`cols` `(` $first^ `)`)? (`stride` `(` $stride^ `)`)? (`limit` `(` $limit^ `)`)? `,` $buffer `[` $slot `]` (`ahead` $ahead^)? (`if` $condition^)? attr-dict `:` type($base) `,` type($rows) `,` type($buffer)";
  let hasVerifier = 1;
}

def Tile_PutOp : Tile_Op<"put", [MemoryEffects<[MemWrite]>]> {
  let summary = "write a tile from registers into slot 0 of shared memory";
  let description = [{ Padding of the buffer becomes zero. }];
  let arguments = (ins Tile_Tile:$tile, Tile_Buffer:$buffer);
  let assemblyFormat = "$tile `,` $buffer attr-dict `:` type($tile) `,` type($buffer)";
}

def Tile_GetOp : Tile_Op<"get", [MemoryEffects<[MemRead]>]> {
  let summary = "the tile in a slot of shared memory, once its copy is done";
  let description = [{
    Waits for the token, if there is one. The result is no copy: it is good until the slot
    is written again. `pending` is how many younger copies may still be under way
    (tile-gpu-sync sets it).
  }];
  let arguments = (ins Tile_Buffer:$buffer, Index:$slot, Optional<Tile_Token>:$token,
    OptionalAttr<I64Attr>:$pending);
  let results = (outs Tile_Tile:$tile);
  let assemblyFormat = "$buffer `[` $slot `]` (`after` $token^)? (`pending` $pending^)? attr-dict `:` type($buffer) `->` type($tile)";
}

def Tile_ConvertOp : Tile_Op<"convert", [Pure]> {
  let summary = "the same tile in another layout";
  let description = [{
    From shared memory into registers (by ldmatrix where the layout is that of the first
    operand of mma), or, before tile-gpu-stage, between any two layouts.
  }];
  let arguments = (ins Tile_Tile:$tile);
  let results = (outs Tile_Tile:$result);
  let assemblyFormat = "$tile attr-dict `:` type($tile) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_BarrierOp : Tile_Op<"barrier", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "all threads of the block have come here";
  let assemblyFormat = "attr-dict";
}

def Tile_ElectOp : Tile_Op<"elect", [Pure]> {
  let summary = "true in one thread of the block";
  let results = (outs I1:$result);
  let assemblyFormat = "attr-dict";
}

#endif

#ifndef LLMOPT_CODEGEN_CPU_PASSES
#define LLMOPT_CODEGEN_CPU_PASSES

include "mlir/Pass/PassBase.td"

class TileCpuPass<string mnemonic, string operation> : Pass<mnemonic, operation> {
  list<Option> commonOptions = [
    Option<"features", "features", "std::string", "\"\"",
           "LLVM feature names of the CPU, comma separated; empty is every x86-64">];
  let options = commonOptions;
}

def TileCpuPromote : TileCpuPass<"tile-cpu-promote", "::mlir::func::FuncOp"> {
  let summary = "multiply in f32 where the CPU has no narrower product";
  let description = [{
    A CPU without AVX512-BF16 has no product of bf16, and none has one of f16 that
    accumulates in f32. Operands of `tile.mma` become f32: a `tile.load` widens while it
    loads, a `tile.map` that ends in `arith.truncf` yields the value before rounding (P is
    then more exact than the spec asks), anything else is widened by a map.

    ```mlir
    %k = tile.load %b[%r] : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x128xbf16>
    // becomes
    %k = tile.load %b[%r] : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x128xf32>
    ```
    With AVX512-BF16, bf16 products that `tile-cpu-assign-order` will lay out by columns
    (more than 8 rows, or a `tile.batch_invariant` function) stay as they are when B is loaded
    for products alone and the reduction has an even length; so do those of 8 rows or fewer
    whose B has rows of whole registers, multiples of 32 elements. With the feature
    slow-bf16-dot (a CPU that does fewer such products a second than those of f32 FMA) only
    the latter do, and of them those of fewer than 4 rows.
  }];
  let dependentDialects = ["::llmopt::tile::TileDialect", "::mlir::arith::ArithDialect"];
}

def TileCpuFetchAhead : Pass<"tile-cpu-fetch-ahead", "::mlir::func::FuncOp"> {
  let summary = "prefetch the rows of a loop's next trip";
  let description = [{
    A product of few rows waits for memory, and so does the copy of B for one of many. Where B
    is loaded in a loop from rows that follow from the loop's counter, the rows of the next trip
    are computed too, and a `tile.prefetch` of them put before the product, which spreads the
    requests over its work. The last trip names its own rows again: no page table is read further
    than the loop itself reads it.

    ```mlir
    scf.for %t = %low to %high step %c1 {
      %rows = tile.strided_rows %offset(%t), ...
      %k = tile.load %b[%rows] ...
      %next = tile.strided_rows %offset(%t + 1 < %high ? %t + 1 : %t), ...   // new
      tile.prefetch %b[%next] columns 128 ...                                // new
      %s = tile.mma %q, %k, %zero transpose_b ...
    ```
  }];
  let dependentDialects = ["::llmopt::tile::TileDialect", "::mlir::arith::ArithDialect"];
}

def TileCpuAssignOrder : TileCpuPass<"tile-cpu-assign-order", "::mlir::func::FuncOp"> {
  let summary = "choose which dimension of each tile is contiguous";
  let description = [{
    Tiles that are tied to each other (a map's full operands and results, a product's A, C
    and result, what a loop carries) form a group with one order. A group with a product
    of 16 rows or more, and a multiple of the lanes, is laid out by columns: the lanes of a
    vector then run over rows, the product broadcasts elements of B and needs no packing
    of K or V, and row maxima and sums are plain vector operations. So is a group with a
    product that is not f32 (tile-cpu-promote left it for the dot product), unless it has 8 rows or fewer. Every other
    group keeps the default, row after row.

    A function with the unit attribute `tile.batch_invariant` gets columns whatever the
    number of rows (padded to the lanes): the result of a row then depends on that row
    alone, since no sum ever crosses lanes.

    The choice is an encoding:

    ```mlir
    %q = tile.load %m[%qr] : memref<?xf32>, tensor<64x1xi64> -> tensor<64x8xf32>
    %k = tile.load %m[%kr] : memref<?xf32>, tensor<32x1xi64> -> tensor<32x8xf32>
    %s = tile.mma %q, %k, %z transpose_b : tensor<64x8xf32>, tensor<32x8xf32>, tensor<64x32xf32>
    // becomes, with avx512f
    %q = tile.load %m[%qr] : memref<?xf32>, tensor<64x1xi64> -> tensor<64x8xf32, #tile.order<columns>>
    %k = tile.load %m[%kr] : memref<?xf32>, tensor<32x1xi64> -> tensor<32x8xf32>
    %s = tile.mma %q, %k, %z transpose_b : tensor<64x8xf32, #tile.order<columns>>,
         tensor<32x8xf32>, tensor<64x32xf32, #tile.order<columns>>
    ```
  }];
  let dependentDialects = ["::llmopt::tile::TileDialect"];
}

def ConvertTileToVector : TileCpuPass<"convert-tile-to-vector", "::mlir::func::FuncOp"> {
  let summary = "put tiles into scratch memory and lower the tile ops to loops over vectors";
  let description = [{
    Every tile value gets a place in the scratch argument, which the pass appends to the
    function (`memref<?xi8>`, attribute `tile.scratch`); its size is left on the function
    as `tile.scratch_bytes`. Values whose lifetimes do not overlap share memory; what a
    loop carries lives in one place and is updated there when the old value dies.
    Rows (or columns, by order) are padded to whole vectors; what lies in the padding is
    never mixed into another lane.

    Then `tile.load` becomes a row-by-row copy with conversion and zero fill, `tile.mma` a
    register-blocked loop nest of fused multiply-adds, `tile.map` a loop over vectors. What
    cannot be lowered is reported at its location, and nothing is changed silently.

    ```mlir
    func.func @f(%m: memref<?xf32>, %n: index) attributes {tile.kernel} {
      %rows = tile.strided_rows %n, %n, %n : tensor<16x1xi64>
      %t = tile.load %m[%rows] : memref<?xf32>, tensor<16x1xi64> -> tensor<16x16xf32>
      %x = tile.map(%t : tensor<16x16xf32>) {
      ^bb0(%a: f32, %r: i32, %c: i32):
        %y = arith.addf %a, %a : f32
        tile.yield %y : f32
      } -> tensor<16x16xf32>
      tile.store %x, %m[%rows] : tensor<16x16xf32>, memref<?xf32>, tensor<16x1xi64>
    // becomes, with avx512f
    func.func @f(%m: memref<?xf32>, %n: index, %s: memref<?xi8> {tile.scratch})
        attributes {tile.kernel, tile.scratch_bytes = 1152 : i64} {
      %t = memref.view %s[%c0][] : memref<?xi8> to memref<16x16xf32>
      %rows = memref.view %s[%c1024][] : memref<?xi8> to memref<1x16xi64>
      ...                                      // addresses, then the rows that they name
      scf.for %i = %c0 to %c16 step %c1 {      // the map, where %t lies
        %a = vector.load %t[%i, %c0] : memref<16x16xf32>, vector<16xf32>
        %y = arith.addf %a, %a : vector<16xf32>
        vector.store %y, %t[%i, %c0] : memref<16x16xf32>, vector<16xf32>
      }
      ...
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect",
    "::mlir::LLVM::LLVMDialect"];
}

def TileCpuExpandMath : TileCpuPass<"tile-cpu-expand-math", "::mlir::ModuleOp"> {
  let summary = "expand math and float conversions to what the CPU has";
  let description = [{
    exp2, exp, tanh, log, log2, sinh, cosh and powf in f32 become polynomials (see
    MathExpansion.cpp for the errors measured), for scalars and vectors alike (exp2 with
    AVX512-DQ a shorter one, by VREDUCEPS and VSCALEFPS); conversions
    of f16 and bf16 that the CPU lacks become integer arithmetic; `math.fma` on a CPU
    without it, a product and a sum.

    Every other function of real numbers that is no instruction of the CPU becomes calls
    of libm, one for each element, with f16 and bf16 widened to f32:

    ```mlir
    %y = math.erf %x : vector<8xf32>
    // becomes
    %x0 = vector.extract %x[0] : f32 from vector<8xf32>
    %y0 = func.call @erff(%x0) : (f32) -> f32
    %r0 = vector.insert %y0, %zero [0] : f32 into vector<8xf32>
    ...
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect", "::mlir::vector::VectorDialect"];
}

def TileCpuKernelAbi : Pass<"tile-cpu-kernel-abi", "::mlir::ModuleOp"> {
  let summary = "give kernels the entry point of the CPU device";
  let description = [{
    A function with `tile.kernel` becomes `(params: !llvm.ptr, worker: i32,
    scratch: !llvm.ptr) -> i32` and returns 0. Its arguments are loaded, in order, from the
    8-byte slots that follow the 64-byte header of the parameter block
    (runtime/bundle/WorkItem.h); the argument marked `tile.worker` is the worker and the
    one marked `tile.scratch` the scratch memory.

    ```mlir
    func.func @kernel(%m: memref<?xf32>, %n: index, %w: index {tile.worker}) attributes {tile.kernel} {
      ...
      return
    // becomes
    func.func @kernel(%params: !llvm.ptr, %worker: i32, %scratch: !llvm.ptr) -> i32 {
      %0 = llvm.getelementptr %params[64] : (!llvm.ptr) -> !llvm.ptr, i8
      %1 = llvm.load %0 : !llvm.ptr -> !llvm.ptr       // %m: a descriptor is put around it
      %2 = llvm.getelementptr %params[72] : (!llvm.ptr) -> !llvm.ptr, i8
      %3 = llvm.load %2 : !llvm.ptr -> i64
      %n = arith.index_cast %3 : i64 to index
      %w = arith.index_castui %worker : i32 to index
      ...
      return %c0_i32 : i32
    ```
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::arith::ArithDialect",
    "::mlir::func::FuncDialect"];
}

def TileCpuLoopsToBlocks : Pass<"tile-cpu-loops-to-blocks", "::mlir::ModuleOp"> {
  let summary = "convert scf to blocks and branches, constant loops with the test at their end";
  let description = [{
    MLIR's own conversion of scf to cf, but a loop whose bounds are numbers and that runs at least
    once is tested at its end. LLVM's loop passes want that form, and making it of the other costs
    a twentieth of the time of compiling a kernel.

    ```mlir
    scf.for %i = %c0 to %c16 step %c1 { ... }
    // becomes
      cf.br ^bb1(%c0 : index)
    ^bb1(%i: index):
      ...
      %next = arith.addi %i, %c1 : index
      %more = arith.cmpi slt, %next, %c16 : index
      cf.cond_br %more, ^bb1(%next : index), ^bb2
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::cf::ControlFlowDialect"];
}

def TileCpuToLlvm : Pass<"tile-cpu-to-llvm", "::mlir::ModuleOp"> {
  let summary = "convert arith, math, vector, memref, func and cf to the LLVM dialect at once";
  let description = [{
    MLIR's own conversions, all in one walk: a pass for each dialect would visit the whole
    body each time, which is most of what lowering to the LLVM dialect costs. Control flow
    must be `cf` already; casts that are left over are removed by
    `reconcile-unrealized-casts`. An op of these dialects without a conversion is reported at
    its location.

    ```mlir
    %v = vector.load %m[%i] : memref<?xf32>, vector<8xf32>
    %y = arith.mulf %v, %x : vector<8xf32>
    // becomes
    %base = llvm.extractvalue %m[1] : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>
    %at = llvm.getelementptr %base[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32
    %v = llvm.load %at {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
    %y = llvm.fmul %v, %x : vector<8xf32>
    ```
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::arith::ArithDialect",
    "::mlir::vector::VectorDialect"];
}

#endif

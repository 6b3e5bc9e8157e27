// RUN: llm-opt opt --tile-to-gpu=budget=4096 --split-input-file --verify-diagnostics %s

// expected-error @+4 {{kernel 'large' needs 16384 bytes of shared memory in a block; the target has 4096; smaller tiles need less (schedule(rows = ..., keys = ...))}}
// expected-note @+3 {{4096 bytes at 0 for}}
// expected-note @+2 {{4096 bytes at 4096 for}}
// expected-note @+1 {{16384 bytes at 0 for}}
func.func @large(%x: memref<?xbf16>, %n: index) attributes {tile.kernel} {
  %r = tile.strided_rows %n, %n, %n : tensor<64x1xi64>
  %s = tile.strided_rows %n, %n, %n : tensor<32x1xi64>
  %b = tile.load %x[%s] : memref<?xbf16>, tensor<32x1xi64> -> tensor<32x64xbf16>
  %a = tile.load %x[%r] : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x32xbf16>
  %z = arith.constant dense<0.0> : tensor<64x64xf32>
  %p = tile.mma %a, %b, %z : tensor<64x32xbf16>, tensor<32x64xbf16>, tensor<64x64xf32>
  tile.store %p, %x[%r] : tensor<64x64xf32>, memref<?xbf16>, tensor<64x1xi64>
  return
}

// -----

func.func @slices(%m: memref<?xbf16>, %n: index) attributes {tile.kernel} {
  %r = tile.strided_rows %n, %n, %n : tensor<32x1xi64>
  %a = tile.load %m[%r] : memref<?xbf16>, tensor<32x1xi64> -> tensor<32x16xbf16>
  %z = arith.constant dense<0.0> : tensor<32x8xf32>
  // expected-error @+1 {{'tile.mma' op has slices of 8 rows, and a warp holds 16; a slice must be a multiple}}
  %p = tile.mma %a, %a, %z transpose_b slices 4 : tensor<32x16xbf16>, tensor<32x16xbf16>, tensor<32x8xf32>
  tile.store %p, %m[%r] : tensor<32x8xf32>, memref<?xbf16>, tensor<32x1xi64>
  return
}

// -----

func.func @apart(%m: memref<?xbf16>, %n: index) attributes {tile.kernel} {
  %r = tile.strided_rows %n, %n, %n : tensor<16x1xi64>
  // expected-error@+1 {{'tile.load' op names the rows of one of 2 slices; CUDA kernels take the addresses of all of them}}
  %a = tile.load %m[%r] slices 2 apart(%n) : memref<?xbf16>, tensor<16x1xi64> -> tensor<32x16xbf16>
  %s = tile.strided_rows %n, %n, %n : tensor<32x1xi64>
  tile.store %a, %m[%s] : tensor<32x16xbf16>, memref<?xbf16>, tensor<32x1xi64>
  return
}

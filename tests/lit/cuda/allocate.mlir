// RUN: llm-opt opt --tile-to-gpu %s | FileCheck %s

// The next tile of k is copied to the other slot while this turn computes: nothing else lies in
// either slot then, not even what is written after the turn's last read of k.
// CHECK-LABEL: func.func @weights
// CHECK:         tile.note = "exchange: 4096 bytes.", tile.offset = 53248
// CHECK:         tile.note = "tile: 2 slots of 16384 bytes.", tile.offset = 20480
func.func @weights(%q: memref<?xf32>, %k: memref<?xf32>, %y: memref<?xf32>, %lo: index, %hi: index) attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %c64 = arith.constant 64 : index
  %rq = tile.strided_rows %c0, %c64, %c16 : tensor<16x1xi64>
  %a = tile.load %q[%rq] : memref<?xf32>, tensor<16x1xi64> -> tensor<16x64xf32>
  %rw = tile.strided_rows %c0, %c64, %c64 : tensor<64x1xi64>
  %w = tile.load %k[%rw] : memref<?xf32>, tensor<64x1xi64> -> tensor<64x64xf32>
  %z = arith.constant dense<0.0> : tensor<16x64xf32>
  %o = scf.for %i = %lo to %hi step %c1 iter_args(%acc = %z) -> tensor<16x64xf32> {
    %at = arith.muli %i, %c64 : index
    %rk = tile.strided_rows %at, %c64, %c64 : tensor<64x1xi64>
    %b = tile.load %k[%rk] : memref<?xf32>, tensor<64x1xi64> -> tensor<64x64xf32>
    %s = tile.mma %a, %b, %z transpose_b : tensor<16x64xf32>, tensor<64x64xf32>, tensor<16x64xf32>
    %p = tile.map(%s : tensor<16x64xf32>) {
    ^bb0(%x: f32, %r: i32, %c: i32):
      %e = math.exp %x : f32
      tile.yield %e : f32
    } -> tensor<16x64xf32>
    %v = tile.mma %p, %w, %acc : tensor<16x64xf32>, tensor<64x64xf32>, tensor<16x64xf32>
    scf.yield %v : tensor<16x64xf32>
  }
  tile.store %o, %y[%rq] : tensor<16x64xf32>, memref<?xf32>, tensor<16x1xi64>
  return
}

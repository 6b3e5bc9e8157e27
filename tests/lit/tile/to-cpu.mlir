// RUN: llm-opt opt --tile-to-cpu=features=avx512f --split-input-file --verify-diagnostics %s | FileCheck %s
// The whole pipeline on a tile program: an entry point of the CPU device, nothing but LLVM inside.

// CHECK-LABEL: llvm.func @double(%{{.*}}: !llvm.ptr, %{{.*}}: i32, %{{.*}}: !llvm.ptr) -> i32
// CHECK-NOT:     {{tile\.(map|load|store|strided_rows)}}
// CHECK:         llvm.fadd {{.*}} : vector<16xf32>
// CHECK:         llvm.return %{{.*}} : i32
func.func @double(%m: memref<?xf32>, %n: index) attributes {tile.kernel} {
  %rows = tile.strided_rows %n, %n, %n : tensor<4x1xi64>
  %t = tile.load %m[%rows] : memref<?xf32>, tensor<4x1xi64> -> tensor<4x16xf32>
  %d = tile.map(%t : tensor<4x16xf32>) {
  ^bb0(%a: f32, %r: i32, %c: i32):
    %s = arith.addf %a, %a : f32
    tile.yield %s : f32
  } -> tensor<4x16xf32>
  tile.store %d, %m[%rows] : tensor<4x16xf32>, memref<?xf32>, tensor<4x1xi64>
  return
}

// -----

// An error of any of its passes ends it, at its place.
func.func @gpu_op(%t: tensor<8x8xf32>) attributes {tile.kernel} {
  // expected-error @below {{'tile.convert' op has no lowering to the CPU}}
  %x = tile.convert %t : tensor<8x8xf32> -> tensor<8x8xf32>
  return
}

// RUN: llm-opt opt --convert-tile-to-vector=features=avx512f,avx512bf16,avx512bw,avx512vl --verify-diagnostics %s

func.func @odd_reduction(%m: memref<?xbf16>, %n: index) {
  %rows = tile.strided_rows %n, %n, %n : tensor<16x1xi64>
  %a = tile.load %m[%rows] : memref<?xbf16>, tensor<16x1xi64> -> tensor<16x16xbf16>
  %z = arith.constant dense<0.0> : tensor<16x16xf32>
  // expected-error @below {{'tile.mma' op multiplies bf16 in a layout that the dot product does not take; run tile-cpu-promote and tile-cpu-assign-order first}}
  %o = tile.mma %a, %a, %z : tensor<16x16xbf16>, tensor<16x16xbf16>, tensor<16x16xf32>
  return
}

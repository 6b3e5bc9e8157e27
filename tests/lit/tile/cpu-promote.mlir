// RUN: llm-opt opt --tile-cpu-promote %s | FileCheck %s

// Loads widen, and P is not rounded.
// CHECK-LABEL: func.func @product
// CHECK:         %[[V:.*]] = tile.load {{.*}} : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x32xf32>
// CHECK:         %[[P:.*]] = tile.map
// CHECK-NOT:       truncf
// CHECK:           tile.yield {{.*}} : f32
// CHECK:         tile.mma %[[P]], %[[V]], {{.*}} : tensor<16x64xf32>, tensor<64x32xf32>, tensor<16x32xf32>
func.func @product(%b: memref<?xbf16>, %rows: tensor<64x1xi64>, %s: tensor<16x64xf32>, %acc: tensor<16x32xf32>) -> tensor<16x32xf32> {
  %v = tile.load %b[%rows] : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x32xbf16>
  %p = tile.map(%s : tensor<16x64xf32>) {
  ^bb0(%x: f32, %r: i32, %c: i32):
    %e = math.exp2 %x : f32
    %y = arith.truncf %e : f32 to bf16
    tile.yield %y : bf16
  } -> tensor<16x64xbf16>
  %o = tile.mma %p, %v, %acc : tensor<16x64xbf16>, tensor<64x32xbf16>, tensor<16x32xf32>
  return %o : tensor<16x32xf32>
}

// What is neither is widened by a map.
// CHECK-LABEL: func.func @argument
// CHECK:         arith.extf
// CHECK:         tile.mma {{.*}} : tensor<16x8xf32>, tensor<8x8xf32>, tensor<16x8xf32>
func.func @argument(%a: tensor<16x8xf16>, %b: tensor<8x8xf16>, %acc: tensor<16x8xf32>) -> tensor<16x8xf32> {
  %o = tile.mma %a, %b, %acc : tensor<16x8xf16>, tensor<8x8xf16>, tensor<16x8xf32>
  return %o : tensor<16x8xf32>
}

// f32 stays as it is.
// CHECK-LABEL: func.func @nothing
// CHECK-NEXT:    tile.mma
// CHECK-NEXT:    return
func.func @nothing(%a: tensor<16x8xf32>, %b: tensor<8x8xf32>, %acc: tensor<16x8xf32>) -> tensor<16x8xf32> {
  %o = tile.mma %a, %b, %acc : tensor<16x8xf32>, tensor<8x8xf32>, tensor<16x8xf32>
  return %o : tensor<16x8xf32>
}

// Many rows of bf16: the dot product takes them as they are, unless FMA is faster. Few rows wait
// for memory, and stay; then from 4 on they do not either.
// RUN: llm-opt opt --pass-pipeline='builtin.module(func.func(tile-cpu-promote{features=avx512f,avx512bf16}))' %s | FileCheck %s --check-prefix=DOT
// RUN: llm-opt opt --pass-pipeline='builtin.module(func.func(tile-cpu-promote{features=avx512f,avx512bf16,slow-bf16-dot}))' %s | FileCheck %s --check-prefix=SLOW
// DOT-LABEL:  func.func @many
// DOT:          tile.mma {{.*}} : tensor<64x32xbf16>, tensor<64x32xbf16>, tensor<64x64xf32>
// SLOW-LABEL: func.func @many
// SLOW:         tile.mma {{.*}} : tensor<64x32xf32>, tensor<64x32xf32>, tensor<64x64xf32>
func.func @many(%b: memref<?xbf16>, %rows: tensor<64x1xi64>, %a: tensor<64x32xbf16>, %acc: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %k = tile.load %b[%rows] : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x32xbf16>
  %o = tile.mma %a, %k, %acc transpose_b : tensor<64x32xbf16>, tensor<64x32xbf16>, tensor<64x64xf32>
  return %o : tensor<64x64xf32>
}
// DOT-LABEL:  func.func @few
// DOT:          tile.mma {{.*}} : tensor<4x32xbf16>, tensor<64x32xbf16>, tensor<4x64xf32>
// SLOW-LABEL: func.func @few
// SLOW:         tile.mma {{.*}} : tensor<4x32xf32>, tensor<64x32xf32>, tensor<4x64xf32>
func.func @few(%b: memref<?xbf16>, %rows: tensor<64x1xi64>, %a: tensor<4x32xbf16>, %acc: tensor<4x64xf32>) -> tensor<4x64xf32> {
  %k = tile.load %b[%rows] : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x32xbf16>
  %o = tile.mma %a, %k, %acc transpose_b : tensor<4x32xbf16>, tensor<64x32xbf16>, tensor<4x64xf32>
  return %o : tensor<4x64xf32>
}
// DOT-LABEL:  func.func @fewer
// DOT:          tile.mma {{.*}} : tensor<3x32xbf16>, tensor<64x32xbf16>, tensor<3x64xf32>
// SLOW-LABEL: func.func @fewer
// SLOW:         tile.mma {{.*}} : tensor<3x32xbf16>, tensor<64x32xbf16>, tensor<3x64xf32>
func.func @fewer(%b: memref<?xbf16>, %rows: tensor<64x1xi64>, %a: tensor<3x32xbf16>, %acc: tensor<3x64xf32>) -> tensor<3x64xf32> {
  %k = tile.load %b[%rows] : memref<?xbf16>, tensor<64x1xi64> -> tensor<64x32xbf16>
  %o = tile.mma %a, %k, %acc transpose_b : tensor<3x32xbf16>, tensor<64x32xbf16>, tensor<3x64xf32>
  return %o : tensor<3x64xf32>
}

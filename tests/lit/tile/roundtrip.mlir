// RUN: llm-opt opt %s > %t && llm-opt opt %t | diff %t -
// RUN: FileCheck %s < %t
// What is printed is read again, to the same text.

// A map of several results, as tile-fuse-maps makes them.
// CHECK: } combine [none, max] -> (tensor<16x16xf32>, tensor<16x1xf32>)
func.func @two_results(%t: tensor<16x16xf32>) -> (tensor<16x16xf32>, tensor<16x1xf32>) {
  %x:2 = tile.map(%t : tensor<16x16xf32>) {
  ^bb0(%a: f32, %r: i32, %c: i32):
    tile.yield %a, %a : f32, f32
  } combine [none, max] -> (tensor<16x16xf32>, tensor<16x1xf32>)
  return %x#0, %x#1 : tensor<16x16xf32>, tensor<16x1xf32>
}

// CHECK: } -> tensor<4x4xi32>
func.func @no_input() -> tensor<4x4xi32> {
  %x = tile.map() {
  ^bb0(%r: i32, %c: i32):
    tile.yield %r : i32
  } -> tensor<4x4xi32>
  return %x : tensor<4x4xi32>
}

// CHECK: tile.load %{{.*}}[%{{.*}}] cols(%{{.*}}) stride(%{{.*}}) limit(%{{.*}}) slices 2 :
// CHECK: tile.load %{{.*}}[%{{.*}}] slices 2 apart(%{{.*}}) : {{.*}} -> tensor<16x8xf32>
// CHECK: tile.prefetch %{{.*}}[%{{.*}}] columns 8 slices 2 apart(%{{.*}}) :
// CHECK: tile.used_rows %{{.*}} to %{{.*}} of 8
// CHECK: tile.mma {{.*}} transpose_b slices 2 :
// CHECK: tile.reduce_columns max %{{.*}} slices 2 :
// CHECK: tile.fold sum %{{.*}} slices 2 rows(%{{.*}}) :
func.func @slices(%m: memref<?xf32>, %n: index) {
  %r = tile.strided_rows %n, %n, %n : tensor<8x1xi64>
  %a = tile.load %m[%r] cols(%n) stride(%n) limit(%n) slices 2 : memref<?xf32>, tensor<8x1xi64> -> tensor<8x8xf32>
  %heads = tile.load %m[%r] slices 2 apart(%n) : memref<?xf32>, tensor<8x1xi64> -> tensor<16x8xf32>
  tile.prefetch %m[%r] columns 8 slices 2 apart(%n) : memref<?xf32>, tensor<8x1xi64>
  %z = arith.constant dense<0.0> : tensor<8x4xf32>
  tile.used_rows %n to %n of 8
  %p = tile.mma %a, %a, %z transpose_b slices 2 : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x4xf32>
  %c = tile.reduce_columns max %p slices 2 : tensor<8x4xf32> -> tensor<8x1xf32>
  %f = tile.fold sum %p slices 2 rows(%n) : tensor<8x4xf32> -> tensor<2x4xf32>
  return
}

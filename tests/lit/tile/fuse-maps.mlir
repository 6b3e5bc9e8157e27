// RUN: llm-opt opt --tile-fuse-maps %s | FileCheck %s

// The maximum is taken in the pass that scales; the exponential scales again instead of
// reading a stored tile, and sums on the way.
// CHECK-LABEL: func.func @softmax
// CHECK-SAME:    %[[S:.*]]: tensor<64x64xf32>
// CHECK:       %[[MAX:.*]] = tile.map(%[[S]] : tensor<64x64xf32>)
// CHECK:         arith.mulf
// CHECK:       combine [max] -> tensor<64x1xf32>
// CHECK:       %[[P:.*]]:2 = tile.map(%[[S]], %[[MAX]] :
// CHECK:         arith.mulf
// CHECK:         arith.subf
// CHECK:         math.exp2
// CHECK:         arith.truncf
// CHECK:       -> (tensor<64x1xf32>, tensor<64x64xbf16>)
// CHECK-NOT:   tile.map
// CHECK-NOT:   tile.reduce
func.func @softmax(%s: tensor<64x64xf32>, %scale: f32) -> (tensor<64x64xbf16>, tensor<64x1xf32>) {
  %s1 = tile.map(%s : tensor<64x64xf32>) {
  ^bb0(%x: f32, %r: i32, %c: i32):
    %y = arith.mulf %x, %scale : f32
    tile.yield %y : f32
  } -> tensor<64x64xf32>
  %mx = tile.reduce max %s1 : tensor<64x64xf32> -> tensor<64x1xf32>
  %p = tile.map(%s1, %mx : tensor<64x64xf32>, tensor<64x1xf32>) {
  ^bb0(%x: f32, %m: f32, %r: i32, %c: i32):
    %d = arith.subf %x, %m : f32
    %e = math.exp2 %d : f32
    tile.yield %e : f32
  } -> tensor<64x64xf32>
  %l = tile.reduce sum %p : tensor<64x64xf32> -> tensor<64x1xf32>
  %b = tile.map(%p : tensor<64x64xf32>) {
  ^bb0(%x: f32, %r: i32, %c: i32):
    %y = arith.truncf %x : f32 to bf16
    tile.yield %y : bf16
  } -> tensor<64x64xbf16>
  return %b, %l : tensor<64x64xbf16>, tensor<64x1xf32>
}

// A result that needs the whole row of the map it comes from stays apart.
// CHECK-LABEL: func.func @needs_whole_row
// CHECK:         tile.map
// CHECK:         combine [none, sum]
// CHECK:         tile.map
// CHECK:           arith.divf
func.func @needs_whole_row(%s: tensor<8x64xf32>) -> tensor<8x64xf32> {
  %p = tile.map(%s : tensor<8x64xf32>) {
  ^bb0(%x: f32, %r: i32, %c: i32):
    %e = math.exp2 %x : f32
    tile.yield %e : f32
  } -> tensor<8x64xf32>
  %l = tile.reduce sum %p : tensor<8x64xf32> -> tensor<8x1xf32>
  %o = tile.map(%p, %l : tensor<8x64xf32>, tensor<8x1xf32>) {
  ^bb0(%x: f32, %t: f32, %r: i32, %c: i32):
    %e = arith.divf %x, %t : f32
    tile.yield %e : f32
  } -> tensor<8x64xf32>
  return %o : tensor<8x64xf32>
}

// A reduction of something that no map makes becomes a map.
// CHECK-LABEL: func.func @reduce_product
// CHECK:         tile.mma
// CHECK:         tile.map
// CHECK:         combine [max] -> tensor<8x1xf32>
func.func @reduce_product(%a: tensor<8x4xf32>, %b: tensor<4x8xf32>, %c: tensor<8x8xf32>) -> tensor<8x1xf32> {
  %p = tile.mma %a, %b, %c : tensor<8x4xf32>, tensor<4x8xf32>, tensor<8x8xf32>
  %m = tile.reduce max %p : tensor<8x8xf32> -> tensor<8x1xf32>
  return %m : tensor<8x1xf32>
}

// Splats become scalars; nothing else changes.
// CHECK-LABEL: func.func @splat
// CHECK:         tile.map(%{{.*}} : tensor<8x8xf32>)
// CHECK:           arith.addf
func.func @splat(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %one = arith.constant dense<1.0> : tensor<8x8xf32>
  %o = tile.map(%a, %one : tensor<8x8xf32>, tensor<8x8xf32>) {
  ^bb0(%x: f32, %y: f32, %r: i32, %c: i32):
    %z = arith.addf %x, %y : f32
    tile.yield %z : f32
  } -> tensor<8x8xf32>
  return %o : tensor<8x8xf32>
}

// A map that reads memory does not move over a store.
// CHECK-LABEL: func.func @store_between
// CHECK:         memref.load
// CHECK:         memref.store
// CHECK:         tile.map
func.func @store_between(%m: memref<?xf32>, %a: tensor<8x8xf32>, %v: f32) -> tensor<8x8xf32> {
  %c0 = arith.constant 0 : index
  %p = tile.map(%a : tensor<8x8xf32>) {
  ^bb0(%x: f32, %r: i32, %c: i32):
    %b = memref.load %m[%c0] : memref<?xf32>
    %y = arith.addf %x, %b : f32
    tile.yield %y : f32
  } -> tensor<8x8xf32>
  memref.store %v, %m[%c0] : memref<?xf32>
  %o = tile.map(%p : tensor<8x8xf32>) {
  ^bb0(%x: f32, %r: i32, %c: i32):
    %y = math.exp2 %x : f32
    tile.yield %y : f32
  } -> tensor<8x8xf32>
  return %o : tensor<8x8xf32>
}

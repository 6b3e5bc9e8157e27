// RUN: llm-opt opt --convert-tile-to-vector=features=avx512f --split-input-file --verify-diagnostics %s

func.func @dynamic_tile(%n: index) {
  %rows = arith.constant dense<0> : tensor<4x1xi64>
  // expected-error @below {{'arith.addi' op works on tiles, which the CPU target does not lower; use tile ops, scf loops and splat constants}}
  %x = arith.addi %rows, %rows : tensor<4x1xi64>
  %y = tile.map(%x : tensor<4x1xi64>) {
  ^bb0(%a: i64, %r: i32, %c: i32):
    tile.yield %a : i64
  } -> tensor<4x1xi64>
  return
}

// -----

func.func @memory_in_two_dimensions(%m: memref<4x4xf32>) {
  %c0 = arith.constant 0 : index
  %x = tile.map() {
  ^bb0(%r: i32, %c: i32):
    // expected-error @below {{'memref.load' op loads from 'memref<4x4xf32>' inside a map; a 1-D memref is wanted}}
    %v = memref.load %m[%c0, %c0] : memref<4x4xf32>
    tile.yield %v : f32
  } -> tensor<4x4xf32>
  return
}

// -----

func.func @unknown_in_a_region(%m: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %x = tile.map() {
  ^bb0(%r: i32, %c: i32):
    // expected-error @below {{'memref.dim' op cannot be vectorised inside a tile.map; arith and math ops on scalars and memref.load are allowed}}
    %d = memref.dim %m, %c0 : memref<?xf32>
    %v = arith.index_cast %d : index to i32
    tile.yield %v : i32
  } -> tensor<4x4xi32>
  return
}

// -----

func.func @narrow_product(%m: memref<?xf16>, %n: index) {
  %rows = tile.strided_rows %n, %n, %n : tensor<4x1xi64>
  %a = tile.load %m[%rows] : memref<?xf16>, tensor<4x1xi64> -> tensor<4x4xf16>
  %z = arith.constant dense<0.0> : tensor<4x4xf32>
  // expected-error @below {{'tile.mma' op multiplies 'f16'; this CPU multiplies f32 here, run tile-cpu-promote first}}
  %o = tile.mma %a, %a, %z : tensor<4x4xf16>, tensor<4x4xf16>, tensor<4x4xf32>
  return
}

// -----

func.func @slices(%m: memref<?xf32>, %n: index) {
  %r = tile.strided_rows %n, %n, %n : tensor<8x1xi64>
  %a = tile.load %m[%r] : memref<?xf32>, tensor<8x1xi64> -> tensor<8x8xf32>
  %z = arith.constant dense<0.0> : tensor<16x4xf32>
  // expected-error @below {{has 2 slices; the CPU target has no use for them, use 1}}
  %p = tile.mma %a, %a, %z transpose_b slices 2 : tensor<8x8xf32>, tensor<8x8xf32>, tensor<16x4xf32>
  %s = tile.strided_rows %n, %n, %n : tensor<16x1xi64>
  tile.store %p, %m[%s] : tensor<16x4xf32>, memref<?xf32>, tensor<16x1xi64>
  return
}

// -----

func.func @no_tile(%m: memref<?xf32>, %r: tensor<8x1xi64>, %t: tensor<?x8xf32>) {
  tile.prefetch %m[%r] columns 8 : memref<?xf32>, tensor<8x1xi64>
  // expected-error @below {{'func.call' op has a value of type 'tensor<?x8xf32>'; the CPU target lowers 2-D tiles of static shape only}}
  func.call @other(%t) : (tensor<?x8xf32>) -> ()
  return
}
func.func private @other(%t: tensor<?x8xf32>)

// -----

func.func @gpu_op(%t: tensor<8x8xf32>) {
  // expected-error @below {{'tile.convert' op has no lowering to the CPU}}
  %x = tile.convert %t : tensor<8x8xf32> -> tensor<8x8xf32>
  return
}

// -----

// expected-error @below {{'func.func' op has several blocks; a tile program is structured (scf)}}
func.func @blocks(%m: memref<?xf32>, %r: tensor<8x1xi64>) {
  cf.br ^bb1
^bb1:
  tile.prefetch %m[%r] columns 8 : memref<?xf32>, tensor<8x1xi64>
  return
}

// -----

func.func @both_orders(%m: memref<?xf32>, %n: index) {
  %rows = tile.strided_rows %n, %n, %n : tensor<16x1xi64>
  %t = tile.load %m[%rows] : memref<?xf32>, tensor<16x1xi64> -> tensor<16x16xf32>
  // expected-error @below {{'tile.map' op has full results of both orders; run tile-cpu-assign-order}}
  %x:2 = tile.map(%t : tensor<16x16xf32>) {
  ^bb0(%a: f32, %r: i32, %c: i32):
    tile.yield %a, %a : f32, f32
  } -> (tensor<16x16xf32, #tile.order<columns>>, tensor<16x16xf32>)
  tile.store %x#1, %m[%rows] : tensor<16x16xf32>, memref<?xf32>, tensor<16x1xi64>
  return
}

// -----

func.func @bits(%m: memref<?xi1>) {
  %c0 = arith.constant 0 : index
  %x = tile.map() {
  ^bb0(%r: i32, %c: i32):
    // expected-error @below {{'memref.load' op gathers elements of 'i1'; elements of a byte or more are wanted}}
    %v = memref.load %m[%c0] : memref<?xi1>
    %w = arith.extui %v : i1 to i32
    tile.yield %w : i32
  } -> tensor<4x4xi32>
  return
}

// -----

func.func @slices_by_columns(%m: memref<?xf32>, %n: index) {
  %r = tile.strided_rows %n, %n, %n : tensor<8x1xi64>
  %a = tile.load %m[%r] : memref<?xf32>, tensor<8x1xi64> -> tensor<8x8xf32, #tile.order<columns>>
  %b = tile.load %m[%r] : memref<?xf32>, tensor<8x1xi64> -> tensor<8x8xf32>
  %z = arith.constant dense<0.0> : tensor<8x4xf32, #tile.order<columns>>
  // expected-error @below {{'tile.mma' op has 2 slices of tiles by columns; the CPU target takes tiles by rows}}
  %p = tile.mma %a, %b, %z transpose_b slices 2 : tensor<8x8xf32, #tile.order<columns>>, tensor<8x8xf32>, tensor<8x4xf32, #tile.order<columns>>
  tile.store %p, %m[%r] : tensor<8x4xf32, #tile.order<columns>>, memref<?xf32>, tensor<8x1xi64>
  return
}

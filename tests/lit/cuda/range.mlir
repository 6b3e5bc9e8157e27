// RUN: not llm-opt opt --tile-gpu-narrow-indices --split-input-file %s 2>&1 | FileCheck %s

// CHECK: range.mlir:[[@LINE+2]]:{{.*}}error: 'memref.load' op has tile.range = array<i64: 3>; array<i64: least, most> of its one integer result is wanted
func.func @one_number(%rows: memref<?xi32>, %worker: index) -> i32 attributes {tile.kernel} {
  %word = memref.load %rows[%worker] {tile.range = array<i64: 3>} : memref<?xi32>
  return %word : i32
}

// -----

// CHECK: error: 'memref.load' op has tile.range = array<i64: 4, 3>;
func.func @reversed(%rows: memref<?xi32>, %worker: index) -> i32 attributes {tile.kernel} {
  %word = memref.load %rows[%worker] {tile.range = array<i64: 4, 3>} : memref<?xi32>
  return %word : i32
}

// -----

// CHECK: error: 'memref.load' op has tile.range = array<i64: 0, 4294967296>;
func.func @too_great(%rows: memref<?xi32>, %worker: index) -> i32 attributes {tile.kernel} {
  %word = memref.load %rows[%worker] {tile.range = array<i64: 0, 4294967296>} : memref<?xi32>
  return %word : i32
}

// -----

// CHECK: error: 'memref.load' op has tile.range = array<i64: 0, 1>;
func.func @no_integer(%rows: memref<?xf32>, %worker: index) -> f32 attributes {tile.kernel} {
  %word = memref.load %rows[%worker] {tile.range = array<i64: 0, 1>} : memref<?xf32>
  return %word : f32
}

// -----

// CHECK: error: 'memref.store' op has tile.range
func.func @no_result(%rows: memref<?xi32>, %value: i32, %worker: index) attributes {tile.kernel} {
  memref.store %value, %rows[%worker] {tile.range = array<i64: 0, 1>} : memref<?xi32>
  return
}

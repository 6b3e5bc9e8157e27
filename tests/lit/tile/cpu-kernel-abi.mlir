// RUN: llm-opt opt --tile-cpu-kernel-abi --split-input-file --verify-diagnostics %s | FileCheck %s

// Slots follow the 64-byte header in order; worker and scratch are no slots.
// CHECK-LABEL: func.func @kernel(
// CHECK-SAME:    %[[P:.*]]: !llvm.ptr, %[[W:.*]]: i32, %[[S:.*]]: !llvm.ptr) -> i32
// CHECK:         llvm.getelementptr %[[P]][64]
// CHECK:         llvm.getelementptr %[[P]][72]
// CHECK:         llvm.load {{.*}} -> f32
// CHECK:         arith.index_castui %[[W]]
// CHECK:         llvm.getelementptr %[[P]][80]
// CHECK:         llvm.load {{.*}} -> i64
// CHECK:         llvm.insertvalue %[[S]]
// CHECK:         return %{{.*}} : i32
func.func @kernel(%m: memref<?xf32>, %f: f32, %w: index {tile.worker}, %n: index, %s: memref<?xi8> {tile.scratch})
    attributes {tile.kernel} {
  %b = arith.constant 0 : i8
  memref.store %b, %s[%w] : memref<?xi8>
  memref.store %f, %m[%n] : memref<?xf32>
  return
}

// CHECK-LABEL: func.func @helper(%{{.*}}: memref<?xf32>)
func.func @helper(%m: memref<?xf32>) {
  return
}

// -----

// expected-error @below {{'func.func' op argument 0 is 'memref<4x4xf32>'; a kernel takes 1-D memrefs}}
func.func @rank(%m: memref<4x4xf32>) attributes {tile.kernel} {
  return
}

// -----

// expected-error @below {{'func.func' op argument 0 is 'i8'; memref, index, i64, i32 and f32 fit a slot}}
func.func @type(%m: i8) attributes {tile.kernel} {
  return
}

// -----

// expected-error @below {{'func.func' op is a kernel with results; kernels return nothing}}
func.func @results(%m: memref<?xf32>) -> i32 attributes {tile.kernel} {
  %c = arith.constant 0 : i32
  return %c : i32
}

// -----

// expected-error @below {{'func.func' op has several blocks; lower it before control flow}}
func.func @blocks(%m: memref<?xf32>) attributes {tile.kernel} {
  cf.br ^bb1
^bb1:
  return
}

// RUN: llm-opt opt --tile-cpu-to-llvm --split-input-file --verify-diagnostics %s | FileCheck %s

// Every dialect that the vector stage leaves goes at once.
// CHECK-LABEL: llvm.func @all
// CHECK-NOT:     arith.
// CHECK-NOT:     vector.
// CHECK-NOT:     memref.
// CHECK:         llvm.cond_br
// CHECK:         llvm.load {{.*}} -> vector<8xf32>
// CHECK:         llvm.intr.fma
// CHECK:         llvm.intr.sqrt
// CHECK:         llvm.store {{.*}} vector<8xf32>
// CHECK:         llvm.return
func.func @all(%m: memref<?xf32>, %i: index, %x: vector<8xf32>) {
  %zero = arith.constant 0 : index
  %some = arith.cmpi sgt, %i, %zero : index
  cf.cond_br %some, ^work, ^end
^work:
  %v = vector.load %m[%i] : memref<?xf32>, vector<8xf32>
  %f = math.fma %v, %x, %x : vector<8xf32>
  %s = math.sqrt %f : vector<8xf32>
  vector.store %s, %m[%i] : memref<?xf32>, vector<8xf32>
  cf.br ^end
^end:
  return
}

// -----

func.func @left_over(%x: f32) -> f32 {
  // expected-error @below {{failed to legalize operation 'math.erf' that was explicitly marked illegal}}
  %y = math.erf %x : f32
  return %y : f32
}

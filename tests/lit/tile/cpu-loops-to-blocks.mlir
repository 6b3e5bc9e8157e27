// RUN: llm-opt opt --tile-cpu-loops-to-blocks %s | FileCheck %s

// Numbers, once at least: the test is at the end, with what the next trip carries.
// CHECK-LABEL: func.func @numbers
// CHECK:         cf.br ^[[BODY:.*]](%[[LOW:.*]], %[[ZERO:.*]] : index, f32)
// CHECK:       ^[[BODY]](%[[I:.*]]: index, %[[SUM:.*]]: f32):
// CHECK:         %[[X:.*]] = memref.load %arg0[%[[I]]]
// CHECK:         %[[MORE:.*]] = arith.addf %[[SUM]], %[[X]]
// CHECK:         %[[NEXT:.*]] = arith.addi %[[I]], %[[STEP:.*]] : index
// CHECK:         %[[AGAIN:.*]] = arith.cmpi slt, %[[NEXT]], %[[HIGH:.*]] : index
// CHECK:         cf.cond_br %[[AGAIN]], ^[[BODY]](%[[NEXT]], %[[MORE]] : index, f32), ^[[AFTER:.*]](%[[MORE]] : f32)
// CHECK:       ^[[AFTER]](%[[RESULT:.*]]: f32):
// CHECK:         return %[[RESULT]]
func.func @numbers(%m: memref<?xf32>) -> f32 {
  %low = arith.constant 1 : index
  %high = arith.constant 8 : index
  %step = arith.constant 3 : index
  %zero = arith.constant 0.0 : f32
  %sum = scf.for %i = %low to %high step %step iter_args(%s = %zero) -> f32 {
    %x = memref.load %m[%i] : memref<?xf32>
    %t = arith.addf %s, %x : f32
    scf.yield %t : f32
  }
  return %sum : f32
}

// A loop inside another, and one that may not run at all: tested first.
// CHECK-LABEL: func.func @nested
// CHECK:         cf.br ^[[TEST:.*]](%arg1 : index)
// CHECK:       ^[[TEST]](%[[I:.*]]: index):
// CHECK:         %[[RUNS:.*]] = arith.cmpi slt, %[[I]], %arg2
// CHECK:         cf.cond_br %[[RUNS]], ^[[OUTER:.*]], ^[[END:.*]]
// CHECK:       ^[[OUTER]]:
// CHECK:         cf.br ^[[INNER:.*]](%{{.*}} : index)
// CHECK:       ^[[INNER]](%[[J:.*]]: index):
// CHECK:         memref.store
// CHECK:         cf.cond_br %{{.*}}, ^[[INNER]](%{{.*}} : index), ^[[LATCH:.*]]
// CHECK:       ^[[LATCH]]:
// CHECK:         cf.br ^[[TEST]]
// CHECK:       ^[[END]]:
// CHECK-NEXT:    return
func.func @nested(%m: memref<?xindex>, %low: index, %high: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %low to %high step %c1 {
    scf.for %j = %c0 to %c4 step %c1 {
      memref.store %i, %m[%j] : memref<?xindex>
    }
  }
  return
}

// No trip: the test is first, and false.
// CHECK-LABEL: func.func @never
// CHECK:         arith.cmpi slt
// CHECK:         memref.store
func.func @never(%m: memref<?xindex>) {
  %c4 = arith.constant 4 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c4 to %c4 step %c1 {
    memref.store %i, %m[%i] : memref<?xindex>
  }
  return
}

// RUN: llm-opt opt --tile-cpu-expand-math=features=avx512f %s | FileCheck %s --check-prefixes=CHECK,FMA
// RUN: llm-opt opt --tile-cpu-expand-math=features=avx512f,avx512dq %s | FileCheck %s --check-prefixes=CHECK,SCALEF
// RUN: llm-opt opt --tile-cpu-expand-math %s | FileCheck %s --check-prefixes=CHECK,PLAIN

// CHECK-LABEL: func.func @exp2
// FMA:           math.fma {{.*}} : vector<16xf32>
// The scalar goes the vector's way.
// SCALEF:        llvm.call_intrinsic "llvm.x86.avx512.mask.reduce.ps.512"
// SCALEF:        math.fma {{.*}} : vector<16xf32>
// SCALEF:        llvm.call_intrinsic "llvm.x86.avx512.mask.scalef.ps.512"
// SCALEF:        llvm.call_intrinsic "llvm.x86.avx512.mask.reduce.ps.512"
// SCALEF:        llvm.call_intrinsic "llvm.x86.avx512.mask.scalef.ps.512"
// SCALEF:        vector.extract
// PLAIN-NOT:     math.fma
// CHECK-NOT:     math.exp2
// CHECK:         return
func.func @exp2(%x: vector<16xf32>, %s: f32) -> (vector<16xf32>, f32) {
  %y = math.exp2 %x : vector<16xf32>
  %t = math.exp2 %s : f32
  return %y, %t : vector<16xf32>, f32
}

// AVX-512 converts f16 by itself, and nothing but AVX512-BF16 rounds to bf16.
// CHECK-LABEL: func.func @convert
// FMA:           arith.extf {{.*}} : vector<8xf16> to vector<8xf32>
// PLAIN-NOT:     arith.extf
// CHECK-NOT:     arith.truncf
// CHECK:         return
func.func @convert(%x: vector<8xf16>) -> vector<8xbf16> {
  %y = arith.extf %x : vector<8xf16> to vector<8xf32>
  %z = arith.truncf %y : vector<8xf32> to vector<8xbf16>
  return %z : vector<8xbf16>
}

// An instruction of its own: 1 / sqrt.
// CHECK-LABEL: func.func @rsqrt
// CHECK:         math.rsqrt {{.*}} : vector<8xf32>
func.func @rsqrt(%x: vector<8xf32>) -> vector<8xf32> {
  %y = math.rsqrt %x : vector<8xf32>
  return %y : vector<8xf32>
}

// What has no code of ours is called, element by element, narrow types in f32; the
// declaration comes once.
// CHECK-LABEL: func.func @error_function
// CHECK-NOT:     math.erf
// CHECK:         %[[X:.*]] = vector.extract %{{.*}}[0] : f32 from vector<4xf32>
// CHECK:         call @erff(%[[X]]) : (f32) -> f32
// CHECK:         call @erff
// CHECK:         call @erf(%{{.*}}) : (f64) -> f64
// CHECK:         return
func.func @error_function(%x: vector<4xf16>, %d: f64) -> (vector<4xf16>, f64) {
  %y = math.erf %x : vector<4xf16>
  %z = math.erf %d : f64
  return %y, %z : vector<4xf16>, f64
}

// Rounding is an instruction from SSE4.1 on.
// CHECK-LABEL: func.func @rounding
// FMA:           math.floor {{.*}} : vector<4xf32>
// PLAIN-COUNT-4: call @floorf
func.func @rounding(%x: vector<4xf32>) -> vector<4xf32> {
  %y = math.floor %x : vector<4xf32>
  return %y : vector<4xf32>
}

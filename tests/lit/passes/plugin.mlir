// The dialects and passes inside a stock mlir-opt.
// REQUIRES: plugin
// RUN: mlir-opt-22 --load-dialect-plugin=%plugin --load-pass-plugin=%plugin --pass-pipeline='builtin.module(attn-to-tile{rows=8 keys=16})' %s > %t.stock
// RUN: llm-opt opt --pass-pipeline='builtin.module(attn-to-tile{rows=8 keys=16})' %s > %t.own
// RUN: diff %t.own %t.stock
// RUN: FileCheck %s < %t.stock
// RUN: mlir-opt-22 --load-dialect-plugin=%plugin --load-pass-plugin=%plugin --pass-pipeline='builtin.module(attn-to-tile{rows=8 keys=16},tile-to-cpu{features=avx2,fma})' %s > %t.stock-cpu
// RUN: llm-opt opt --pass-pipeline='builtin.module(attn-to-tile{rows=8 keys=16},tile-to-cpu{features=avx2,fma})' %s > %t.own-cpu
// RUN: diff %t.own-cpu %t.stock-cpu
// RUN: FileCheck %s --check-prefix=CPU < %t.stock-cpu
// RUN: mlir-opt-22 --load-dialect-plugin=%plugin %s | FileCheck %s --check-prefix=ROUNDTRIP
// RUN: mlir-opt-22 --load-dialect-plugin=%plugin --load-pass-plugin=%plugin --help | FileCheck %s --check-prefix=HELP

// CHECK: func.func @f_attend_8(
// CHECK: tile.mma
// CHECK: func.func @f_merge(
// CPU: llvm.func @f_attend_8(%{{.*}}: !llvm.ptr, %{{.*}}: i32, %{{.*}}: !llvm.ptr) -> i32
// CPU: llvm.intr.fma
// CPU: llvm.func @f_merge(
// CPU-NOT: {{tile\.(map|load|store|mma)}}
// ROUNDTRIP: attn.attention {{.*}} mask(causal and window<40>)
// HELP: --attn-to-tile
func.func @f(%q: tensor<?x4x16xf32>, %k: tensor<?x2x16xf32>, %v: tensor<?x2x16xf32>, %s: !attn.sequences) -> tensor<?x4x16xf32> {
  %o = attn.attention %q, %k, %v, %s mask(causal and window<40>) : tensor<?x4x16xf32>, tensor<?x2x16xf32>, tensor<?x2x16xf32>, !attn.sequences -> tensor<?x4x16xf32>
  return %o : tensor<?x4x16xf32>
}

// RUN: llm-opt opt %s --attn-to-tile --remark-format=emitRemark --remarks-filter=attn-to-tile 2>&1 | FileCheck %s
// RUN: llm-opt opt %s --pass-pipeline='builtin.module(attn-to-tile{rows=8 keys=16})' --remark-format=emitRemark --remarks-filter=attn-to-tile 2>&1 | FileCheck %s --check-prefix=GIVEN

// The schedule tells why: the group, the bytes of a row, the cache of this machine.

// CHECK: remarks.mlir:[[#@LINE+8]]:8: remark: [Analysis] schedule | Category:attn-to-tile
// CHECK-SAME: rows [[FEW:[0-9]+]] (group 4, 8 KV heads together) and [[MANY:[0-9]+]] (1280 bytes a row in {{[0-9]+}} bytes of L2, register block {{[0-9]+}}), keys 64
// CHECK: func.func @f_attend_[[FEW]](
// CHECK: func.func @f_attend_[[MANY]](
// Tiles given by hand are no decision.
// GIVEN-NOT: remark:
func.func @f(%q: tensor<?x32x128xf32>, %kv: !attn.kv_cache<8x128xf32, page = 16>, %seq: !attn.sequences)
    -> tensor<?x32x128xf32> {
  %o = attn.attention %q, %kv, %seq mask(causal)
       : tensor<?x32x128xf32>, !attn.kv_cache<8x128xf32, page = 16>, !attn.sequences -> tensor<?x32x128xf32>
  return %o : tensor<?x32x128xf32>
}

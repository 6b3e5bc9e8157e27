// RUN: llm-opt opt --tile-cpu-expand-math %s -split-input-file -verify-diagnostics

func.func @wide(%x: f128) -> f128 {
  // expected-error @below {{'math.sin' op on 'f128' has no kernel on the CPU; the functions of docs/attn-dialect.md in f16, bf16, f32 and f64 have}}
  %y = math.sin %x : f128
  return %y : f128
}

// -----

func.func @cosf(%x: f32) -> f32 {
  // expected-error @below {{'math.cos' op calls C's 'cosf', which is the name of a function of this module; rename that}}
  %y = math.cos %x : f32
  return %y : f32
}

// RUN: llm-opt opt %s -split-input-file -verify-diagnostics

// Mask and score regions.

func.func @mask_arguments(%q: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op mask region 0 must take ('index', 'index', 'index', 'index'), got ('index', 'index')}}
  %o = attn.attention %q, %q, %q mask(custom) where {
      ^bb0(%i: index, %j: index):
        %t = arith.constant true
        attn.yield %t : i1
      } : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @mask_argument_types(%q: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op mask region 0 must take ('index', 'index', 'index', 'index'), got ('index', 'index', 'i32', 'i32')}}
  %o = attn.attention %q, %q, %q mask(custom) where {
      ^bb0(%b: index, %h: index, %i: i32, %j: i32):
        %t = arith.constant true
        attn.yield %t : i1
      } : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @score_arguments(%q: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op score region 0 must take ('f32', 'index', 'index', 'index', 'index'), got ('index', 'index', 'index', 'index')}}
  %o = attn.attention %q, %q, %q score {
      ^bb0(%x: index, %h: index, %i: index, %j: index):
        %s = arith.constant 0.0 : f32
        attn.yield %s : f32
      } : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @mask_yields_f32(%q: tensor<?x?x8x64xf32>) {
  %o = attn.attention %q, %q, %q mask(custom) where {
      ^bb0(%b: index, %h: index, %i: index, %j: index):
        %f = arith.constant 1.0 : f32
        // expected-error @below {{'attn.yield' op of mask region 0 must yield 'i1', got 'f32'}}
        attn.yield %f : f32
      } : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @score_yields_i1(%q: tensor<?x?x8x64xf32>) {
  %o = attn.attention %q, %q, %q score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %t = arith.constant true
        // expected-error @below {{'attn.yield' op of score region 0 must yield 'f32', got 'i1'}}
        attn.yield %t : i1
      } : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @foreign_op(%q: tensor<?x?x8x64xf32>) {
  %o = attn.attention %q, %q, %q mask(custom) where {
      ^bb0(%b: index, %h: index, %i: index, %j: index):
        %c = arith.constant 0 : index
        // expected-error @below {{'tensor.dim' op is not allowed in a mask or score region; arith and math ops on scalars are}}
        %n = tensor.dim %q, %c : tensor<?x?x8x64xf32>
        %v = arith.cmpi slt, %i, %n : index
        attn.yield %v : i1
      } : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @control_flow(%q: tensor<?x?x8x64xf32>) {
  %o = attn.attention %q, %q, %q mask(custom) where {
      ^bb0(%b: index, %h: index, %i: index, %j: index):
        %t = arith.constant true
        // expected-error @below {{'scf.if' op is not allowed in a mask or score region; arith and math ops on scalars are}}
        %v = scf.if %t -> i1 {
          scf.yield %t : i1
        } else {
          scf.yield %t : i1
        }
        attn.yield %v : i1
      } : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @side_effect(%q: tensor<?x?x8x64xf32>, %m: memref<i1>) {
  %o = attn.attention %q, %q, %q mask(custom) where {
      ^bb0(%b: index, %h: index, %i: index, %j: index):
        %t = arith.constant true
        // expected-error @below {{'memref.store' op is not allowed in a mask or score region; arith and math ops on scalars are}}
        memref.store %t, %m[] : memref<i1>
        attn.yield %t : i1
      } : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @vector_result(%q: tensor<?x?x8x64xf32>) {
  %o = attn.attention %q, %q, %q score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        // expected-error @below {{'arith.constant' op yields 'vector<4xf32>'; index, integers of up to 64 bits, f16, bf16, f32 and f64 are allowed in a mask or score region}}
        %x = arith.constant dense<1.0> : vector<4xf32>
        attn.yield %s : f32
      } : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @vector_captured(%q: tensor<?x?x8x64xf32>, %c: tensor<4xf32>) {
  %o = attn.attention %q, %q, %q score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        // expected-error @below {{'arith.addf' op yields 'tensor<4xf32>'; index, integers of up to 64 bits, f16, bf16, f32 and f64 are allowed in a mask or score region}}
        %x = arith.addf %c, %c : tensor<4xf32>
        attn.yield %s : f32
      } : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @tensor_operand(%q: tensor<?x?x8x64xf32>, %c: tensor<4xf32>) {
  %o = attn.attention %q, %q, %q score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        // expected-error @below {{'arith.cmpf' op yields 'tensor<4xi1>'; index, integers of up to 64 bits, f16, bf16, f32 and f64 are allowed in a mask or score region}}
        %x = arith.cmpf oeq, %c, %c : tensor<4xf32>
        attn.yield %s : f32
      } : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @two_blocks(%q: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op region #0 ('bodies') failed to verify constraint: region with 1 blocks}}
  %o = attn.attention %q, %q, %q mask(custom) where {
      ^bb0(%b: index, %h: index, %i: index, %j: index):
        cf.br ^bb1
      ^bb1:
        %t = arith.constant true
        attn.yield %t : i1
      } : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @empty_region(%q: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op region #0 ('bodies') failed to verify constraint: region with 1 blocks}}
  %o = attn.attention %q, %q, %q mask(custom) where {
      } : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @other_terminator(%q: tensor<?x?x8x64xf32>) {
  // expected-error @below {{'attn.attention' op mask region 0 must end with attn.yield, got ub.unreachable}}
  %o = attn.attention %q, %q, %q mask(custom) where {
      ^bb0(%b: index, %h: index, %i: index, %j: index):
        ub.unreachable
      } : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @yield_elsewhere(%t: i1) {
  // expected-error @below {{'attn.yield' op expects parent op 'attn.attention'}}
  attn.yield %t : i1
}

// -----

func.func @no_meaning_in_reals(%q: tensor<?x?x8x64xf32>) {
  %o = attn.attention %q, %q, %q score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        // expected-error @below {{'arith.bitcast' op is not allowed in a mask or score region; use ops on scalars that docs/attn-dialect.md lists}}
        %n = arith.bitcast %s : f32 to i32
        attn.yield %s : f32
      } : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @two_results(%q: tensor<?x?x8x64xf32>) {
  %o = attn.attention %q, %q, %q score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        // expected-error @below {{'math.sincos' op is not allowed in a mask or score region; use math.sin and math.cos}}
        %x, %y = math.sincos %s : f32
        attn.yield %s : f32
      } : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @clamp(%q: tensor<?x?x8x64xf32>) {
  %o = attn.attention %q, %q, %q score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        // expected-error @below {{'math.clampf' op is not allowed in a mask or score region; use arith.maximumf and arith.minimumf}}
        %x = math.clampf %s to [%s, %s] : f32
        attn.yield %s : f32
      } : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @normal(%q: tensor<?x?x8x64xf32>) {
  %o = attn.attention %q, %q, %q score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        // expected-error @below {{'math.isnormal' op is not allowed in a mask or score region; use math.isfinite, math.absf and arith.cmpf}}
        %x = math.isnormal %s : f32
        attn.yield %s : f32
      } : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// -----

func.func @narrow_float(%q: tensor<?x?x8x64xf32>) {
  %o = attn.attention %q, %q, %q score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        // expected-error @below {{'arith.truncf' op yields 'f8E4M3FN'; index, integers of up to 64 bits, f16, bf16, f32 and f64 are allowed in a mask or score region}}
        %x = arith.truncf %s : f32 to f8E4M3FN
        attn.yield %s : f32
      } : tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32>, tensor<?x?x8x64xf32> -> tensor<?x?x8x64xf32>
  return
}

// A score and a mask of one's own: distance decay, and pairs of blocks of 64.
func.func @custom(%q: tensor<?x4x64xf32>, %k: tensor<?x4x64xf32>, %v: tensor<?x4x64xf32>,
                  %seq: !attn.sequences, %decay: f32) -> tensor<?x4x64xf32> {
  %o = attn.attention %q, %k, %v, %seq mask(custom and not sink<1>)
       where {
       ^bb0(%b: index, %h: index, %i: index, %j: index):
         %c64 = arith.constant 64 : index
         %bi = arith.divsi %i, %c64 : index
         %bj = arith.divsi %j, %c64 : index
         %same = arith.cmpi eq, %bi, %bj : index
         attn.yield %same : i1
       }
       scale(0.125)
       score {
       ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
         %d = arith.subi %i, %j : index
         %di = arith.index_cast %d : index to i32
         %df = arith.sitofp %di : i32 to f32
         %w = arith.mulf %df, %decay : f32
         %r = arith.subf %s, %w : f32
         attn.yield %r : f32
       }
       : tensor<?x4x64xf32>, tensor<?x4x64xf32>, tensor<?x4x64xf32>, !attn.sequences
         -> tensor<?x4x64xf32>
  return %o : tensor<?x4x64xf32>
}

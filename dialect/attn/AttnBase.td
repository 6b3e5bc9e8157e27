// The attn dialect: what an attention computes, never how.
#ifndef LLMOPT_DIALECT_ATTN_ATTNBASE
#define LLMOPT_DIALECT_ATTN_ATTNBASE

include "mlir/IR/OpBase.td"

def Attn_Dialect : Dialect {
  let name = "attn";
  let cppNamespace = "::llmopt::attn";
  let summary = "attention variants: head sharing, masks, score modification, KV layout";
  let description = [{
    One op, `attn.attention`, says what to compute; a mask algebra says who sees whom.
    For query i and key j of one sequence and head:

        s(i,j) = scale * dot(q_i, k_j)
        s(i,j) = the score modifications of the op, in the order written
        s(i,j) = -inf where the mask hides j from i
        o_i    = sum_j softmax(s(i,.))_j * v_j

    A row that sees no key yields 0 and a log-sum-exp of -inf. A score of -inf after the
    modifications counts as unseen. Scores and sums are float32. Where K and V are f16 or
    bf16, each weight exp(s - running maximum) is rounded to that format for its product
    with v_j; the sum that divides the output is that of the unrounded weights.

    *Positions.* Keys have positions 0 .. kv_len-1. Query i of a sequence has position
    i + (kv_len - q_len): the last query stands at the last key. Masks and custom regions
    speak of positions. A query position may be negative (more queries than keys).
  }];
  // What masks and score modifications emit.
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
  let extraClassDeclaration = [{
  private:
    void registerAttributes();
    void registerTypes();
    void registerOperations();
  }];
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
}

#endif

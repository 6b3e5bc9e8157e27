// The two interfaces by which a mask or a score modification enters the language: a new
// one is one attribute that implements one of them, in this dialect or in another.
#ifndef LLMOPT_DIALECT_ATTN_ATTNINTERFACES
#define LLMOPT_DIALECT_ATTN_ATTNINTERFACES

include "mlir/IR/OpBase.td"

def Attn_MaskAttrInterface : AttrInterface<"MaskAttrInterface"> {
  let cppNamespace = "::llmopt::attn";
  let description = [{
    A mask says of a query and a key of one sequence and head whether the key is visible.
    It says so twice: pair by pair, and for a range of queries as key intervals from which
    loops, tile classes and work plans are made without any mask tensor.
  }];
  let methods = [
    InterfaceMethod<[{
      Emit IR that computes an i1: key `e.keyPosition()` is visible to the query at
      `e.queryPosition()`. Only elementwise arith and math ops may be emitted.
    }], "::mlir::Value", "emitPredicate", (ins "::llmopt::attn::PairEmitter &":$e)>,
    InterfaceMethod<[{
      The keys that MAY be visible to some query of a range and those that are SURELY
      visible to every one of them. `may` must contain every visible key; `surely` must
      contain none that some query of the range does not see. Tight sets are rewarded:
      tiles outside `may` are not visited, tiles inside `surely` evaluate no mask.
    }], "::llmopt::attn::MaskBounds", "getBounds",
      (ins "const ::llmopt::attn::BoundContext &":$context)>,
    InterfaceMethod<[{
      Append the run-time numbers this mask uses, in a fixed order. A number is an
      integer attribute (a default that a caller may override at run time) or an
      `#attn.arg` (an operand of the op: a scalar, or a tensor with one value a head).
    }], "void", "collectNumbers",
      (ins "::llvm::SmallVectorImpl<::llmopt::attn::NumberUse> &":$numbers), "", [{}]>,
  ];
}

def Attn_ScoreAttrInterface : AttrInterface<"ScoreAttrInterface"> {
  let cppNamespace = "::llmopt::attn";
  let description = [{
    A score modification maps the scaled score of a pair to a new score.
  }];
  let methods = [
    InterfaceMethod<[{
      Emit IR (elementwise arith and math ops on f32) that maps `score` to the modified
      score of the pair that `e` describes.
    }], "::mlir::Value", "emitScore",
      (ins "::llmopt::attn::PairEmitter &":$e, "::mlir::Value":$score)>,
    InterfaceMethod<"Append the run-time numbers this modification uses.",
      "void", "collectNumbers",
      (ins "::llvm::SmallVectorImpl<::llmopt::attn::NumberUse> &":$numbers), "", [{}]>,
  ];
}

#endif

#ifndef LLMOPT_DIALECT_ATTN_ATTNATTRS
#define LLMOPT_DIALECT_ATTN_ATTNATTRS

include "dialect/attn/AttnBase.td"
include "dialect/attn/AttnEnums.td"
include "dialect/attn/AttnInterfaces.td"
include "mlir/IR/AttrTypeBase.td"

class Attn_Attr<string name, string attrMnemonic, list<Trait> traits = []>
    : AttrDef<Attn_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
}

// A number: an integer (or float) default, or `argN`.
def Attn_ArgAttr : Attn_Attr<"Arg", "arg"> {
  let summary = "operand N of the op's `args`";
  let parameters = (ins "unsigned":$index);
  let assemblyFormat = "`<` $index `>`";
}

//===----------------------------------------------------------------------===//
// Masks
//===----------------------------------------------------------------------===//

class Attn_Mask<string name, string mnemonic>
    : Attn_Attr<name, mnemonic, [DeclareAttrInterfaceMethods<Attn_MaskAttrInterface, ["collectNumbers"]>]>;

def Attn_CausalAttr : Attn_Mask<"Causal", "causal"> {
  let summary = "key j <= query position";
  let description = [{
    `causal`: bottom-right: query i of q_len sees keys j <= i + (kv_len - q_len).
    `causal<top_left>`: sees keys j <= i.
  }];
  let parameters = (ins DefaultValuedParameter<"::llmopt::attn::Alignment", "::llmopt::attn::Alignment::BottomRight">:$alignment);
  let hasCustomAssemblyFormat = 1;
}

def Attn_WindowAttr : Attn_Mask<"Window", "window"> {
  let summary = "keys near the query position p";
  let description = [{
    `window<W>`: p - W + 1 <= j <= p: at most W keys, the current one counted.
    `window<left = L, right = R>`: p - L <= j <= p + R; -1 leaves a side open.
    W, L, R are run-time numbers: integers, or `argN` (a scalar or one value a head).
  }];
  let parameters = (ins "::mlir::Attribute":$left, "::mlir::Attribute":$right, "bool":$twoSided);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Attn_SinkAttr : Attn_Mask<"Sink", "sink"> {
  let summary = "the first n keys: j < n (StreamingLLM)";
  let parameters = (ins "::mlir::Attribute":$count);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Attn_DilatedAttr : Attn_Mask<"Dilated", "dilated"> {
  let summary = "every n-th key counted from the query: (p - j) mod n == 0";
  let description = [{ Usually with a window: `window<1024> and dilated<4>`. The remainder is the floored one. }];
  let parameters = (ins "::mlir::Attribute":$stride);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Attn_ChunkedAttr : Attn_Mask<"Chunked", "chunked"> {
  let summary = "keys of the query's own chunk: floor(p / n) == floor(j / n)";
  let parameters = (ins "::mlir::Attribute":$size);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Attn_DenseMaskAttr : Attn_Mask<"DenseMask", "dense"> {
  let summary = "a boolean tensor: `dense<argN>`, true = visible";
  let description = [{ The operand is a tensor<Bx Hx Qx Kxi1> (also i8, 0 = hidden), each of its four extents broadcast
    where it is 1, indexed by batch, query head, query index and key. }];
  let parameters = (ins "unsigned":$arg);
  let hasCustomAssemblyFormat = 1;
}

def Attn_CustomMaskAttr : Attn_Mask<"CustomMask", "custom"> {
  let summary = "the op's mask region N: `custom` or `custom<N>`";
  let parameters = (ins DefaultValuedParameter<"unsigned", "0">:$region);
  let hasCustomAssemblyFormat = 1;
}

def Attn_AndAttr : Attn_Mask<"And", "and"> {
  let summary = "visible where all operands say so";
  let parameters = (ins ArrayRefParameter<"::mlir::Attribute">:$operands);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Attn_OrAttr : Attn_Mask<"Or", "or"> {
  let summary = "visible where some operand says so";
  let parameters = (ins ArrayRefParameter<"::mlir::Attribute">:$operands);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Attn_NotAttr : Attn_Mask<"Not", "not"> {
  let summary = "visible where the operand says hidden";
  let parameters = (ins "::mlir::Attribute":$operand);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

//===----------------------------------------------------------------------===//
// Score modifications
//===----------------------------------------------------------------------===//

class Attn_Score<string name, string mnemonic>
    : Attn_Attr<name, mnemonic, [DeclareAttrInterfaceMethods<Attn_ScoreAttrInterface, ["collectNumbers"]>]>;

def Attn_SoftcapAttr : Attn_Score<"Softcap", "softcap"> {
  let summary = "s -> c * tanh(s / c); c <= 0 leaves s (Gemma 2)";
  let parameters = (ins "::mlir::Attribute":$cap);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Attn_BiasAttr : Attn_Score<"Bias", "bias"> {
  let summary = "s -> s + tensor element; `bias(argN)`, -inf hides the key";
  let description = [{ The operand is a rank-4 tensor of f32, f16 or bf16, indexed by batch, query head, query index, key, each
    extent broadcast where it is 1. }];
  let parameters = (ins "unsigned":$arg);
  let hasCustomAssemblyFormat = 1;
}

def Attn_AlibiAttr : Attn_Score<"Alibi", "alibi"> {
  let summary = "s -> s + slope * (j - p); `alibi(argN)`: one f32 slope a head (Press et al., arXiv:2108.12409)";
  let parameters = (ins "::mlir::Attribute":$slope);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Attn_CustomScoreAttr : Attn_Score<"CustomScore", "custom_score"> {
  let summary = "the op's score region N";
  let parameters = (ins "unsigned":$region);
  let assemblyFormat = "`<` $region `>`";
}

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

def Attn_SplitAttr : Attn_Attr<"Split", "split"> {
  let summary = "how the keys of a sequence are split: `none`, `count = N`, `length = N`";
  let description = [{ Left out, the planner chooses. `count`: N splits of equal length. `length`: one split for each N keys,
    counted from key 0. }];
  let parameters = (ins DefaultValuedParameter<"int64_t", "0">:$count, DefaultValuedParameter<"int64_t", "0">:$length);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Attn_ScheduleAttr : Attn_Attr<"Schedule", "schedule"> {
  let summary = "wishes about the schedule; what is left out the compiler chooses";
  let description = [{ `rows = N` and `keys = N`: tile sizes; `batch_invariant`: the bits of a row depend on that row alone,
    in any batch and in prefill, extend and decode alike. }];
  let parameters = (ins DefaultValuedParameter<"int64_t", "0">:$rows, DefaultValuedParameter<"int64_t", "0">:$keys,
                        DefaultValuedParameter<"bool", "false">:$batchInvariant);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

#endif

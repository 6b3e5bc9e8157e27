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

// A number is an integer (or float) default, or `argN`. In the text of an attribute or
// clause both are written bare: `window<4096>`, `window<arg1>`.
def Attn_ArgAttr : Attn_Attr<"Arg", "arg"> {
  let summary = "operand N of the op's `args`";
  let description = [{
    Stands where a number may stand; written `argN` inside another attribute or clause,
    `#attn.arg<N>` alone. The operand is a scalar or a rank-1 tensor with one value for
    each query head.
  }];
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
    `causal`: aligned bottom-right: query i of q_len sees keys j <= i + (kv_len - q_len).
    `causal<top_left>`: sees keys j <= i, whatever the lengths.
  }];
  let parameters = (ins DefaultValuedParameter<"::llmopt::attn::Alignment", "::llmopt::attn::Alignment::BottomRight">:$alignment);
  let hasCustomAssemblyFormat = 1;
}

def Attn_WindowAttr : Attn_Mask<"Window", "window"> {
  let summary = "keys near the query position p";
  let description = [{
    `window<W>`: p - W + 1 <= j <= p: at most W keys, the current one counted; W >= 1
    (at run time too; below 1 in a tensor no key is left, by the same formula).
    `window<left = L, right = R>`: p - L <= j <= p + R; a side of -1 (any negative value
    at run time) is open.
    W, L, R are run-time numbers: integers, or `argN` (a scalar or one value a head).
  }];
  let parameters = (ins "::mlir::Attribute":$left, "::mlir::Attribute":$right, "bool":$twoSided);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let builders = [
    AttrBuilder<(ins "int64_t":$size), [{
      auto i64 = ::mlir::IntegerType::get($_ctxt, 64);
      return $_get($_ctxt, ::mlir::IntegerAttr::get(i64, size), ::mlir::Attribute(), false);
    }]>
  ];
  let extraClassDeclaration = [{
    /// W of the one-sided form.
    ::mlir::Attribute getSize() const { return getLeft(); }
  }];
}

def Attn_SinkAttr : Attn_Mask<"Sink", "sink"> {
  let summary = "the first n keys: j < n (StreamingLLM, arXiv:2309.17453)";
  let description = [{ n >= 0 is a run-time number (a negative one at run time shows no key); `sink<4> or window<1024>` is StreamingLLM's mask. }];
  let parameters = (ins "::mlir::Attribute":$count);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Attn_DilatedAttr : Attn_Mask<"Dilated", "dilated"> {
  let summary = "every n-th key counted from the query: (p - j) mod n == 0";
  let description = [{
    Usually with a window: `window<1024> and dilated<4>`. n >= 1 is a run-time number
    (below 1 at run time counts as 1); keys after the query count too.
  }];
  let parameters = (ins "::mlir::Attribute":$stride);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Attn_ChunkedAttr : Attn_Mask<"Chunked", "chunked"> {
  let summary = "keys of the query's own chunk: floor(p / n) == floor(j / n)";
  let description = [{
    Llama 4's local layers are `causal and chunked<8192>`. n >= 1 is a run-time number
    (below 1 at run time counts as 1). A query at a negative position sees no key.
  }];
  let parameters = (ins "::mlir::Attribute":$size);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Attn_DenseMaskAttr : Attn_Mask<"DenseMask", "dense"> {
  let summary = "a boolean tensor: `dense<argN>`, true = visible";
  let description = [{
    The operand is a rank-4 tensor of i1 or i8 (0 = hidden), (B, H, Lq, Lkv), indexed by
    batch, query head, query index (0 is the sequence's first query) and key; an extent
    of 1 is broadcast.
  }];
  let parameters = (ins "unsigned":$arg);
  let hasCustomAssemblyFormat = 1;
}

def Attn_TreeAttr : Attn_Mask<"Tree", "tree"> {
  let summary = "ancestors in a tree of drafted tokens: `tree<argN>`";
  let description = [{
    Speculative verify (SpecInfer, arXiv:2305.09781): the queries of a sequence are a token
    and drafts that branch behind it, parents before children; their keys are its last Lq
    keys, in the same order. The operand holds a set for each query, as an i64: (T) for
    ragged queries, (B, Lq) for dense ones. With base = Lkv - Lq, query i sees key j if
    j <= base + i and, where key j is one of the first 64 queries, bit j - base of its set
    is set: own token and ancestors. -1 is `causal`, so prefill and decode rows may run on
    the same kernel as trees.

    Positions are not slots then, for all masks and score modifications of the op: key
    base + k stands at base + (how many of the sequence's queries before the k-th are in the
    set), and query i at that of its own key. So `tree<arg0> and window<W>` counts tokens of
    the branch. `dense` and `bias` are indexed by slot as ever. An op has one such operand.
  }];
  let parameters = (ins "unsigned":$arg);
  let hasCustomAssemblyFormat = 1;
}

def Attn_CustomMaskAttr : Attn_Mask<"CustomMask", "custom"> {
  let summary = "the op's mask region N: `custom` or `custom<N>`";
  let description = [{
    The region takes (batch, query head, query position, key position), all index, and
    yields i1. It bounds loops where its comparisons are affine in the positions.
  }];
  let parameters = (ins DefaultValuedParameter<"unsigned", "0">:$region);
  let hasCustomAssemblyFormat = 1;
}

class Attn_NaryMask<string name, string mnemonic> : Attn_Mask<name, mnemonic> {
  let parameters = (ins ArrayRefParameter<"::mlir::Attribute">:$operands);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The masks joined; operands of the same kind are taken apart, one mask alone
    /// comes back as it is. Needs one mask or more.
    static ::mlir::Attribute join(::mlir::MLIRContext *context,
                                  ::llvm::ArrayRef<::mlir::Attribute> masks);
  }];
}

def Attn_AndAttr : Attn_NaryMask<"And", "and"> {
  let summary = "visible where all operands say so";
  let description = [{ Written `a and b and c` in a mask clause, `#attn.and<a, b, c>` alone. }];
}

def Attn_OrAttr : Attn_NaryMask<"Or", "or"> {
  let summary = "visible where some operand says so";
  let description = [{ Written `a or b or c` in a mask clause, `#attn.or<a, b, c>` alone. }];
}

def Attn_NotAttr : Attn_Mask<"Not", "not"> {
  let summary = "visible where the operand says hidden";
  let description = [{ Written `not a` in a mask clause, `#attn.not<a>` alone. }];
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
  let summary = "s -> c * tanh(s / c); c <= 0 leaves s (Gemma 2, arXiv:2408.00118)";
  let description = [{
    c is a run-time number: a finite float from 0 (off), or `argN` (f32, a scalar or one
    value a head). A negative number for all heads is refused.
  }];
  let parameters = (ins "::mlir::Attribute":$cap);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Attn_BiasAttr : Attn_Score<"Bias", "bias"> {
  let summary = "s -> s + tensor element: `bias(argN)`, -inf hides the key";
  let description = [{
    The operand is a rank-4 tensor of f32, f16 or bf16, (B, H, Lq, Lkv), indexed by batch,
    query head, query index (0 is the sequence's first query) and key; an extent of 1 is
    broadcast.
  }];
  let parameters = (ins "unsigned":$arg);
  let hasCustomAssemblyFormat = 1;
}

def Attn_AlibiAttr : Attn_Score<"Alibi", "alibi"> {
  let summary = "s -> s + slope * (j - p) (ALiBi, arXiv:2108.12409)";
  let description = [{
    `alibi(argN)`: f32, a slope for each head (or a scalar for all); `alibi(0.25)`: a
    default for all heads. A key after the query gets a positive addend.
  }];
  let parameters = (ins "::mlir::Attribute":$slope);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Attn_CustomScoreAttr : Attn_Score<"CustomScore", "custom_score"> {
  let summary = "the op's region N, a score region";
  let description = [{
    The region takes (score f32; batch, query head, query position, key position, all
    index) and yields f32. N counts all regions of the op: mask regions come first.
  }];
  let parameters = (ins "unsigned":$region);
  let assemblyFormat = "`<` $region `>`";
}

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

def Attn_SplitAttr : Attn_Attr<"Split", "split"> {
  let summary = "how the keys of a sequence are split: `none`, `count = N`, `length = N`";
  let description = [{
    Left out, the planner chooses. `count`: N splits of equal length. `length`: one split
    for each N keys, counted from key 0. `none` is a count of 1.
  }];
  let parameters = (ins DefaultValuedParameter<"int64_t", "0">:$count, DefaultValuedParameter<"int64_t", "0">:$length);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Attn_ScheduleAttr : Attn_Attr<"Schedule", "schedule"> {
  let summary = "wishes about the schedule; what is left out the compiler chooses";
  let description = [{
    `rows = N` and `keys = N`: tile sizes, 1 or more (0 in C++: not given).
    `batch_invariant`: the bits of a row depend on that row alone, in any batch and in
    prefill, extend and decode alike; a split by count contradicts it.
  }];
  let parameters = (ins DefaultValuedParameter<"int64_t", "0">:$rows, DefaultValuedParameter<"int64_t", "0">:$keys,
                        DefaultValuedParameter<"bool", "false">:$batchInvariant);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

#endif

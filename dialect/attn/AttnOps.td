#ifndef LLMOPT_DIALECT_ATTN_ATTNOPS
#define LLMOPT_DIALECT_ATTN_ATTNOPS

include "dialect/attn/AttnTypes.td"
include "dialect/attn/AttnAttrs.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Attn_Op<string mnemonic, list<Trait> traits = []> : Op<Attn_Dialect, mnemonic, traits>;

def Attn_AttentionOp : Attn_Op<"attention", [AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "scaled dot-product attention over dense, ragged or paged keys and values";
  let description = [{
    ```mlir
    // Mistral-7B decode: GQA 32/8, sliding window, paged bf16 cache.
    %o = attn.attention %q, %kv, %seq mask(causal and window<4096>) scale(0.08838835)
         : tensor<?x32x128xbf16>, !attn.kv_cache<8x128xbf16, page = 16>, !attn.sequences
           -> tensor<?x32x128xbf16>
    // Encoder with padded keys, log-sum-exp wanted.
    %o, %lse = attn.attention %q, %k, %v, %seq
         : tensor<?x?x16x64xf32>, tensor<?x?x16x64xf32>, tensor<?x?x16x64xf32>, !attn.sequences
           -> tensor<?x?x16x64xf32>, tensor<?x?x16xf32>
    // Own score modification after a soft cap; a bias tensor and a window for each head.
    %o = attn.attention %q, %k, %v args(%bias, %w : tensor<1x8x?x?xf32>, tensor<8xi32>)
         mask(causal and (sink<4> or window<arg1>)) scale(0.125) softcap(30.0)
         score { ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
                 ... attn.yield %s2 : f32 }
         bias(arg0)
         : ...
    ```

    *Operands.* Query: dense (B, Lq, H, D) or ragged (T, H, D). Keys and values: dense
    (B, Lkv, Hkv, D) and (B, Lkv, Hkv, Dv), ragged (T, Hkv, D) and (T, Hkv, Dv), or one
    `!attn.kv_cache`. f32, f16 or bf16, all three alike. Heads and head dimensions are
    static, all other extents may be dynamic. H is a multiple of Hkv; query head h reads
    KV head h / (H / Hkv). D and Dv are 1 to 576. `!attn.sequences` is needed by ragged
    and paged forms and tells valid key lengths of dense ones. Lengths of 0 are legal.

    *Results.* As the query, with Dv for D; and, if asked for, the natural log-sum-exp of
    the masked, scaled scores in f32, (B, Lq, H) or (T, H). A row that sees no key is 0,
    its log-sum-exp -inf. NaN in Q, K or V reaches the rows that see it.

    *Clauses*, after the operands, in any order but for the score modifications, which
    act in the order written:
    - `args(%a, ... : types)`: operands that other clauses name as arg0, arg1, ...: each
      is named by one clause or more. A number is a scalar (index, i32, i64; f32) or has
      a value for each query head (tensor<Hxi32>, tensor<Hxi64>; tensor<Hxf32>).
      An i64 of a head may be as large as it likes, say to give that head no window:
      beyond 32 bits it counts as the nearest that they hold.
    - `mask(expression)`: masks joined by `not`, `and`, `or`, which bind in this order,
      and parentheses; a mask of another dialect is written `#dialect.attr`. Left out,
      every key is visible.
    - `where {...}`: the region of `custom`, or of `custom<0>`, `custom<1>`, ... in order:
      (batch, query head, query position, key position) -> i1.
      Integer division by 0 yields 0 there, and the smallest integer by -1 wraps.
    - `scale(x)`: a float or argN; 1/sqrt(D) when left out.
    - `softcap(x)`, `bias(argN)`, `alibi(x)`, `score {...}`, `score(#dialect.attr)`:
      score modifications. The region: (score, batch, query head, query position, key
      position) -> f32.
    - `sink(argN)`: tensor<Hxf32>, a learned logit for each head that enters the softmax
      denominator only. The log-sum-exp result excludes it, so that results can be merged.
    - `split(...)`, `schedule(...)`: see the attributes `split` and `schedule`.

    Regions hold ops on scalars (index, integers of up to 64 bits, f16, bf16, f32, f64), and
    may use scalars from outside: constants and arguments of the function. A call gives the
    latter their values: integers that their type and i32 hold (i1: 0 or 1), f64 whole, other
    reals in f32, rounded to their type. Each op computes in its type: an integer wraps (index has
    64 bits), a float beyond its type's range is infinite. An infinite score makes its rows
    NaN, a score of -inf hides its key. The ops are

    - of `arith`: constant, select; addf, cmpf, divf, extf, fptosi, fptoui, maximumf,
      maxnumf, minimumf, minnumf, mulf, negf, remf, subf, truncf; addi, andi, ceildivsi,
      ceildivui, cmpi, divsi, divui, extsi, extui, floordivsi, index_cast, index_castui,
      maxsi, maxui, minsi, minui, muli, ori, remsi, remui, shli, shrsi, shrui, sitofp,
      subi, trunci, uitofp, xori;
    - of `math`, as C has them for every argument, huge ones, infinities and NaN included:
      absf, acos, acosh, asin, asinh, atan, atan2, atanh, cbrt, ceil, copysign, cos, cosh,
      erf, erfc, exp, exp2, expm1, floor, fma, fpowi, isfinite, isinf, isnan, log, log10,
      log1p, log2, powf (x^0 is 1 for every x), round, roundeven, rsqrt, sin, sinh, sqrt,
      tan, tanh, trunc; absi, ctlz, ctpop, cttz, ipowi (a negative power rounds 1 / x^n
      towards 0).

    On the CPU exp2, exp, tanh, log, log2, sinh, cosh and powf of f32 are vector code, and
    rounding, square root and the like are instructions; the others call libm for each
    score. `math.fma` rounds once where the CPU has the instruction, else twice.

    Scale, soft cap, window and the like are defaults: a compiled kernel takes other
    values at run time without compiling again.

    *Spec functions*, which are compiled, hold one attention, with or without an append to
    its cache before it; or one append; or one merge; and constants for regions. Arrays and
    numbers of a call are named after the operands, so each operand is an argument of the
    function, and one of its own: no constant, and no argument that is another operand. The
    function returns results of the op, or nothing. Arguments that no op reads are no part
    of the call.

    *Effects.* Attention on a cache reads it; on tensors it has no effects.
  }];
  let arguments = (ins AnyType:$query, AnyType:$key, Optional<AnyType>:$value,
    Optional<Attn_SequencesType>:$sequences, Variadic<AnyType>:$args,
    OptionalAttr<AnyAttr>:$mask, OptionalAttr<AnyAttr>:$scale, OptionalAttr<ArrayAttr>:$scores,
    OptionalAttr<Attn_ArgAttr>:$sink, OptionalAttr<Attn_SplitAttr>:$split,
    OptionalAttr<Attn_ScheduleAttr>:$schedule);
  let results = (outs AnyRankedTensor:$output, Optional<AnyRankedTensor>:$lse);
  let regions = (region VariadicRegion<SizedRegion<1>>:$bodies);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// The paged cache, or null for dense and ragged keys.
    ::llmopt::attn::KvCacheType getCacheType();
    ::mlir::RankedTensorType getQueryType();
    ::mlir::Type getElementType();
    bool isRaggedQuery();
    bool isRaggedKv();
    bool isPaged() { return bool(getCacheType()); }
    int64_t getQueryHeads();
    int64_t getKvHeads();
    int64_t getGroup() { return getQueryHeads() / getKvHeads(); }
    int64_t getQkDim();
    int64_t getVDim();
    /// The mask, or null when every key is visible.
    ::llmopt::attn::MaskAttrInterface getMaskInterface();
    /// The scale clause, or 1/sqrt(D) as an f64 attribute: FloatAttr or ArgAttr.
    ::mlir::Attribute getScaleOrDefault();
    /// All run-time numbers of scale (owner: null attribute), mask and scores, in order.
    /// Equal attributes share their numbers, which come once.
    ::llvm::SmallVector<::llmopt::attn::NumberUse> getNumbers();
    /// Mask regions come first among the bodies, score regions after them.
    unsigned getNumMaskRegions();
  }];
}

def Attn_MergeOp : Attn_Op<"merge", [Pure]> {
  let summary = "combine n partial attention results over disjoint keys";
  let description = [{
    ```mlir
    %o, %lse = attn.merge %po, %plse : tensor<?x?x32x128xf32>, tensor<?x?x32xf32>
                 -> tensor<?x32x128xbf16>, tensor<?x32xf32>
    ```
    Partials are stacked in the first dimension: outputs (N, T, H, Dv) and log-sum-exps
    (N, T, H), f32. With m = max_n lse_n, w_n = exp(lse_n - m): o = sum w_n o_n / sum w_n,
    lse = m + ln sum w_n. A partial with lse = -inf counts for nothing whatever its output
    holds; when all are -inf (or N is 0) the result is 0 and -inf. One finite partial
    comes back bit for bit. The result (T, H, Dv) is f32, f16 or bf16; the log-sum-exp
    result (T, H), f32, may be left out. H and Dv are static.
  }];
  let arguments = (ins AnyRankedTensor:$partials, AnyRankedTensor:$lses);
  let results = (outs AnyRankedTensor:$output, Optional<AnyRankedTensor>:$lse);
  let assemblyFormat = "$partials `,` $lses attr-dict `:` type($partials) `,` type($lses) `->` type($output) (`,` type($lse)^)?";
  let hasVerifier = 1;
}

def Attn_AppendOp : Attn_Op<"append", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "write new K and V rows into a paged cache";
  let description = [{
    ```mlir
    attn.append %k, %v, %slots, %kv : tensor<?x8x128xbf16>, tensor<?x8x128xbf16>,
        tensor<?xi64>, !attn.kv_cache<8x128xbf16, page = 16>
    ```
    Row t of `keys` (T, Hkv, D) and `values` (T, Hkv, Dv), of the cache's element type,
    goes to slot `slots[t]` (T, i64): page slot / page, place slot mod page. Slot -1 is
    skipped: nothing is read or written. Slots of one append differ from each other. T
    may be 0. The op writes the cache: it is never removed, and attention on the cache
    does not move across it.
  }];
  let arguments = (ins AnyRankedTensor:$keys, AnyRankedTensor:$values, AnyRankedTensor:$slots,
                       Attn_KvCacheType:$cache);
  let assemblyFormat = "$keys `,` $values `,` $slots `,` $cache attr-dict `:` type($keys) `,` type($values) `,` type($slots) `,` qualified(type($cache))";
  let hasVerifier = 1;
}

def Attn_YieldOp : Attn_Op<"yield", [Pure, Terminator, ReturnLike, ParentOneOf<["AttentionOp"]>]> {
  let summary = "end of a mask or score region";
  let description = [{ Yields i1 (visible) from a mask region, f32 (the new score) from a score region. }];
  let arguments = (ins AnyType:$value);
  let assemblyFormat = "$value attr-dict `:` type($value)";
}

#endif

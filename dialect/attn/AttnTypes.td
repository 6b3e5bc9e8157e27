#ifndef LLMOPT_DIALECT_ATTN_ATTNTYPES
#define LLMOPT_DIALECT_ATTN_ATTNTYPES

include "dialect/attn/AttnBase.td"
include "dialect/attn/AttnEnums.td"
include "mlir/IR/AttrTypeBase.td"

class Attn_Type<string name, string typeMnemonic> : TypeDef<Attn_Dialect, name> {
  let mnemonic = typeMnemonic;
}

def Attn_KvCacheType : Attn_Type<"KvCache", "kv_cache"> {
  let summary = "a paged KV cache";
  let description = [{
    Pages of `page` slots in a pool; each sequence owns a list of page ids. Syntax:

        !attn.kv_cache<8x128xbf16, page = 16>
        !attn.kv_cache<8x192xbf16, v_dim = 128, page = 64, head_major, indptr>

    `8x128xbf16`: KV heads, head dimension of K, element type. Options, in this order:
    - `v_dim = N`: head dimension of V where it differs from K's.
    - `page = N`: slots a page, 1 or more.
    - `head_major`: a page holds (heads, slots, dim), "HND"; else (slots, heads, dim), "NHD".
    - `interleaved`: K and V share one pool: (pages, 2, ...); else two pools (pages, ...).
    - `indptr`: the page table is `indices` with `indptr` (B + 1) as in FlashInfer; else a
      block table (B, columns) as in vLLM. Entries are i32; -1 names no page.

    Strides of pool dimensions are run-time values; the innermost one is 1.
  }];
  let parameters = (ins "int64_t":$kvHeads, "int64_t":$headDim, "::mlir::Type":$elementType,
    "int64_t":$vDim, "int64_t":$pageSize, "bool":$headMajor, "bool":$interleaved, "bool":$indptr);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Attn_SequencesType : Attn_Type<"Sequences", "sequences"> {
  let summary = "lengths of a batch of sequences";
  let description = [{
    What tells the sequences of a batch apart, as the forms of the other operands need it:
    `cu_seqlens_q` (i32, B + 1) for a ragged query, `cu_seqlens_kv` (i32, B + 1) for ragged
    K and V, `kv_len` (i32, B) and the page table for a cache, `kv_len` for dense K and V
    (keys from kv_len on are padding). Bound by name when a kernel is called.

    Offsets ascend from 0. They may end before the array does: the rows after the last
    offset belong to no sequence (padding of a captured graph), are not read, and their
    output is not written.
  }];
}

#endif

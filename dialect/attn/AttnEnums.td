#ifndef LLMOPT_DIALECT_ATTN_ATTNENUMS
#define LLMOPT_DIALECT_ATTN_ATTNENUMS

include "mlir/IR/EnumAttr.td"

def Attn_Alignment : I32EnumAttr<"Alignment", "where the causal diagonal ends", [
    I32EnumAttrCase<"BottomRight", 0, "bottom_right">,
    I32EnumAttrCase<"TopLeft", 1, "top_left">]> {
  let cppNamespace = "::llmopt::attn";
  let genSpecializedAttr = 0;
}

#endif

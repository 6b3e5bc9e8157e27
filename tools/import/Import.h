// Model descriptions in, attn IR text out.
//
// A Hugging Face config.json becomes one function for each distinct layer kind and
// phase over a paged cache; an ONNX model becomes one function for each distinct
// Attention node (Onnx.h). What the attn dialect cannot say yet is refused in one line
// that names it; nothing that changes attention is ever ignored. What happens to Q, K
// and V before attention (projections, norms, rotary embedding) is not part of it.
#pragma once

#include "runtime/base/Status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace llmopt::importer {

using runtime::dataLoss;
using runtime::invalidArgument;
using runtime::makeStatus;
using runtime::Status;
using runtime::StatusCode;
using runtime::StatusOr;

/// The code of a refusal: the input is fine, this version lacks what it asks for.
inline constexpr StatusCode kUnsupported = StatusCode::Unsupported;

struct HuggingFaceOptions {
  int64_t page = 16; ///< slots a page
  /// "bf16", "f16" or "f32"; empty: the config's torch_dtype, bf16 where it has none.
  std::string elementType;
};

/// What the layers of one kind compute.
struct LayerKind {
  std::string name; ///< "full", "sliding" or "chunked"
  std::vector<int64_t> layers;
  int64_t queryHeads = 0, kvHeads = 0, headDim = 0, vHeadDim = 0;
  double scale = 0;
  std::optional<int64_t> window; ///< keys a query sees, itself counted
  std::optional<int64_t> chunk;  ///< a query sees keys of its own chunk
  std::optional<double> softcap;
  bool sink = false; ///< a learned logit a head in the softmax denominator
};

struct ImportedFunction {
  std::string name;  ///< "decode", "prefill_sliding", ...
  std::string phase; ///< "prefill" or "decode"
  size_t kind;       ///< index into ImportResult::kinds
};

struct ImportResult {
  std::string ir; ///< text of a module
  std::string modelType;
  std::string elementType; ///< "bf16", "f16" or "f32"
  int64_t page = 0;
  int64_t layers = 0; ///< all layers, those without attention included
  /// Layers that keep a state of each sequence instead of keys: Mamba, short convolutions.
  int64_t recurrent = 0;
  std::vector<LayerKind> kinds;
  std::vector<ImportedFunction> functions;
  std::vector<std::string> notes; ///< what a user should know; also comments of `ir`
};

/// `text` is the config's JSON, `filename` what messages call it.
StatusOr<ImportResult> importHuggingFace(std::string_view text, std::string_view filename,
                                         const HuggingFaceOptions &options = {});

} // namespace llmopt::importer

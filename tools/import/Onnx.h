// ONNX models with Attention nodes (opset 23 and later) to attn IR, with a description
// of which value of the model is bound to which array of a call.
//
// FlexAttention without its subgraphs is the same computation and is taken too. What
// the attn dialect cannot say, and every operator beside these that is attention, is
// refused by name. Other operators of a model are not looked at.
#pragma once

#include "tools/import/Import.h"
#include "tools/import/Tensor.h"

namespace llmopt::importer {

/// False in a build without ONNX's protobuf schema; importOnnx and readTensorProto
/// then fail with StatusCode::Unavailable and say what to install.
bool onnxIsAvailable();

/// How an array of a call comes from values of the model.
struct OnnxBinding {
  enum class Form : uint8_t {
    HeadsFirst, ///< (B, H, S, D), viewed as (B, S, H, D)
    Packed,     ///< (B, S, H*D), viewed as (B, S, H, D)
    Mask,       ///< up to rank 4, extended in front with 1s; a last dimension that is
                ///< shorter than the keys is filled up with "hidden"
    Lengths,    ///< i64 (B) to i32
  };
  std::string array; ///< "q", "k", "v", "arg0", "kv_len" or "o"
  std::string value; ///< the model's name for it
  Form form;
  /// A value (B, H, P, D) whose keys come before those of `value`; empty for none.
  std::string past;
  /// The model's name for past and new keys together; empty where nobody asks.
  std::string present;
};

/// Which keys the causal mask of a node shows to query i of S over T keys.
enum class OnnxCausal : uint8_t {
  None,
  TopLeft,     ///< j <= i
  BottomRight, ///< j <= i + T - S, T being the valid keys
  Shifted,     ///< j <= i + T - S + causalShift
};

enum class OnnxMask : uint8_t { None, Boolean, Additive };

/// A distinct attention of the model.
struct OnnxFunction {
  std::string name;               ///< of the IR function
  std::vector<std::string> nodes; ///< the nodes that compute it, by name or output

  DataType type = DataType::F32;
  int64_t queryHeads = 0, kvHeads = 0, headDim = 0, vHeadDim = 0;
  double scale = 0, softcap = 0; ///< softcap 0: none
  OnnxCausal causal = OnnxCausal::None;
  int64_t causalShift = 0;
  OnnxMask mask = OnnxMask::None;
  DataType maskType = DataType::Bool;
  int64_t maskExtents[4] = {-1, -1, -1, -1}; ///< -1 where known at run time only
  bool lengths = false;                      ///< keys from kv_len on are padding

  /// Inputs first, then "o". Those of the first node where there are several.
  std::vector<OnnxBinding> bindings;
  /// What the node asks for that the function does not give; empty for nothing.
  std::string missing;
};

struct OnnxCase {
  std::string ir;
  std::vector<OnnxFunction> functions;
  std::vector<std::string> inputs, outputs; ///< of the model, in its order
  size_t otherNodes = 0;                    ///< nodes that are not attention
};

StatusOr<OnnxCase> importOnnx(const std::string &modelPath);

/// The same from memory; `filename` is what messages call it.
StatusOr<OnnxCase> importOnnx(std::string_view bytes, std::string_view filename);

/// A file that holds one TensorProto.
StatusOr<Tensor> readTensorProto(const std::string &path);
StatusOr<Tensor> readTensorProto(std::string_view bytes, std::string_view filename);

/// The module's text. (OnnxText.cpp)
std::string onnxModuleText(const OnnxCase &model, std::string_view filename);

} // namespace llmopt::importer

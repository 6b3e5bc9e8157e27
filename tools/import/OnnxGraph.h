// The parts of an ONNX graph that the importer looks at. Internal; needs the schema.
#pragma once

#include "tools/import/Onnx.h"

#include <map>
#include <onnx/onnx_pb.h>

namespace llmopt::importer {

struct OnnxDim {
  int64_t value = -1; ///< -1 where unknown
  std::string symbol; ///< the model's name for an unknown one; may be empty
  /// Surely one and the same number?
  bool operator==(const OnnxDim &other) const {
    return value >= 0 ? value == other.value
                      : other.value < 0 && !symbol.empty() && symbol == other.symbol;
  }
};

struct OnnxType {
  int32_t element = 0; ///< onnx::TensorProto::DataType
  std::vector<OnnxDim> dims;
};

class OnnxGraph {
public:
  /// `model` must stay alive.
  OnnxGraph(const onnx::ModelProto &model, std::string_view filename);

  /// The type of a value, where the model tells it.
  const OnnxType *typeOf(const std::string &value) const;

  /// Nodes to import, in order. Refuses attention that is not supported.
  StatusOr<std::vector<const onnx::NodeProto *>> attentionNodes() const;

  const onnx::GraphProto &graph() const { return model.graph(); }
  const std::string &filename() const { return name; }
  /// "<file>: <feature> is not supported yet".
  Status unsupported(std::string_view feature) const;

private:
  void addType(const onnx::ValueInfoProto &value);
  Status checkOpset() const;

  const onnx::ModelProto &model;
  std::string name;
  std::map<std::string, OnnxType> types;
};

/// The domain as the standard writes it: "" for "ai.onnx".
std::string_view domainOf(const onnx::NodeProto &node);
/// The node's name, or that of its first output.
std::string nameOf(const onnx::NodeProto &node);
/// None for a type that has no DataType.
std::optional<DataType> dataType(int32_t element);
/// "float16", "int8", ... for messages.
std::string elementName(int32_t element);

/// What one node computes and where its arrays come from. (OnnxNode.cpp)
StatusOr<OnnxFunction> importNode(const OnnxGraph &graph, const onnx::NodeProto &node);

} // namespace llmopt::importer

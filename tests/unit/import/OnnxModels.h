// Small ONNX models made in memory.
#pragma once

#include "tools/import/Onnx.h"

#include <onnx/onnx_pb.h>

namespace llmopt::test {

/// A dimension: a number, or a name for an unknown one.
struct Dim {
  Dim(int value) : value(value) {}
  Dim(const char *symbol) : symbol(symbol) {}
  int64_t value = -1;
  std::string symbol;
};

class ModelBuilder {
public:
  explicit ModelBuilder(int64_t opset = 24) { model.add_opset_import()->set_version(opset); }

  ModelBuilder &input(const std::string &name, std::vector<Dim> dims,
                      int element = onnx::TensorProto::FLOAT) {
    auto *value = model.mutable_graph()->add_input();
    value->set_name(name);
    auto *type = value->mutable_type()->mutable_tensor_type();
    type->set_elem_type(element);
    auto *shape = type->mutable_shape();
    for (const Dim &dim : dims)
      if (dim.value >= 0)
        shape->add_dim()->set_dim_value(dim.value);
      else
        shape->add_dim()->set_dim_param(dim.symbol);
    return *this;
  }

  /// Q, K and V of rank 4, (2, heads, length, 8).
  ModelBuilder &qkv(Dim queries, Dim keys, int queryHeads = 4, int kvHeads = 2) {
    return input("Q", {2, queryHeads, queries, 8})
        .input("K", {2, kvHeads, keys, 8})
        .input("V", {2, kvHeads, keys, 8});
  }

  onnx::NodeProto &node(const std::string &op, std::vector<std::string> inputs,
                        std::vector<std::string> outputs = {"Y"}) {
    auto *node = model.mutable_graph()->add_node();
    node->set_op_type(op);
    for (const std::string &name : inputs)
      node->add_input(name);
    for (const std::string &name : outputs)
      node->add_output(name);
    return *node;
  }

  importer::StatusOr<importer::OnnxCase> import() const {
    return importer::importOnnx(model.SerializeAsString(), "m.onnx");
  }
  std::string failure() const {
    auto result = import();
    return result.ok() ? "imported" : result.status().message();
  }

  onnx::ModelProto model;
};

inline void setInt(onnx::NodeProto &node, const std::string &name, int64_t value) {
  auto *attribute = node.add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::INT);
  attribute->set_i(value);
}

inline void setFloat(onnx::NodeProto &node, const std::string &name, float value) {
  auto *attribute = node.add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::FLOAT);
  attribute->set_f(value);
}

} // namespace llmopt::test

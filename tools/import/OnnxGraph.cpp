#include "tools/import/OnnxGraph.h"

#include "runtime/base/File.h"
#include "tools/import/Assign.h"
#include "tools/import/Text.h"

using namespace llmopt::importer;

namespace {

constexpr std::string_view kPreview = "ai.onnx.preview";

/// Does the operator compute attention, supported or not?
bool isAttention(const onnx::NodeProto &node) {
  return node.op_type().find("Attention") != std::string::npos;
}

bool isImported(const onnx::NodeProto &node) {
  std::string_view domain = domainOf(node);
  return (domain.empty() && node.op_type() == "Attention") ||
         (domain == kPreview && node.op_type() == "FlexAttention");
}

/// Operators around attention that a model without it is refused for.
bool isCompanion(const onnx::NodeProto &node) {
  return domainOf(node).empty() &&
         (node.op_type() == "RotaryEmbedding" || node.op_type() == "TensorScatter");
}

std::string qualified(const onnx::NodeProto &node) {
  std::string_view domain = domainOf(node);
  return domain.empty() ? oneLine(node.op_type())
                        : oneLine(fmt::format("{}.{}", domain, node.op_type()));
}

template <typename Nodes> const onnx::NodeProto *attentionIn(const Nodes &nodes);

/// An attention node in a subgraph of `node`, at any depth.
const onnx::NodeProto *attentionBelow(const onnx::NodeProto &node) {
  for (const onnx::AttributeProto &attribute : node.attribute()) {
    if (attribute.has_g())
      if (const onnx::NodeProto *found = attentionIn(attribute.g().node()))
        return found;
    for (const onnx::GraphProto &graph : attribute.graphs())
      if (const onnx::NodeProto *found = attentionIn(graph.node()))
        return found;
  }
  return nullptr;
}

template <typename Nodes> const onnx::NodeProto *attentionIn(const Nodes &nodes) {
  for (const onnx::NodeProto &node : nodes) {
    if (isAttention(node))
      return &node;
    if (const onnx::NodeProto *found = attentionBelow(node))
      return found;
  }
  return nullptr;
}

} // namespace

std::string_view llmopt::importer::domainOf(const onnx::NodeProto &node) {
  return node.domain() == "ai.onnx" ? std::string_view() : std::string_view(node.domain());
}

std::string llmopt::importer::nameOf(const onnx::NodeProto &node) {
  if (!node.name().empty())
    return oneLine(node.name());
  return node.output_size() ? oneLine(node.output(0)) : "";
}

std::optional<DataType> llmopt::importer::dataType(int32_t element) {
  switch (element) {
  case onnx::TensorProto::FLOAT:
    return DataType::F32;
  case onnx::TensorProto::FLOAT16:
    return DataType::F16;
  case onnx::TensorProto::BFLOAT16:
    return DataType::BF16;
  case onnx::TensorProto::DOUBLE:
    return DataType::F64;
  case onnx::TensorProto::BOOL:
    return DataType::Bool;
  case onnx::TensorProto::INT32:
    return DataType::I32;
  case onnx::TensorProto::INT64:
    return DataType::I64;
  default:
    return std::nullopt;
  }
}

std::string llmopt::importer::elementName(int32_t element) {
  if (!onnx::TensorProto::DataType_IsValid(element))
    return fmt::format("number {}", element);
  std::string name = onnx::TensorProto::DataType_Name(onnx::TensorProto::DataType(element));
  for (char &c : name)
    c = char(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

OnnxGraph::OnnxGraph(const onnx::ModelProto &model, std::string_view filename)
    : model(model), name(filename) {
  for (const auto *values : {&graph().value_info(), &graph().output(), &graph().input()})
    for (const onnx::ValueInfoProto &value : *values)
      addType(value);
  for (const onnx::TensorProto &tensor : graph().initializer()) {
    OnnxType type{tensor.data_type(), {}};
    for (int64_t dim : tensor.dims())
      type.dims.push_back({dim, ""});
    types[tensor.name()] = std::move(type);
  }
}

void OnnxGraph::addType(const onnx::ValueInfoProto &value) {
  if (!value.has_type() || !value.type().has_tensor_type() ||
      !value.type().tensor_type().has_shape())
    return;
  const auto &tensor = value.type().tensor_type();
  OnnxType type{tensor.elem_type(), {}};
  for (const auto &dim : tensor.shape().dim())
    type.dims.push_back({dim.has_dim_value() ? dim.dim_value() : -1, dim.dim_param()});
  types[value.name()] = std::move(type);
}

const OnnxType *OnnxGraph::typeOf(const std::string &value) const {
  auto found = types.find(value);
  return found == types.end() ? nullptr : &found->second;
}

Status OnnxGraph::unsupported(std::string_view feature) const {
  return makeStatus(kUnsupported, "{}: {} is not supported yet", name, feature);
}

Status OnnxGraph::checkOpset() const {
  constexpr int64_t kFirst = 23;
  for (const onnx::OperatorSetIdProto &set : model.opset_import())
    if ((set.domain().empty() || set.domain() == "ai.onnx") && set.version() < kFirst)
      return invalidArgument("{}: opset {}; Attention exists from opset {} on", name, set.version(),
                             kFirst);
  return {};
}

StatusOr<std::vector<const onnx::NodeProto *>> OnnxGraph::attentionNodes() const {
  std::vector<const onnx::NodeProto *> nodes;
  const onnx::NodeProto *companion = nullptr;
  for (const onnx::NodeProto &node : graph().node()) {
    if (isImported(node))
      nodes.push_back(&node);
    else if (isAttention(node))
      return unsupported(fmt::format("operator {}", qualified(node)));
    else if (const onnx::NodeProto *below = attentionBelow(node))
      return unsupported(
          fmt::format("operator {} in a subgraph of {}", qualified(*below), qualified(node)));
    if (!companion && isCompanion(node))
      companion = &node;
  }
  for (const onnx::FunctionProto &function : model.functions())
    if (const onnx::NodeProto *found = attentionIn(function.node()))
      return unsupported(fmt::format("operator {} in the model function {}", qualified(*found),
                                     oneLine(function.name())));
  if (nodes.empty() && companion)
    return unsupported(fmt::format("operator {}", qualified(*companion)));
  if (nodes.empty())
    return invalidArgument("{}: the model has no Attention node", name);
  LLMOPT_RETURN_IF_ERROR(checkOpset());
  return nodes;
}

namespace {

/// Nodes that compute the same over equally bound arrays become one function.
bool sameComputation(const OnnxFunction &a, const OnnxFunction &b) {
  return a.type == b.type && a.queryHeads == b.queryHeads && a.kvHeads == b.kvHeads &&
         a.headDim == b.headDim && a.vHeadDim == b.vHeadDim && a.scale == b.scale &&
         a.softcap == b.softcap && a.causal == b.causal && a.causalShift == b.causalShift &&
         a.mask == b.mask && a.maskType == b.maskType && a.lengths == b.lengths &&
         a.missing == b.missing &&
         std::equal(std::begin(a.maskExtents), std::end(a.maskExtents), b.maskExtents);
}

} // namespace

bool llmopt::importer::onnxIsAvailable() { return true; }

StatusOr<OnnxCase> llmopt::importer::importOnnx(std::string_view bytes, std::string_view filename) {
  google::protobuf::SetLogHandler(nullptr); // errors are told once, by us
  onnx::ModelProto model;
  if (bytes.size() > size_t(std::numeric_limits<int32_t>::max()) ||
      !model.ParseFromArray(bytes.data(), int(bytes.size())) || !model.has_graph())
    return dataLoss("{}: not an ONNX model", filename);
  OnnxGraph graph(model, filename);
  LLMOPT_ASSIGN(nodes, graph.attentionNodes());
  OnnxCase result;
  result.otherNodes = size_t(graph.graph().node_size()) - nodes.size();
  for (const onnx::NodeProto *node : nodes) {
    LLMOPT_ASSIGN(function, importNode(graph, *node));
    auto same =
        std::find_if(result.functions.begin(), result.functions.end(),
                     [&](const OnnxFunction &other) { return sameComputation(function, other); });
    if (same != result.functions.end())
      same->nodes.push_back(nameOf(*node));
    else
      result.functions.push_back(std::move(function));
  }
  for (size_t i = 0; i < result.functions.size(); ++i)
    result.functions[i].name =
        result.functions.size() == 1 ? "attention" : fmt::format("attention_{}", i);
  for (const onnx::ValueInfoProto &value : graph.graph().input())
    result.inputs.push_back(value.name());
  for (const onnx::ValueInfoProto &value : graph.graph().output())
    result.outputs.push_back(value.name());
  result.ir = onnxModuleText(result, filename);
  return result;
}

StatusOr<OnnxCase> llmopt::importer::importOnnx(const std::string &modelPath) {
  LLMOPT_ASSIGN(bytes, runtime::readFile(modelPath, std::numeric_limits<int32_t>::max()));
  return importOnnx(std::string_view(reinterpret_cast<const char *>(bytes.data()), bytes.size()),
                    modelPath);
}

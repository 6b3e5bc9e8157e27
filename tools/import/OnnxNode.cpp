// One Attention node: attributes, types and inputs to an OnnxFunction.
#include "tools/import/Assign.h"
#include "tools/import/OnnxGraph.h"
#include "tools/import/Text.h"

#include <cmath>

using namespace llmopt::importer;

namespace {

constexpr int64_t kMostDim = 576, kMostHeads = 65536;

/// Inputs of Attention in the order of the standard.
enum Input { Query, Key, Value, Mask, PastKey, PastValue, NonpadLengths };
enum Output { Result, PresentKey, PresentValue, Scores };

class NodeImporter {
public:
  NodeImporter(const OnnxGraph &graph, const onnx::NodeProto &node)
      : graph(graph), node(node), flex(node.op_type() == "FlexAttention") {}

  StatusOr<OnnxFunction> import() {
    function.nodes = {nameOf(node)};
    LLMOPT_RETURN_IF_ERROR(readAttributes());
    LLMOPT_RETURN_IF_ERROR(readTypes());
    LLMOPT_RETURN_IF_ERROR(readHeads());
    LLMOPT_RETURN_IF_ERROR(readPast());
    LLMOPT_RETURN_IF_ERROR(readMask());
    LLMOPT_RETURN_IF_ERROR(readLengths());
    LLMOPT_RETURN_IF_ERROR(readCausal());
    if (scale && (!(*scale > 0) || !std::isfinite(*scale)))
      return wrong("scale is {}; a positive number is allowed", *scale);
    function.scale = scale ? *scale : 1 / std::sqrt(double(function.headDim));
    if (!output(Scores).empty())
      function.missing = "score matrix output (qk_matmul_output)";
    bind();
    return std::move(function);
  }

private:
  template <typename... Args>
  Status wrong(fmt::format_string<Args...> format, Args &&...args) const {
    return invalidArgument("{}: node '{}': {}", graph.filename(), nameOf(node),
                           fmt::format(format, std::forward<Args>(args)...));
  }
  Status unsupported(std::string_view feature) const {
    return graph.unsupported(fmt::format("{} (node '{}')", feature, nameOf(node)));
  }

  std::string input(int index) const { return index < node.input_size() ? node.input(index) : ""; }
  std::string output(int index) const {
    return index < node.output_size() ? node.output(index) : "";
  }

  // Attributes.

  Status readAttributes() {
    for (const onnx::AttributeProto &attribute : node.attribute())
      LLMOPT_RETURN_IF_ERROR(readAttribute(attribute));
    return {};
  }

  Status readAttribute(const onnx::AttributeProto &attribute) {
    std::string name = oneLine(attribute.name());
    bool isFloat = attribute.type() == onnx::AttributeProto::FLOAT;
    bool isInt = attribute.type() == onnx::AttributeProto::INT;
    if (name == "score_mod" || name == "prob_mod")
      return unsupported(fmt::format("a {} subgraph", name));
    if (name == "scale" || name == "softcap") {
      if (!isFloat)
        return wrong("attribute {} is not a float", name);
      if (name == "scale")
        scale = attribute.f();
      else
        function.softcap = std::max(attribute.f(), 0.0f);
      return std::isfinite(attribute.f()) ? Status() : wrong("{} is {}", name, attribute.f());
    }
    if (!isInt)
      return unsupported(fmt::format("attribute {}", name));
    return readIntegerAttribute(name, attribute.i());
  }

  Status readIntegerAttribute(const std::string &name, int64_t value) {
    if (name == "is_causal") {
      causal = value != 0;
    } else if (name == "q_num_heads" || name == "kv_num_heads") {
      if (value < 1 || value > kMostHeads)
        return wrong("{} is {}; 1 to {} is allowed", name, value, kMostHeads);
      (name[0] == 'q' ? queryHeads : kvHeads) = value;
    } else if (name == "softmax_precision") {
      // The softmax is float32; a wish for more cannot be met.
      if (value == onnx::TensorProto::DOUBLE)
        return unsupported("a softmax in float64");
    } else if (name == "qk_matmul_output_mode") {
      // Says what the score output is, and that is checked where it is asked for.
    } else if (name == "left_window_size" || name == "right_window_size") {
      if (value >= 0)
        return unsupported(fmt::format("{} {}", name, value));
    } else {
      return unsupported(fmt::format("attribute {}", name));
    }
    return {};
  }

  // Types and shapes.

  StatusOr<OnnxType> typeOf(int index, std::string_view what) const {
    const OnnxType *type = graph.typeOf(input(index));
    if (!type)
      return wrong("the model does not tell the shape of {} '{}'; run ONNX's shape "
                   "inference on it first",
                   what, oneLine(input(index)));
    for (const OnnxDim &dim : type->dims)
      if (dim.value < -1)
        return wrong("{} has a dimension of {}", what, dim.value);
    return *type;
  }

  Status readTypes() {
    for (int index : {Query, Key, Value})
      if (input(index).empty())
        return wrong("Q, K and V are needed");
    if (node.input_size() > (flex ? 3 : 7))
      return wrong("{} inputs", node.input_size());
    LLMOPT_ASSIGN(q, typeOf(Query, "Q"));
    LLMOPT_ASSIGN(k, typeOf(Key, "K"));
    LLMOPT_ASSIGN(v, typeOf(Value, "V"));
    query = q, key = k, value = v;
    std::optional<DataType> type = dataType(query.element);
    if (!type || !isAttentionType(*type))
      return unsupported(
          fmt::format("attention on elements of type {}", elementName(query.element)));
    function.type = *type;
    if (key.element != query.element || value.element != query.element)
      return unsupported(fmt::format("Q of {} with K of {} and V of {}", elementName(query.element),
                                     elementName(key.element), elementName(value.element)));
    size_t rank = query.dims.size();
    if (key.dims.size() != rank || value.dims.size() != rank || (rank != 4 && rank != 3) ||
        (flex && rank != 4))
      return wrong("Q, K and V have ranks {}, {} and {}; all 4{} is allowed", rank, key.dims.size(),
                   value.dims.size(), flex ? "" : " or all 3");
    packed = rank == 3;
    return {};
  }

  Status readHeads() {
    if (packed) {
      if (!queryHeads || !kvHeads)
        return wrong("Q of rank 3 needs q_num_heads and kv_num_heads");
      LLMOPT_RETURN_IF_ERROR(splitHidden(query, *queryHeads, "Q", function.headDim));
      LLMOPT_RETURN_IF_ERROR(splitHidden(value, *kvHeads, "V", function.vHeadDim));
    } else {
      function.headDim = query.dims[3].value;
      function.vHeadDim = value.dims[3].value;
      LLMOPT_RETURN_IF_ERROR(headsOf(query, "Q", queryHeads));
      LLMOPT_RETURN_IF_ERROR(headsOf(key, "K", kvHeads));
      LLMOPT_RETURN_IF_ERROR(headsOf(value, "V", kvHeads));
    }
    function.queryHeads = *queryHeads;
    function.kvHeads = *kvHeads;
    int64_t keyDim = key.dims.back().value;
    if (keyDim != (packed ? function.headDim * function.kvHeads : function.headDim))
      return wrong("K has a last dimension of {}; Q's head dimension is {}", keyDim,
                   function.headDim);
    int64_t keys = length(key).value, values = length(value).value;
    if (keys >= 0 && values >= 0 && keys != values)
      return wrong("K has {} keys, V has {}", keys, values);
    for (int64_t dim : {function.headDim, function.vHeadDim})
      if (dim < 1 || dim > kMostDim)
        return wrong("head dimension {}; 1 to {} is allowed",
                     dim < 0 ? "unknown" : fmt::format("{}", dim), kMostDim);
    if (function.queryHeads % function.kvHeads)
      return wrong("{} query heads are not a multiple of {} KV heads", function.queryHeads,
                   function.kvHeads);
    return {};
  }

  /// The head count of dimension 1, which an attribute may repeat.
  Status headsOf(const OnnxType &type, std::string_view what, std::optional<int64_t> &heads) const {
    int64_t count = type.dims[1].value;
    if (count < 1 || count > kMostHeads)
      return wrong("{} has {} heads; 1 to {}, known from the model, is allowed", what,
                   count < 0 ? "unknown" : fmt::format("{}", count), kMostHeads);
    if (heads && *heads != count)
      return wrong("{} has {} heads; {} are expected", what, count, *heads);
    heads = count;
    return {};
  }

  Status splitHidden(const OnnxType &type, int64_t heads, std::string_view what,
                     int64_t &dim) const {
    int64_t hidden = type.dims[2].value;
    if (hidden < 1 || hidden % heads)
      return wrong("{} has a last dimension of {}; a multiple of its {} heads is allowed", what,
                   hidden < 0 ? "unknown" : fmt::format("{}", hidden), heads);
    dim = hidden / heads;
    return {};
  }

  OnnxDim length(const OnnxType &type) const { return type.dims[packed ? 1 : 2]; }

  // Optional inputs.

  Status readPast() {
    if (input(PastKey).empty() != input(PastValue).empty())
      return wrong("past_key and past_value go together");
    if (input(PastKey).empty())
      return {};
    LLMOPT_RETURN_IF_ERROR(checkPast(PastKey, "past_key", function.headDim));
    return checkPast(PastValue, "past_value", function.vHeadDim);
  }

  Status checkPast(int index, std::string_view what, int64_t dim) const {
    LLMOPT_ASSIGN(type, typeOf(index, what));
    if (type.element != query.element)
      return unsupported(fmt::format("{} of {} with Q of {}", what, elementName(type.element),
                                     elementName(query.element)));
    auto differs = [](int64_t a, int64_t b) { return a >= 0 && a != b; };
    if (type.dims.size() != 4 || differs(type.dims[1].value, function.kvHeads) ||
        differs(type.dims[3].value, dim))
      return wrong("{} must be (B, {}, P, {})", what, function.kvHeads, dim);
    return {};
  }

  Status readMask() {
    if (input(Mask).empty())
      return {};
    LLMOPT_ASSIGN(type, typeOf(Mask, "attn_mask"));
    std::optional<DataType> element = dataType(type.element);
    bool boolean = element == DataType::Bool;
    if (!element || !(boolean || isAttentionType(*element)))
      return unsupported(fmt::format("an attn_mask of type {}", elementName(type.element)));
    size_t rank = type.dims.size();
    if (rank < 1 || rank > 4)
      return wrong("attn_mask has rank {}; 1 to 4 is allowed", rank);
    function.mask = boolean ? OnnxMask::Boolean : OnnxMask::Additive;
    function.maskType = *element;
    for (size_t i = 0; i < 4; ++i)
      function.maskExtents[i] = i + rank < 4 ? 1 : maskExtent(type.dims[i + rank - 4], i);
    int64_t heads = function.maskExtents[1];
    if (heads > 1 && heads != function.queryHeads)
      return wrong("attn_mask has {} heads; 1 or {} is allowed", heads, function.queryHeads);
    return {};
  }

  /// 1 and the head count are facts of the type, the rest is left to the call. The last
  /// dimension is never broadcast: a short one is filled up.
  static int64_t maskExtent(const OnnxDim &dim, size_t axis) {
    if (axis == 3)
      return -1;
    return dim.value == 1 || (axis == 1 && dim.value > 0) ? dim.value : -1;
  }

  Status readLengths() {
    if (input(NonpadLengths).empty())
      return {};
    if (!input(PastKey).empty())
      return wrong("nonpad_kv_seqlen and past_key exclude each other");
    LLMOPT_ASSIGN(type, typeOf(NonpadLengths, "nonpad_kv_seqlen"));
    if (dataType(type.element) != DataType::I64 || type.dims.size() != 1)
      return wrong("nonpad_kv_seqlen must be int64 of rank 1");
    function.lengths = true;
    return {};
  }

  /// Query i sees key j <= i + offset: offset 0 without a cache, P with past keys, valid
  /// length - S with lengths. In attn, the query stands at i + T - S.
  Status readCausal() {
    if (!causal)
      return {};
    OnnxDim queries = length(query), keys = length(key);
    bool past = !input(PastKey).empty();
    if (!past && !function.lengths) {
      function.causal = queries == keys ? OnnxCausal::BottomRight : OnnxCausal::TopLeft;
      return {};
    }
    function.causal = OnnxCausal::BottomRight;
    if (!past || queries == keys)
      return {};
    if (queries.value < 0 || keys.value < 0)
      return unsupported("is_causal over past keys with sequence lengths of Q and K that "
                         "the model does not tell");
    function.causal = OnnxCausal::Shifted;
    function.causalShift = queries.value - keys.value;
    return {};
  }

  void bind() {
    using Form = OnnxBinding::Form;
    Form form = packed ? Form::Packed : Form::HeadsFirst;
    auto add = [&](std::string array, std::string from, Form how, std::string past = "",
                   std::string present = "") {
      function.bindings.push_back(
          {std::move(array), std::move(from), how, std::move(past), std::move(present)});
    };
    add("q", input(Query), form);
    add("k", input(Key), form, input(PastKey), output(PresentKey));
    add("v", input(Value), form, input(PastValue), output(PresentValue));
    if (function.mask != OnnxMask::None)
      add("arg0", input(Mask), Form::Mask);
    if (function.lengths)
      add("kv_len", input(NonpadLengths), Form::Lengths);
    add("o", output(Result), form);
  }

  const OnnxGraph &graph;
  const onnx::NodeProto &node;
  bool flex, packed = false, causal = false;
  std::optional<double> scale;
  std::optional<int64_t> queryHeads, kvHeads;
  OnnxType query, key, value;
  OnnxFunction function;
};

} // namespace

StatusOr<OnnxFunction> llmopt::importer::importNode(const OnnxGraph &graph,
                                                    const onnx::NodeProto &node) {
  return NodeImporter(graph, node).import();
}

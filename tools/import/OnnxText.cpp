// Attention nodes as text of attn IR.
#include "tools/import/Onnx.h"
#include "tools/import/Text.h"

using namespace llmopt::importer;

static std::string tensorType(int64_t heads, int64_t dim, DataType type) {
  return fmt::format("tensor<?x?x{}x{}x{}>", heads, dim, nameOf(type));
}

static std::string maskType(const OnnxFunction &function) {
  std::string text = "tensor<";
  for (int64_t extent : function.maskExtents)
    text += extent < 0 ? "?x" : fmt::format("{}x", extent);
  bool boolean = function.mask == OnnxMask::Boolean;
  return text + std::string(boolean ? "i1" : nameOf(function.maskType)) + ">";
}

/// The mask clause with the region it may need.
static std::string maskClause(const OnnxFunction &function) {
  std::string causal, region;
  switch (function.causal) {
  case OnnxCausal::None:
    break;
  case OnnxCausal::TopLeft:
    causal = "causal<top_left>";
    break;
  case OnnxCausal::BottomRight:
    causal = "causal";
    break;
  case OnnxCausal::Shifted:
    causal = "custom";
    region = fmt::format(" where {{\n"
                         "       ^bb0(%b: index, %h: index, %i: index, %j: index):\n"
                         "         %shift = arith.constant {} : index\n"
                         "         %last = arith.addi %i, %shift : index\n"
                         "         %visible = arith.cmpi sle, %j, %last : index\n"
                         "         attn.yield %visible : i1\n"
                         "       }}",
                         function.causalShift);
    break;
  }
  std::string mask = causal;
  if (function.mask == OnnxMask::Boolean)
    mask += mask.empty() ? "dense<arg0>" : " and dense<arg0>";
  return mask.empty() ? "" : fmt::format(" mask({}){}", mask, region);
}

static std::string comment(const OnnxFunction &function) {
  std::string text = fmt::format("\n// {} {}:", function.nodes.size() == 1 ? "Node" : "Nodes",
                                 fmt::join(function.nodes, ", "));
  for (const OnnxBinding &binding : function.bindings) {
    text += fmt::format(" {} = ", binding.array);
    if (!binding.past.empty())
      text += binding.past + " then ";
    text += binding.value + (&binding == &function.bindings.back() ? "." : ",");
  }
  return oneLine(std::string_view(text).substr(1));
}

static std::string functionText(const OnnxFunction &function) {
  std::string query = tensorType(function.queryHeads, function.headDim, function.type);
  std::string key = tensorType(function.kvHeads, function.headDim, function.type);
  std::string value = tensorType(function.kvHeads, function.vHeadDim, function.type);
  std::string output = tensorType(function.queryHeads, function.vHeadDim, function.type);
  std::string parameters = fmt::format("%q: {}, %k: {}, %v: {}", query, key, value);
  std::string operands = "%q, %k, %v";
  std::string types = fmt::format("{}, {}, {}", query, key, value);
  std::string arguments, clauses;
  if (function.lengths) {
    parameters += ", %seq: !attn.sequences";
    operands += ", %seq";
    types += ", !attn.sequences";
  }
  if (function.mask != OnnxMask::None) {
    parameters += ", %mask: " + maskType(function);
    arguments = fmt::format(" args(%mask : {})", maskType(function));
  }
  if (function.softcap > 0)
    clauses += fmt::format(" softcap({})", floatLiteral(function.softcap));
  if (function.mask == OnnxMask::Additive)
    clauses += " bias(arg0)";
  return fmt::format("\n{}\n"
                     "func.func @{}({})\n"
                     "    -> {} {{\n"
                     "  %o = attn.attention {}{}{} scale({}){}\n"
                     "       : {} -> {}\n"
                     "  return %o : {}\n"
                     "}}\n",
                     comment(function), function.name, parameters, output, operands, arguments,
                     maskClause(function), floatLiteral(function.scale), clauses, types, output,
                     output);
}

std::string llmopt::importer::onnxModuleText(const OnnxCase &model, std::string_view filename) {
  std::string text =
      fmt::format("// {}: attention of an ONNX model.\n", oneLine(baseName(filename)));
  for (const OnnxFunction &function : model.functions)
    text += functionText(function);
  return text;
}

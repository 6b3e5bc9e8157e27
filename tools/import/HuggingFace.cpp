// config.json to attn IR text.
#include "tools/import/HfKeys.h"
#include "tools/import/HfKinds.h"
#include "tools/import/Text.h"

#include <algorithm>

using namespace llmopt::importer;
using nlohmann::json;

namespace {

/// Keys whose value decides, beyond being set or not.
Status checkValues(const Config &config) {
  if (Config::Entry both = config.find("use_bidirectional_attention");
      both && *both.value != false && *both.value != "vision")
    return config.unsupported(fmt::format(
        "bidirectional attention (use_bidirectional_attention {})", shown(*both.value)));
  if (Config::Entry list = config.find("attn_type_list")) {
    if (!list.value->is_array())
      return config.wrong("attn_type_list", "a list is allowed");
    for (const json &item : *list.value)
      if (item != 1)
        return config.unsupported(
            fmt::format("linear attention (attn_type_list has {})", shown(item)));
  }
  if (Config::Entry every = config.find("full_attn_mod"); every && *every.value != 1)
    return config.unsupported(
        fmt::format("full attention in some layers (full_attn_mod {})", shown(*every.value)));
  LLMOPT_ASSIGN(positions, config.string("position_embedding_type"));
  if (positions && (positions->find("alibi") != std::string::npos ||
                    positions->find("relative") != std::string::npos))
    return config.unsupported(
        fmt::format("a position bias (position_embedding_type {})", oneLine(*positions)));
  return {};
}

StatusOr<std::string> elementType(const Config &config, const std::string &wanted,
                                  std::vector<std::string> &notes) {
  if (!wanted.empty()) {
    if (wanted != "bf16" && wanted != "f16" && wanted != "f32")
      return invalidArgument("element type '{}' is not known; bf16, f16 and f32 are",
                             oneLine(wanted));
    return wanted;
  }
  for (std::string_view key : {"torch_dtype", "dtype"}) {
    LLMOPT_ASSIGN(name, config.string(key));
    if (!name)
      continue;
    std::string_view bare = *name;
    if (bare.starts_with("torch."))
      bare.remove_prefix(6);
    if (bare == "bfloat16")
      return std::string("bf16");
    if (bare == "float16" || bare == "half")
      return std::string("f16");
    if (bare == "float32" || bare == "float")
      return std::string("f32");
    if (bare != "auto")
      return config.wrong(key, "bfloat16, float16 and float32 are supported");
  }
  notes.push_back("the config names no element type; bf16 is taken");
  return std::string("bf16");
}

std::string mask(const LayerKind &kind) {
  if (kind.window)
    return fmt::format("causal and window<{}>", *kind.window);
  if (kind.chunk)
    return fmt::format("causal and chunked<{}>", *kind.chunk);
  return "causal";
}

std::string functionText(const ImportResult &result, const ImportedFunction &function) {
  const LayerKind &kind = result.kinds[function.kind];
  const std::string &type = result.elementType;
  std::string query = fmt::format("tensor<?x{}x{}x{}>", kind.queryHeads, kind.headDim, type);
  std::string output = fmt::format("tensor<?x{}x{}x{}>", kind.queryHeads, kind.vHeadDim, type);
  std::string values =
      kind.vHeadDim == kind.headDim ? "" : fmt::format(", v_dim = {}", kind.vHeadDim);
  std::string cache = fmt::format("!attn.kv_cache<{}x{}x{}{}, page = {}>", kind.kvHeads,
                                  kind.headDim, type, values, result.page);
  std::string sinkType = fmt::format("tensor<{}xf32>", kind.queryHeads);
  std::string parameter, arguments, clauses;
  if (kind.sink) {
    parameter = fmt::format(", %sinks: {}", sinkType);
    arguments = fmt::format(" args(%sinks : {})", sinkType);
  }
  if (kind.softcap)
    clauses += fmt::format(" softcap({})", floatLiteral(*kind.softcap));
  if (kind.sink)
    clauses += " sink(arg0)";
  std::string phase = function.phase == "decode"
                          ? "Decode: one query a sequence"
                          : "Prefill: the new tokens of each sequence, whose keys are in "
                            "the cache already";
  size_t count = kind.layers.size();
  return fmt::format("\n// {}. {}: {} ({} {}).\n"
                     "func.func @{}(%q: {}, %kv: {}, %seq: !attn.sequences{})\n"
                     "    -> {} {{\n"
                     "  %o = attn.attention %q, %kv, %seq{} mask({}) scale({}){}\n"
                     "       : {}, {}, !attn.sequences -> {}\n"
                     "  return %o : {}\n"
                     "}}\n",
                     phase, count == 1 ? "Layer" : "Layers", ranges(kind.layers), count, kind.name,
                     function.name, query, cache, parameter, output, arguments, mask(kind),
                     floatLiteral(kind.scale), clauses, query, cache, output, output);
}

std::string moduleText(const ImportResult &result, std::string_view filename) {
  std::string name = oneLine(baseName(filename));
  std::string text = fmt::format(
      "// {}: {}, {} layers.\n"
      "// Projections, norms and rotary embedding act before these functions: q, and k and v\n"
      "// in the cache, are what the scores are computed from.\n",
      name, result.modelType.empty() ? "no model type" : "model type " + result.modelType,
      result.layers);
  for (const std::string &note : result.notes)
    text += fmt::format("// Note: {}.\n", note);
  for (const ImportedFunction &function : result.functions)
    text += functionText(result, function);
  return text;
}

/// What a caller of the functions has to know about the layers around them.
void addLayerNotes(const Config &config, ImportResult &result) {
  int64_t attending = 0;
  for (const LayerKind &kind : result.kinds)
    attending += int64_t(kind.layers.size());
  if (attending < result.layers)
    result.notes.push_back(
        fmt::format("{} of {} layers have no attention", result.layers - attending, result.layers));
  if (Config::Entry scale = config.find("attention_value_scale"))
    result.notes.push_back(
        fmt::format("v is scaled by {} before it enters the cache", shown(*scale.value)));
}

void addFunctions(ImportResult &result) {
  for (std::string_view phase : {"prefill", "decode"})
    for (size_t i = 0; i < result.kinds.size(); ++i) {
      std::string name(phase);
      if (result.kinds.size() > 1)
        name += "_" + result.kinds[i].name;
      result.functions.push_back({std::move(name), std::string(phase), i});
    }
}

} // namespace

StatusOr<ImportResult> llmopt::importer::importHuggingFace(std::string_view text,
                                                           std::string_view filename,
                                                           const HuggingFaceOptions &options) {
  if (options.page < 1 || options.page > std::numeric_limits<int32_t>::max())
    return invalidArgument("page size {}; 1 to 2147483647 is allowed", options.page);
  LLMOPT_ASSIGN(config, Config::create(text, filename));
  ImportResult result;
  LLMOPT_ASSIGN(typeName, config.string("model_type"));
  LLMOPT_RETURN_IF_ERROR(checkFeatures(config, typeName.value_or("")));
  LLMOPT_ASSIGN(type, modelType(config, result.modelType));
  LLMOPT_RETURN_IF_ERROR(checkUnknownKeys(config, result.modelType));
  LLMOPT_RETURN_IF_ERROR(checkValues(config));
  if (!type.note.empty())
    result.notes.emplace_back(type.note);
  LLMOPT_ASSIGN(element, elementType(config, options.elementType, result.notes));
  LLMOPT_ASSIGN(plan, planLayers(config, type));
  LLMOPT_ASSIGN(kinds, layerKinds(config, type, result.modelType, plan));
  result.elementType = element;
  result.page = options.page;
  result.layers = int64_t(plan.layers.size());
  result.recurrent = std::ranges::count(plan.layers, LayerClass::Recurrent);
  result.kinds = std::move(kinds);
  addLayerNotes(config, result);
  addFunctions(result);
  result.ir = moduleText(result, filename);
  return result;
}

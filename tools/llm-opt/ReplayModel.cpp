#include "tools/llm-opt/ReplayModel.h"

#include "runtime/base/File.h"
#include "tools/import/Assign.h"
#include "tools/import/Config.h"
#include "tools/import/Import.h"

#include <filesystem>

using namespace llmopt;
using namespace llmopt::importer;
using runtime::AttentionFacts;
using runtime::ModelFacts;

namespace {

AttentionFacts factsOf(const LayerKind &kind, uint32_t pageSize, double elementBytes) {
  AttentionFacts facts;
  facts.layers = uint32_t(kind.layers.size());
  facts.queryHeads = uint32_t(kind.queryHeads);
  facts.kvHeads = uint32_t(kind.kvHeads);
  facts.keyDim = uint32_t(kind.headDim);
  facts.valueDim = uint32_t(kind.vHeadDim);
  facts.tokenBytes =
      double(facts.layers) * facts.kvHeads * (facts.keyDim + facts.valueDim) * elementBytes;
  facts.group.pageSize = pageSize;
  facts.group.dataBytes = uint64_t(facts.tokenBytes) * pageSize;
  if (kind.window) {
    facts.group.kind = runtime::kv::GroupKind::Window;
    facts.group.window = uint32_t(*kind.window);
  } else if (kind.chunk) {
    facts.group.kind = runtime::kv::GroupKind::Chunked;
    facts.group.chunk = uint32_t(*kind.chunk);
  }
  return facts;
}

struct Mlp {
  int64_t inner = 0, expertInner = 0, experts = 0, perToken = 0, vocabulary = 0, hidden = 0;
};

StatusOr<Mlp> readMlp(const Config &config) {
  Mlp mlp;
  LLMOPT_ASSIGN(hidden, config.integer({"hidden_size", "n_embd", "d_model"}));
  LLMOPT_ASSIGN(inner,
                config.integer({"intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"}));
  LLMOPT_ASSIGN(expertInner, config.integer({"moe_intermediate_size"}));
  LLMOPT_ASSIGN(experts, config.integer({"num_local_experts", "num_experts", "n_routed_experts"}));
  LLMOPT_ASSIGN(perToken, config.integer({"num_experts_per_tok"}));
  LLMOPT_ASSIGN(vocabulary, config.integer({"vocab_size"}));
  // Where both stand, they differ by padding.
  LLMOPT_ASSIGN(padded, config.integer({"padded_vocab_size"}));
  if (!vocabulary)
    vocabulary = padded;
  if (!hidden || !vocabulary)
    return invalidArgument("{}: {} is missing; the cost model needs it", config.filename(),
                           hidden ? "vocab_size" : "hidden_size");
  mlp.hidden = *hidden;
  mlp.vocabulary = *vocabulary;
  mlp.inner = inner.value_or(4 * *hidden);
  mlp.experts = experts.value_or(0);
  mlp.perToken = std::min(perToken.value_or(1), mlp.experts);
  mlp.expertInner = expertInner.value_or(mlp.inner);
  return mlp;
}

} // namespace

runtime::StatusOr<ModelFacts> cli::readModelFacts(const std::string &path, uint32_t pageSize) {
  constexpr uint64_t kMostBytes = 16 << 20;
  LLMOPT_ASSIGN(bytes, runtime::readFile(path, kMostBytes));
  std::string_view text(reinterpret_cast<const char *>(bytes.data()), bytes.size());
  HuggingFaceOptions wanted;
  LLMOPT_ASSIGN(imported, importHuggingFace(text, path, wanted));
  if (imported.recurrent)
    return makeStatus(StatusCode::Unsupported,
                      "{}: {} of {} layers keep a recurrent state instead of keys, which has no "
                      "pages; served are models whose layers all attend or keep nothing",
                      path, imported.recurrent, imported.layers);
  LLMOPT_ASSIGN(config, Config::create(text, path));
  LLMOPT_ASSIGN(mlp, readMlp(config));

  ModelFacts model;
  model.name = std::filesystem::path(path).stem().string();
  model.layers = uint32_t(imported.layers);
  model.hidden = uint32_t(mlp.hidden);
  model.bytesPerParam = imported.elementType == "f32" ? 4 : 2;
  model.headParams = double(mlp.vocabulary) * double(mlp.hidden);
  double hidden = double(mlp.hidden);
  for (const LayerKind &kind : imported.kinds) {
    AttentionFacts facts = factsOf(kind, pageSize, model.bytesPerParam);
    double heads = double(facts.queryHeads), kvHeads = double(facts.kvHeads);
    model.denseParams += facts.layers * hidden *
                         ((heads + kvHeads) * facts.keyDim + (heads + kvHeads) * facts.valueDim);
    model.groups.push_back(facts);
  }
  if (mlp.experts) {
    model.experts = uint32_t(mlp.experts);
    model.expertsPerToken = uint32_t(mlp.perToken);
    model.expertParams =
        double(model.layers) * double(mlp.experts) * 3 * hidden * double(mlp.expertInner);
  } else {
    model.denseParams += double(model.layers) * 3 * hidden * double(mlp.inner);
  }
  return model;
}

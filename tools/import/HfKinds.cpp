#include "tools/import/HfKinds.h"

#include <cmath>

using namespace llmopt::importer;

namespace {

constexpr int64_t kMostHeads = 65536, kMostDim = 576;

/// Keys that override the common ones for layers of one class.
struct Overrides {
  std::string_view heads, kvHeads, headDim, vHeadDim;
};
constexpr Overrides kCommon = {"", "", "", ""};
constexpr Overrides kSliding = {"swa_num_attention_heads", "swa_num_key_value_heads",
                                "swa_head_dim", "swa_v_head_dim"};

class KindBuilder {
public:
  KindBuilder(const Config &config, const ModelType &type, const std::string &typeName,
              const LayerPlan &plan)
      : config(config), type(type), typeName(typeName), plan(plan) {}

  StatusOr<std::vector<LayerKind>> build() {
    std::vector<LayerKind> kinds;
    std::vector<LayerClass> classes;
    for (size_t i = 0; i < plan.layers.size(); ++i) {
      if (!attends(plan.layers[i]))
        continue;
      size_t at = 0;
      while (at < classes.size() && classes[at] != plan.layers[i])
        ++at;
      if (at == classes.size()) {
        LLMOPT_ASSIGN(kind, kindOf(plan.layers[i]));
        classes.push_back(plan.layers[i]);
        kinds.push_back(std::move(kind));
      }
      kinds[at].layers.push_back(int64_t(i));
    }
    if (kinds.empty())
      return config.unsupported("a model without attention");
    return kinds;
  }

private:
  StatusOr<LayerKind> kindOf(LayerClass layer) {
    LayerKind kind;
    bool sliding = layer == LayerClass::Sliding;
    kind.name = sliding ? "sliding" : layer == LayerClass::Full ? "full" : "chunked";
    if (sliding)
      kind.window = plan.window;
    if (layer == LayerClass::Chunked)
      kind.chunk = plan.chunk;
    LLMOPT_RETURN_IF_ERROR(heads(kind, sliding ? kSliding : kCommon));
    LLMOPT_RETURN_IF_ERROR(dimensions(kind, sliding ? kSliding : kCommon));
    if (layer == LayerClass::Full && typeName == "gemma4_text")
      LLMOPT_RETURN_IF_ERROR(globalOverrides(kind));
    if (kind.queryHeads % kind.kvHeads)
      return invalidArgument("{}: {} query heads are not a multiple of {} KV heads ({} layers)",
                             config.where("num_key_value_heads"), kind.queryHeads, kind.kvHeads,
                             kind.name);
    LLMOPT_RETURN_IF_ERROR(scoring(kind));
    LLMOPT_ASSIGN(sink, config.boolean(sliding ? "add_swa_attention_sink_bias"
                                               : "add_full_attention_sink_bias"));
    kind.sink = sink.value_or(type.sinks);
    return kind;
  }

  /// The value of `key` or, where that is empty or absent, of the common keys.
  StatusOr<std::optional<int64_t>>
  overridden(std::string_view key, std::initializer_list<std::string_view> common, int64_t most) {
    if (!key.empty()) {
      LLMOPT_ASSIGN(own, config.integer({key}, 1, most));
      if (own)
        return own;
    }
    return config.integer(common, 1, most);
  }

  Status heads(LayerKind &kind, const Overrides &keys) {
    LLMOPT_ASSIGN(count, overridden(keys.heads, {"num_attention_heads", "n_head"}, kMostHeads));
    if (!count)
      return config.wrong("num_attention_heads", "the number of query heads is needed");
    kind.queryHeads = *count;
    LLMOPT_ASSIGN(shared, kvHeads(keys));
    kind.kvHeads = shared.value_or(kind.queryHeads);
    return {};
  }

  /// None: as many as query heads.
  StatusOr<std::optional<int64_t>> kvHeads(const Overrides &keys) {
    LLMOPT_ASSIGN(multiQuery, config.boolean("multi_query"));
    LLMOPT_ASSIGN(grouped, config.boolean("multi_query_attention"));
    LLMOPT_ASSIGN(newFalcon, config.boolean("new_decoder_architecture"));
    LLMOPT_ASSIGN(groups, config.integer({"multi_query_group_num"}, 1, kMostHeads));
    LLMOPT_ASSIGN(given, overridden(keys.kvHeads,
                                    {"num_key_value_heads", "num_kv_heads", "n_head_kv",
                                     "num_attention_groups"},
                                    kMostHeads));
    bool one = multiQuery.value_or(type.multiQuery);
    if (typeName == "falcon" && !newFalcon.value_or(false))
      return one ? std::optional<int64_t>(1) : std::nullopt;
    if (given)
      return given;
    if (grouped.value_or(false) || (groups && !grouped))
      return std::optional<int64_t>(groups.value_or(1));
    return one && typeName != "falcon" ? std::optional<int64_t>(1) : std::nullopt;
  }

  Status dimensions(LayerKind &kind, const Overrides &keys) {
    LLMOPT_ASSIGN(given, overridden(keys.headDim, {"head_dim", "kv_channels", "attention_head_dim"},
                                    kMostDim));
    if (given) {
      kind.headDim = *given;
    } else if (type.headDim) {
      kind.headDim = type.headDim;
    } else {
      LLMOPT_RETURN_IF_ERROR(headDimFromHidden(kind));
    }
    LLMOPT_ASSIGN(v, overridden(keys.vHeadDim, {"v_head_dim"}, kMostDim));
    kind.vHeadDim = v.value_or(kind.headDim);
    return {};
  }

  Status headDimFromHidden(LayerKind &kind) {
    LLMOPT_ASSIGN(hidden, config.integer({"hidden_size", "n_embd", "d_model"}));
    if (!hidden)
      return config.wrong("hidden_size", "it or head_dim is needed");
    std::string_view key = config.find("hidden_size") ? "hidden_size"
                           : config.find("n_embd")    ? "n_embd"
                                                      : "d_model";
    if (*hidden % kind.queryHeads)
      return config.wrong(key, fmt::format("without a head_dim it is a multiple of the "
                                           "{} query heads",
                                           kind.queryHeads));
    kind.headDim = *hidden / kind.queryHeads;
    if (kind.headDim > kMostDim)
      return config.wrong(key, fmt::format("that is {} a head; head dimensions from 1 to "
                                           "{} are allowed",
                                           kind.headDim, kMostDim));
    return {};
  }

  /// gemma4: full layers have dimensions of their own, and their own KV heads where K
  /// and V come from one projection.
  Status globalOverrides(LayerKind &kind) {
    constexpr int64_t kClassDefault = 512;
    LLMOPT_ASSIGN(dim, config.integer({"global_head_dim"}, 1, kMostDim));
    LLMOPT_ASSIGN(kv, config.integer({"num_global_key_value_heads"}, 1, kMostHeads));
    LLMOPT_ASSIGN(same, config.boolean("attention_k_eq_v"));
    kind.headDim = kind.vHeadDim = dim.value_or(kClassDefault);
    if (kv && same.value_or(false))
      kind.kvHeads = *kv;
    return {};
  }

  Status scoring(LayerKind &kind) {
    LLMOPT_ASSIGN(scalar, config.positiveNumber("query_pre_attn_scalar"));
    LLMOPT_ASSIGN(multiplier, config.positiveNumber("attention_multiplier"));
    LLMOPT_ASSIGN(softcap, config.positiveNumber("attn_logit_softcapping"));
    if (scalar && multiplier)
      return config.wrong("attention_multiplier",
                          "query_pre_attn_scalar is given too; one of them is allowed");
    double base = scalar                    ? *scalar
                  : type.queryPreAttnScalar ? type.queryPreAttnScalar
                                            : double(kind.headDim);
    kind.scale = multiplier ? *multiplier : type.scale ? type.scale : 1 / std::sqrt(base);
    kind.softcap = softcap;
    bool absent = !config.find("attn_logit_softcapping");
    for (const Config::Scope &scope : config.scopes())
      absent &= !scope.object->contains("attn_logit_softcapping");
    if (absent && type.softcap)
      kind.softcap = type.softcap;
    return {};
  }

  const Config &config;
  const ModelType &type;
  const std::string &typeName;
  const LayerPlan &plan;
};

} // namespace

StatusOr<std::vector<LayerKind>> llmopt::importer::layerKinds(const Config &config,
                                                              const ModelType &type,
                                                              const std::string &typeName,
                                                              const LayerPlan &plan) {
  return KindBuilder(config, type, typeName, plan).build();
}

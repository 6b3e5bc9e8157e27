#include "tools/import/HfKeys.h"

#include "tools/import/Text.h"

#include <algorithm>
#include <array>

using namespace llmopt::importer;
using nlohmann::json;

namespace {

constexpr KeyUse Read = KeyUse::Read, Outside = KeyUse::Outside, Feature = KeyUse::Feature,
                 MustHold = KeyUse::MustHold;

constexpr std::string_view kMla = "multi-head latent attention",
                           kIndexer = "attention over keys that an indexer selects",
                           kLinear = "linear attention", kAlibi = "ALiBi";

/// Types in which a key means what its row says.
constexpr std::string_view kLlama4 = "llama4_text", kGemma4 = "gemma4_text",
                           kGranite = "granite granitemoe granitemoeshared granitemoehybrid";

/// Features first, in the order in which they name a model best.
constexpr KnownKey kKeys[] = {
    {"kv_lora_rank", Feature, kMla},
    {"linear_attn_config", Feature, kLinear},
    {"linear_num_key_heads", Feature, kLinear},
    {"linear_num_value_heads", Feature, kLinear},
    {"linear_key_head_dim", Feature, kLinear},
    {"linear_value_head_dim", Feature, kLinear},
    {"full_attention_interval", Feature, kLinear},
    {"layer_group_size", Feature, kLinear},
    {"linear_silu", Feature, kLinear},
    {"lambda_std_dev", Feature, "differential attention"},
    {"block_types", Feature, "a choice of attention for single layers"},
    {"prefix_lm", Feature, "a prefix that is seen in both directions"},
    {"query_scale", Feature, "a scale of the queries"},
    {"sparse_attention_config", Feature, "attention over key blocks that an indexer selects"},
    {"index_topk", Feature, kIndexer},
    {"index_n_heads", Feature, kIndexer},
    {"index_head_dim", Feature, kIndexer},
    {"compress_ratios", Feature, "attention over compressed keys"},
    {"q_lora_rank", Feature, kMla},
    {"qk_nope_head_dim", Feature, kMla},
    {"qk_rope_head_dim", Feature, kMla},
    {"qk_head_dim", Feature, kMla},
    {"mla_use_nope", Feature, kMla},
    {"mla_use_output_gate", Feature, kMla},
    {"alibi", Feature, kAlibi},
    {"use_alibi", Feature, kAlibi},
    {"alibi_bias_max", Feature, kAlibi},
    {"attention_window", Feature, "Longformer's windows with global tokens"},
    {"num_random_blocks", Feature, "random block-sparse attention"},
    {"attention_type", Feature, "a choice of attention by name"},
    {"attention_types", Feature, "attention chosen for groups of layers"},
    {"attention_layers", Feature, "attention chosen for single layers"},
    {"attn_config", Feature, "a nested description of attention"},
    {"relative_attention", Feature, "a relative position bias"},
    {"relative_attention_num_buckets", Feature, "a relative position bias"},
    {"relative_attention_max_distance", Feature, "a relative position bias"},
    {"is_encoder_decoder", Feature, "encoder-decoder attention"},
    {"add_cross_attention", Feature, "cross-attention"},
    {"cross_attention_hidden_size", Feature, "cross-attention"},
    {"cross_attention_layers", Feature, "cross-attention"},
    {"scale_attn_by_inverse_layer_idx", Feature, "a scale of its own in every layer"},
    {"scale_attn_weights", MustHold, "attention without a scale"},
    {"is_causal", MustHold, "bidirectional attention"},
    {"use_causal_mask", MustHold, "bidirectional attention"},

    {"num_attention_heads", Read, ""},
    {"n_head", Read, ""},
    {"num_key_value_heads", Read, ""},
    {"num_kv_heads", Read, ""},
    {"n_head_kv", Read, ""},
    {"num_attention_groups", Read, ""},
    {"multi_query", Read, ""},
    {"multi_query_attention", Read, ""},
    {"multi_query_group_num", Read, ""},
    {"head_dim", Read, ""},
    {"attention_head_dim", Read, ""},
    {"kv_channels", Read, ""},
    {"v_head_dim", Read, ""},
    {"sliding_window", Read, ""},
    {"sliding_window_size", Read, ""},
    {"use_sliding_window", Read, ""},
    {"max_window_layers", Read, ""},
    {"sliding_window_pattern", Read, ""},
    {"_sliding_window_pattern", Read, ""},
    {"layer_types", Read, ""},
    {"hybrid_layer_pattern", Read, ""},
    {"hybrid_override_pattern", Read, ""},
    {"layers_block_type", Read, ""},
    {"attention_chunk_size", Read, ""},
    {"query_pre_attn_scalar", Read, ""},
    {"attention_multiplier", Read, ""},
    {"attn_logit_softcapping", Read, ""},
    {"swa_num_attention_heads", Read, ""},
    {"swa_num_key_value_heads", Read, ""},
    {"swa_head_dim", Read, ""},
    {"swa_v_head_dim", Read, ""},
    {"add_swa_attention_sink_bias", Read, ""},
    {"add_full_attention_sink_bias", Read, ""},
    {"global_head_dim", Read, "", kGemma4},
    {"num_global_key_value_heads", Read, "", kGemma4},
    {"attention_k_eq_v", Read, "", kGemma4},
    {"use_bidirectional_attention", Read, ""},
    {"attn_type_list", Read, ""},
    {"full_attn_mod", Read, ""},
    {"position_embedding_type", Read, ""},

    {"attention_bias", Outside, "bias of the projections"},
    {"attention_out_bias", Outside, "bias of a projection"},
    {"attention_in_bias", Outside, "bias of the projections"},
    {"attention_qkv_bias", Outside, "bias of the projections"},
    {"qkv_bias", Outside, "bias of the projections"},
    {"add_qkv_bias", Outside, "bias of the projections"},
    {"use_qkv_bias", Outside, "bias of the projections"},
    {"interleaved_qkv", Outside, "layout of the projections' weights"},
    {"pre_allocate_kv_cache", Outside, "how the cache is allocated"},
    {"lm_head_bias", Outside, "bias of the vocabulary projection"},
    {"clip_qkv", Outside, "clamps the projections' results"},
    {"use_qk_norm", Outside, "q and k are normalised before attention"},
    {"qk_norm", Outside, "q and k are normalised before attention"},
    {"qk_norm_type", Outside, "q and k are normalised before attention"},
    {"qk_layernorm", Outside, "q and k are normalised before attention"},
    {"use_qk_layernorm", Outside, "q and k are normalised before attention"},
    {"attn_temperature_tuning", Outside, "q is scaled by its position before attention", kLlama4},
    {"attn_scale", Outside, "q is scaled by its position before attention", kLlama4},
    {"attention_value_scale", Outside, "v is scaled before it enters the cache", "mimo_v2_flash"},
    {"attn_output_gate", Outside, "gates the result"},
    {"attention_output_gate", Outside, "gates the result"},
    {"use_head_wise_attn_gate", Outside, "gates the result"},
    {"attention_softmax_in_fp32", Outside, "the softmax is float32 anyhow"},
    {"scale_attention_softmax_in_fp32", Outside, "the softmax is float32 anyhow"},
    {"reorder_and_upcast_attn", Outside, "the softmax is float32 anyhow"},
    {"apply_query_key_layer_scaling", Outside, "divides and multiplies by the layer's number",
     "chatglm"},
    {"num_kv_shared_layers", Outside, "says which layer's cache is read",
     "gemma4_text gemma3n_text"},
    {"parallel_attn", Outside, "feed-forward beside attention"},
    {"flash_attn", Outside, "choice of an implementation"},
    {"use_flash_attn", Outside, "choice of an implementation"},
    {"use_flash_attention", Outside, "choice of an implementation"},
    {"attn_implementation", Outside, "choice of an implementation"},
    {"_attn_implementation", Outside, "choice of an implementation"},
    {"_attn_implementation_autoset", Outside, "choice of an implementation"},
    {"_attn_implementation_internal", Outside, "choice of an implementation"},
    {"kv_cache_dtype", Outside, "the element type is an option of the import"},
    {"output_attentions", Outside, "asks for scores as a result"},
    {"pruned_heads", Outside, "a training record"},
    {"attn_res_block_size", Outside, "residual stream", "kimi_linear"},
    {"logit_scale", Outside, "scales the vocabulary logits", "cohere cohere2"},
    {"logits_scaling", Outside, "scales the vocabulary logits", kGranite},
    {"final_logit_softcapping", Outside, "caps the vocabulary logits"},
    {"num_logits_to_keep", Outside, "vocabulary logits"},
    {"chunk_size", Outside, "chunks of a state-space scan", "nemotron_h"},
    {"mtp_layers_block_type", Outside, "layers of the draft head", "nemotron_h"},
    {"mtp_hybrid_override_pattern", Outside, "layers of the draft head", "nemotron_h"},
    {"activation_sparsity_pattern", Outside, "feed-forward", "gemma3n_text"},
    {"keys_to_ignore_at_inference", Outside, "names of results"},
    {"prefix", Outside, "text before a prompt"},
    {"chunk_size_feed_forward", Outside, "feed-forward"},
    {"decoder_sparse_step", Outside, "expert layers"},
};

/// Families of keys that act outside attention whatever else their names say.
constexpr std::string_view kOutsideParts[] = {"rope",   "rotary",   "moe",        "expert",
                                              "router", "mlp",      "mamba",      "dropout",
                                              "pdrop",  "token_id", "token_index"};
constexpr std::string_view kOutsidePrefixes[] = {"vision_", "audio_", "image_", "video_", "mm_"};

constexpr std::string_view kAttentionParts[] = {"attn",
                                                "attention",
                                                "head",
                                                "window",
                                                "sparse",
                                                "mask",
                                                "softcap",
                                                "chunk",
                                                "sink",
                                                "qk",
                                                "kv",
                                                "key_value",
                                                "multi_query",
                                                "alibi",
                                                "logit",
                                                "causal",
                                                "bidirect",
                                                "swa_",
                                                "sliding",
                                                "relative_",
                                                "dilat",
                                                "layer_type",
                                                "layer_pattern",
                                                "lora_rank",
                                                "softmax",
                                                "index_",
                                                "mla_",
                                                "latent",
                                                "position_embedding_type",
                                                "local_",
                                                "global_",
                                                "compress",
                                                "hybrid_",
                                                "block_type",
                                                "block_size",
                                                "layer_group",
                                                "pattern",
                                                "linear_",
                                                "lightning",
                                                "recurrent",
                                                "lambda",
                                                "diff_",
                                                "differential",
                                                "prefix",
                                                "query",
                                                "cross_",
                                                "encoder",
                                                "memory",
                                                "score",
                                                "no_op"};

/// Objects that describe something other than the text model's attention, by their names.
constexpr std::string_view kOtherObjects[] = {
    "rope", "rotary", "quant", "compression_config", "auto_map", "id2label", "label2id"};
constexpr std::string_view kOtherTowers[] = {"vision", "visual", "vit_",  "audio",
                                             "speech", "image",  "video", "mm_"};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool holdsFor(const KnownKey &known, std::string_view type) {
  if (known.types.empty())
    return true;
  for (std::string_view rest = known.types; !rest.empty();) {
    size_t end = std::min(rest.find(' '), rest.size());
    if (rest.substr(0, end) == type)
      return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

const KnownKey *lookUp(std::string_view key, std::string_view type) {
  auto found = std::find_if(std::begin(kKeys), std::end(kKeys), [&](const KnownKey &known) {
    return known.key == key && holdsFor(known, type);
  });
  return found == std::end(kKeys) ? nullptr : found;
}

bool isSet(const json &value) {
  if (value.is_boolean())
    return value.get<bool>();
  if (value.is_number())
    return value != 0;
  return !value.is_null() && !value.empty();
}

bool isRefused(const KnownKey &known, const json &value) {
  if (known.use == Feature)
    return isSet(value);
  return known.use == MustHold && !value.is_null() && value != true;
}

bool isAnother(std::string_view object) {
  auto found = [&](std::string_view part) { return contains(object, part); };
  auto starts = [&](std::string_view prefix) { return object.starts_with(prefix); };
  return std::any_of(std::begin(kOtherObjects), std::end(kOtherObjects), found) ||
         std::any_of(std::begin(kOtherTowers), std::end(kOtherTowers), starts);
}

/// The first key inside `value` that would change attention if it were read, "" where there is
/// none. Nothing inside such an object is read, so a key that is read elsewhere counts too.
std::string unreadInside(const json &value, std::string_view type) {
  if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i)
      if (std::string inner = unreadInside(value[i], type); !inner.empty())
        return fmt::format("[{}]{}", i, inner);
    return "";
  }
  if (!value.is_object())
    return "";
  for (const auto &[key, item] : value.items()) {
    const KnownKey *known = lookUp(key, type);
    if (item.is_null() || isAnother(key) || (known && known->use == Outside))
      continue;
    bool off = known && (known->use == Feature || known->use == MustHold);
    if (off ? isRefused(*known, item) : known || soundsLikeAttention(key))
      return fmt::format(".{}", key);
    if (std::string inner = unreadInside(item, type); !inner.empty())
      return fmt::format(".{}{}", key, inner);
  }
  return "";
}

} // namespace

bool llmopt::importer::soundsLikeAttention(std::string_view key) {
  for (std::string_view part : kOutsideParts)
    if (contains(key, part))
      return false;
  for (std::string_view prefix : kOutsidePrefixes)
    if (key.starts_with(prefix))
      return false;
  return std::any_of(std::begin(kAttentionParts), std::end(kAttentionParts),
                     [&](std::string_view part) { return contains(key, part); });
}

Status llmopt::importer::checkFeatures(const Config &config, std::string_view type) {
  const KnownKey *feature = nullptr;
  const json *featureValue = nullptr;
  for (const Config::Scope &scope : config.scopes())
    for (const auto &[key, value] : scope.object->items()) {
      const KnownKey *known = lookUp(key, type);
      if (known && isRefused(*known, value) && (!feature || known < feature)) {
        feature = known;
        featureValue = &value;
      }
    }
  if (!feature)
    return {};
  return config.unsupported(
      fmt::format("{} ({} {})", feature->text, feature->key, shown(*featureValue)));
}

Status llmopt::importer::checkUnknownKeys(const Config &config, std::string_view type) {
  auto isScope = [&](const json &value) {
    return std::any_of(config.scopes().begin(), config.scopes().end(),
                       [&](const Config::Scope &scope) { return scope.object == &value; });
  };
  for (const Config::Scope &scope : config.scopes())
    for (const auto &[key, value] : scope.object->items()) {
      const KnownKey *known = lookUp(key, type);
      if (known || value.is_null() || isScope(value))
        continue;
      if (soundsLikeAttention(key))
        return makeStatus(kUnsupported,
                          "{}: key '{}' is not known and its name sounds like attention; "
                          "remove it if it changes nothing there",
                          config.where(key), oneLine(key));
      if (isAnother(key))
        continue;
      if (std::string inner = unreadInside(value, type); !inner.empty())
        return makeStatus(kUnsupported,
                          "{}: key '{}{}' lies in an object that is not read and sounds like "
                          "attention; remove it if it changes nothing there",
                          config.where(key), oneLine(key), oneLine(inner));
    }
  return {};
}

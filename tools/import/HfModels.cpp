#include "tools/import/HfModels.h"

#include "tools/import/Text.h"

#include <algorithm>

using namespace llmopt::importer;

namespace {

constexpr std::string_view kEncoder = "bidirectional encoder attention",
                           kEncoderDecoder = "encoder-decoder attention",
                           kRelative = "a relative position bias",
                           kNoAttention = "a model without attention",
                           kOwnPattern = "layers of attention between others",
                           kImages = "image tokens see each other in both directions in "
                                     "this model; these functions are for text";

const ModelType kTypes[] = {
    // Plain decoders.
    {.name = "baichuan"},
    {.name = "chatglm"},
    {.name = "cohere"},
    {.name = "exaone"},
    {.name = "glm"},
    {.name = "glm4"},
    {.name = "glm4_moe"},
    {.name = "gpt2"},
    {.name = "gpt_neox"},
    {.name = "gptj"},
    {.name = "internlm2"},
    {.name = "llama"},
    {.name = "minicpm"},
    {.name = "minimax_m2"},
    {.name = "ministral3"},
    {.name = "mixtral"},
    {.name = "nemotron"},
    {.name = "olmo"},
    {.name = "olmo2"},
    {.name = "olmoe"},
    {.name = "opt"},
    {.name = "orion"},
    {.name = "phi"},
    {.name = "phi-msft"},
    {.name = "phi3"},
    {.name = "phimoe"},
    {.name = "stablelm"},
    {.name = "starcoder2"},
    {.name = "step3p7"},
    {.name = "mistral", .window = 4096},
    {.name = "falcon", .multiQuery = true},
    {.name = "gpt_bigcode", .multiQuery = true},
    {.name = "gemma", .headDim = 256},
    {.name = "nemotron_h",
     .needs = "hybrid_override_pattern layers_block_type",
     .linearIsStateSpace = true},

    // The scale is attention_multiplier, whose default is 1.
    {.name = "granite", .scale = 1},
    {.name = "granitemoe", .scale = 1},
    {.name = "granitemoeshared", .scale = 1},
    {.name = "granitemoehybrid", .needs = "layer_types", .scale = 1},

    // A window only where it is asked for.
    {.name = "mimo", .windowOptIn = true},
    {.name = "qwen2", .windowOptIn = true},
    {.name = "qwen2_moe", .windowOptIn = true},
    {.name = "qwen3", .windowOptIn = true, .headDim = 128},
    {.name = "qwen3_moe", .windowOptIn = true},
    {.name = "smollm3", .windowOptIn = true, .windowNeedsList = true},

    // Layers of two kinds.
    {.name = "cohere2", .fullEvery = 4, .window = 4096},
    {.name = "exaone4", .fullEvery = 4, .window = 4096},
    {.name = "olmo3", .fullEvery = 4, .window = 4096},
    {.name = "gemma2",
     .fullEvery = 2,
     .headDim = 256,
     .window = 4096,
     .queryPreAttnScalar = 256,
     .softcap = 50},
    {.name = "gemma3_text",
     .fullEvery = 6,
     .headDim = 256,
     .window = 4096,
     .queryPreAttnScalar = 256},
    // Its code sets the scale to 1: q and k are normalised.
    {.name = "gemma4_text",
     .fullEvery = 6,
     .lastFull = true,
     .headDim = 256,
     .window = 512,
     .scale = 1},
    {.name = "gemma3n_text", .needs = "layer_types", .headDim = 256, .window = 512, .scale = 1},
    {.name = "gpt_oss", .fullEvery = 2, .sinks = true, .headDim = 64, .window = 128},
    {.name = "llama4_text", .fullEvery = 4, .chunked = true},
    {.name = "mimo_v2_flash", .chunkIsWindow = true},

    // Refused.
    {.name = "bloom", .refusal = "ALiBi"},
    {.name = "mpt", .refusal = "ALiBi"},
    {.name = "longformer", .refusal = "Longformer's windows with global tokens"},
    {.name = "led", .refusal = "Longformer's windows with global tokens"},
    {.name = "big_bird", .refusal = "BigBird's random block-sparse attention"},
    {.name = "bigbird_pegasus", .refusal = "BigBird's random block-sparse attention"},
    {.name = "bailing_moe_linear", .refusal = "linear attention"},
    {.name = "bailing_moe_v2_linear", .refusal = "linear attention"},
    {.name = "diffllama", .refusal = "differential attention"},
    {.name = "gpt_neo", .refusal = "attention without a scale"},
    {.name = "jamba", .refusal = kOwnPattern},
    {.name = "bamba", .refusal = kOwnPattern},
    {.name = "zamba", .refusal = kOwnPattern},
    {.name = "zamba2", .refusal = kOwnPattern},
    {.name = "recurrent_gemma", .refusal = kOwnPattern},
    {.name = "nemotron-nas", .refusal = "attention chosen for single layers"},
    {.name = "reformer", .refusal = "attention by hashing"},
    {.name = "albert", .refusal = kEncoder},
    {.name = "bert", .refusal = kEncoder},
    {.name = "distilbert", .refusal = kEncoder},
    {.name = "electra", .refusal = kEncoder},
    {.name = "modernbert", .refusal = kEncoder},
    {.name = "roberta", .refusal = kEncoder},
    {.name = "xlm-roberta", .refusal = kEncoder},
    {.name = "deberta", .refusal = kRelative},
    {.name = "deberta-v2", .refusal = kRelative},
    {.name = "t5", .refusal = kRelative},
    {.name = "mt5", .refusal = kRelative},
    {.name = "umt5", .refusal = kRelative},
    {.name = "bart", .refusal = kEncoderDecoder},
    {.name = "marian", .refusal = kEncoderDecoder},
    {.name = "whisper", .refusal = kEncoderDecoder},
    {.name = "mamba", .refusal = kNoAttention},
    {.name = "mamba2", .refusal = kNoAttention},
    {.name = "rwkv", .refusal = kNoAttention},
};

bool isCausalArchitecture(const Config &config) {
  Config::Entry entry = config.find("architectures");
  if (!entry || !entry.value->is_array())
    return false;
  for (const nlohmann::json &item : *entry.value) {
    if (!item.is_string())
      continue;
    std::string name = item.get<std::string>();
    for (std::string_view end : {"ForCausalLM", "LMHeadModel"})
      if (std::string_view(name).ends_with(end))
        return true;
  }
  return false;
}

Status checkNeeds(const Config &config, const ModelType &type) {
  if (type.needs.empty())
    return {};
  std::string_view first = type.needs.substr(0, type.needs.find(' '));
  std::string_view second = type.needs.substr(type.needs.rfind(' ') + 1);
  if (config.find(first) || config.find(second))
    return {};
  return config.wrong(first, fmt::format("models of type {} need it{}", type.name,
                                         first == second ? "" : fmt::format(" or {}", second)));
}

/// The 13B models of a family whose 7B models use rotary embedding.
StatusOr<bool> isBaichuanWithAlibi(const Config &config) {
  LLMOPT_ASSIGN(hidden, config.integer({"hidden_size"}));
  return hidden.value_or(0) == 5120;
}

} // namespace

StatusOr<ModelType> llmopt::importer::modelType(const Config &config, std::string &name) {
  LLMOPT_ASSIGN(found, config.string("model_type"));
  name = oneLine(found.value_or(""));
  auto row = std::find_if(std::begin(kTypes), std::end(kTypes),
                          [&](const ModelType &type) { return type.name == name; });
  ModelType type;
  if (row != std::end(kTypes)) {
    type = *row;
  } else if (!name.empty() && !isCausalArchitecture(config)) {
    return config.unsupported(fmt::format("model type '{}'", name));
  } else {
    type.note = "the model type is not known; taken as a decoder with causal attention "
                "and no more than its config says";
  }
  if (!type.refusal.empty())
    return config.unsupported(fmt::format("{} (model_type {})", type.refusal, name));
  LLMOPT_RETURN_IF_ERROR(checkNeeds(config, type));
  LLMOPT_ASSIGN(alibi, isBaichuanWithAlibi(config));
  if (name == "baichuan" && alibi)
    return config.unsupported("ALiBi (model_type baichuan, hidden_size 5120)");
  bool outer = config.scopes().size() > 1;
  if (name == "gemma4_text" || (name == "gemma3_text" && outer))
    type.note = kImages;
  return type;
}

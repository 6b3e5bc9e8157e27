#include "tools/import/HfLayers.h"

#include "tools/import/Text.h"

#include <algorithm>

using namespace llmopt::importer;
using nlohmann::json;

namespace {

constexpr int64_t kMostLayers = 10000;

/// The sources of a layer pattern, each of which answers or passes.
class LayerPlanner {
public:
  LayerPlanner(const Config &config, const ModelType &type) : config(config), type(type) {}

  StatusOr<LayerPlan> plan() {
    LLMOPT_ASSIGN(count,
                  config.integer({"num_hidden_layers", "n_layer", "num_layers"}, 1, kMostLayers));
    if (!count)
      return config.wrong("num_hidden_layers", "the number of layers is needed");
    layers = *count;
    LLMOPT_RETURN_IF_ERROR(readWindow());
    LLMOPT_RETURN_IF_ERROR(readChunk());
    using Source = Status (LayerPlanner::*)();
    for (Source source :
         {&LayerPlanner::fromOverridePattern, &LayerPlanner::fromBlockTypes,
          &LayerPlanner::fromLayerTypes, &LayerPlanner::fromHybridPattern,
          &LayerPlanner::fromNoRope, &LayerPlanner::fromWindowPattern, &LayerPlanner::fromType}) {
      LLMOPT_RETURN_IF_ERROR((this->*source)());
      if (!result.layers.empty())
        break;
    }
    if (type.lastFull)
      result.layers.back() = LayerClass::Full;
    return result;
  }

private:
  LayerClass local() const {
    if (result.chunk)
      return LayerClass::Chunked;
    return result.window ? LayerClass::Sliding : LayerClass::Full;
  }

  /// A window that is off leaves no trace: sliding layers become full ones.
  Status readWindow() {
    LLMOPT_ASSIGN(on, config.boolean("use_sliding_window"));
    windowSwitchedOff = !on.value_or(!type.windowOptIn);
    LLMOPT_ASSIGN(window, config.integer({"sliding_window", "sliding_window_size"}));
    if (windowSwitchedOff)
      return {};
    result.window = window;
    if (!window && type.window && !isNull("sliding_window"))
      result.window = type.window;
    return {};
  }

  bool isNull(std::string_view key) const {
    return std::any_of(config.scopes().begin(), config.scopes().end(),
                       [&](const Config::Scope &scope) {
                         auto found = scope.object->find(key);
                         return found != scope.object->end() && found->is_null();
                       });
  }

  Status readChunk() {
    LLMOPT_ASSIGN(chunk, config.integer({"attention_chunk_size"}));
    if (!chunk)
      return {};
    if (type.chunked)
      result.chunk = chunk;
    else if (!type.chunkIsWindow || chunk != result.window)
      return config.unsupported(
          fmt::format("chunked attention in this model type (attention_chunk_size {})", *chunk));
    return {};
  }

  /// nemotron_h: '*' is an attention layer, 'M' Mamba, the others keep nothing.
  Status fromOverridePattern() {
    LLMOPT_ASSIGN(pattern, config.string("hybrid_override_pattern"));
    if (!pattern)
      return {};
    LLMOPT_RETURN_IF_ERROR(checkCount("hybrid_override_pattern", pattern->size()));
    for (char letter : *pattern) {
      if (std::string_view("M*-E").find(letter) == std::string_view::npos)
        return config.wrong("hybrid_override_pattern", "the letters M, *, - and E are allowed");
      result.layers.push_back(letter == '*'   ? local()
                              : letter == 'M' ? LayerClass::Recurrent
                                              : LayerClass::NoAttention);
    }
    return checkBlockTypes();
  }

  /// nemotron_h again, in words.
  Status fromBlockTypes() { return fromNames("layers_block_type"); }

  /// Two forms of one pattern have to agree.
  Status checkBlockTypes() {
    LayerPlan letters = std::move(result);
    result = {{}, letters.window, letters.chunk};
    LLMOPT_RETURN_IF_ERROR(fromBlockTypes());
    if (!result.layers.empty() && result.layers != letters.layers)
      return config.wrong("layers_block_type", "hybrid_override_pattern says otherwise");
    result = std::move(letters);
    return {};
  }

  Status fromLayerTypes() { return fromNames("layer_types"); }

  Status fromNames(std::string_view key) {
    LLMOPT_ASSIGN(list, listOf(key));
    if (!list)
      return {};
    for (size_t i = 0; i < list->size(); ++i) {
      const json &item = (*list)[i];
      std::string name = item.is_string() ? item.get<std::string>() : shown(item);
      LLMOPT_ASSIGN(layer, classOf(key, name, i));
      result.layers.push_back(layer);
    }
    return {};
  }

  StatusOr<LayerClass> classOf(std::string_view key, const std::string &name, size_t index) {
    if (name == "full_attention" || name == "attention")
      return type.linearIsStateSpace ? local() : LayerClass::Full;
    if (name == "sliding_attention") {
      if (result.window || windowSwitchedOff)
        return result.window ? LayerClass::Sliding : LayerClass::Full;
      return config.wrong("sliding_window",
                          fmt::format("{} names sliding_attention, which needs it", key));
    }
    if (name == "chunked_attention") {
      if (result.chunk)
        return LayerClass::Chunked;
      return config.wrong("attention_chunk_size",
                          fmt::format("{} names chunked_attention, which needs it", key));
    }
    if (name == "conv" || name == "mamba")
      return LayerClass::Recurrent;
    if (type.linearIsStateSpace && name == "linear_attention")
      return LayerClass::Recurrent;
    if (type.linearIsStateSpace && (name == "moe" || name == "mlp"))
      return LayerClass::NoAttention;
    if (name == "linear_attention")
      return config.unsupported(fmt::format("linear attention ({} names linear_attention)", key));
    return makeStatus(kUnsupported,
                      "{}: {}[{}] is '{}'; full_attention, "
                      "sliding_attention and chunked_attention are supported",
                      config.where(key), key, index, oneLine(name));
  }

  /// mimo_v2_flash: 1 slides.
  Status fromHybridPattern() {
    return fromFlags("hybrid_layer_pattern", local(), LayerClass::Full);
  }

  /// llama4: 1 is a layer with rotary embedding, those are the chunked ones.
  Status fromNoRope() {
    if (!type.chunked)
      return {};
    return fromFlags("no_rope_layers", local(), LayerClass::Full);
  }

  Status fromFlags(std::string_view key, LayerClass one, LayerClass zero) {
    LLMOPT_ASSIGN(list, listOf(key));
    if (!list)
      return {};
    for (const json &item : *list) {
      if (item != 0 && item != 1)
        return config.wrong(key, "items 0 and 1 are allowed");
      result.layers.push_back(item == 1 ? one : zero);
    }
    return {};
  }

  /// A number n: every n-th layer is full. Or letters: L slides, G is full.
  Status fromWindowPattern() {
    LLMOPT_ASSIGN(entry, config.findAny({"sliding_window_pattern", "_sliding_window_pattern"}));
    if (!entry)
      return {};
    if (!entry.value->is_string()) {
      LLMOPT_ASSIGN(every, config.integer({entry.key}));
      setFullEvery(*every);
      return {};
    }
    std::string letters = entry.value->get<std::string>();
    if (letters.empty() || letters.find_first_not_of("LG") != std::string::npos)
      return config.wrong(entry.key, "a number, or letters L and G, are allowed");
    for (int64_t i = 0; i < layers; ++i)
      result.layers.push_back(letters[size_t(i) % letters.size()] == 'G' ? LayerClass::Full
                                                                         : local());
    return {};
  }

  Status fromType() {
    LLMOPT_ASSIGN(interval, config.integer({"no_rope_layer_interval"}));
    LLMOPT_ASSIGN(fullUntil, config.integer({"max_window_layers"}, 0));
    if (result.window && (type.windowNeedsList || (fullUntil && !type.windowOptIn)))
      return config.wrong("layer_types", "which layers slide is not known without it");
    if (type.windowOptIn) {
      int64_t first = fullUntil.value_or(28);
      for (int64_t i = 0; i < layers; ++i)
        result.layers.push_back(i < first ? LayerClass::Full : local());
    } else if (type.fullEvery) {
      setFullEvery(type.chunked ? interval.value_or(type.fullEvery) : type.fullEvery);
    } else {
      result.layers.assign(size_t(layers), local());
    }
    return {};
  }

  void setFullEvery(int64_t every) {
    for (int64_t i = 0; i < layers; ++i)
      result.layers.push_back((i + 1) % every ? local() : LayerClass::Full);
  }

  /// The items of a list with one for each layer; null where the key is absent.
  StatusOr<const json *> listOf(std::string_view key) {
    Config::Entry entry = config.find(key);
    if (!entry || (entry.value->is_array() && entry.value->empty()))
      return static_cast<const json *>(nullptr);
    if (!entry.value->is_array())
      return config.wrong(key, "a list is allowed");
    LLMOPT_RETURN_IF_ERROR(checkCount(key, entry.value->size()));
    return entry.value;
  }

  Status checkCount(std::string_view key, size_t count) {
    if (count == size_t(layers))
      return {};
    return invalidArgument("{}: {} names {} layers; the model has {}", config.where(key), key,
                           count, layers);
  }

  const Config &config;
  const ModelType &type;
  LayerPlan result;
  int64_t layers = 0;
  bool windowSwitchedOff = false;
};

} // namespace

StatusOr<LayerPlan> llmopt::importer::planLayers(const Config &config, const ModelType &type) {
  return LayerPlanner(config, type).plan();
}

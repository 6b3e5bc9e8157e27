// Which kind of attention each layer of a model has.
#pragma once

#include "tools/import/HfModels.h"

namespace llmopt::importer {

enum class LayerClass : uint8_t { Full, Sliding, Chunked, NoAttention, Recurrent };

/// Whether it has keys.
inline bool attends(LayerClass layer) { return layer < LayerClass::NoAttention; }

struct LayerPlan {
  std::vector<LayerClass> layers;
  std::optional<int64_t> window; ///< of sliding layers
  std::optional<int64_t> chunk;  ///< of chunked layers
};

StatusOr<LayerPlan> planLayers(const Config &config, const ModelType &type);

} // namespace llmopt::importer

// The attention of each layer kind: heads, dimensions, scale, mask, sink.
#pragma once

#include "tools/import/HfLayers.h"

namespace llmopt::importer {

/// One entry for each distinct kind, in the order of their first layers.
StatusOr<std::vector<LayerKind>> layerKinds(const Config &config, const ModelType &type,
                                            const std::string &typeName, const LayerPlan &plan);

} // namespace llmopt::importer

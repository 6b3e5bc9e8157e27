// What the cost model of a replay needs of a model, from its Hugging Face config.json.
#pragma once

#include "runtime/engine/StepCost.h"

#include <string>

namespace llmopt::cli {

/// Layer groups as the importer tells them, each with pages of `pageSize` slots, and the
/// parameters of the linear layers (a gated MLP, or a mixture of them; norms and biases are
/// left out). Refuses what the importer refuses.
runtime::StatusOr<runtime::ModelFacts> readModelFacts(const std::string &path, uint32_t pageSize);

} // namespace llmopt::cli

// Tensor maps in the description of a launch for `llm-opt sim` (docs/simulator.md):
//
//   { "tensormap": { "npy": "k.npy", "box": [64, 128], "swizzle": 128 } }
#pragma once

#include "runtime/base/Npy.h"
#include "runtime/device/sim/TensorMap.h"

#include <nlohmann/json_fwd.hpp>

namespace llmopt::cli {

/// The map of an array that the entry describes: by default all of it, dense.
/// InvalidArgument names the entry and what is allowed.
runtime::StatusOr<sim::EncodedTensorMap> readTensorMap(const nlohmann::json &entry,
                                                       const runtime::NpyArray &array);

} // namespace llmopt::cli

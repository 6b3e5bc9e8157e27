// The arrays of a call from the tensors of a case. Internal.
#pragma once

#include "tools/import/Conformance.h"

#include <map>

namespace llmopt::importer {

using TensorMap = std::map<std::string, Tensor>; ///< by the model's name

/// The inputs that the function's bindings describe, and "o" filled with NaN.
StatusOr<std::vector<NamedArray>> buildArrays(const OnnxFunction &function, const TensorMap &inputs,
                                              std::string_view caseName);

/// A (B, S, H, D) array of a call as the model has it: (B, H, S, D), or (B, S, H*D)
/// where `packed`.
NamedArray modelView(const NamedArray &array, bool packed);

} // namespace llmopt::importer

// Numbers in the description of a launch, as the bytes that the kernel gets.
#pragma once

#include "runtime/base/Npy.h"

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <vector>

namespace llmopt::cli {

/// "f32", "i64"; nothing where no type has this name.
std::optional<runtime::NpyType> typeOf(const std::string &name);

/// An integer from `least` to `most`, which may be written 1e3 or 4.0. InvalidArgument names
/// the entry `key`.
runtime::StatusOr<uint64_t> readCount(const nlohmann::json &value, const char *key, uint64_t least,
                                      uint64_t most);

/// Appends the value as an element of `type`. InvalidArgument: it is none, or would become
/// another number by more than rounding.
runtime::Status appendNumber(std::vector<uint8_t> &bytes, runtime::NpyType type,
                             const nlohmann::json &value);

/// Writes an element of `type` with a value that need not fit: integers keep its lowest bits.
void storeConverted(uint8_t *to, runtime::NpyType type, double value);

} // namespace llmopt::cli

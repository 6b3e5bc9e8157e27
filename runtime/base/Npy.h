// NumPy's .npy files (format 1.0 and 2.0), C order, little endian. A bf16
// array, for which NumPy has no type, is stored as raw two-byte items ('<V2'),
// as ml_dtypes does.
//
//   StatusOr<NpyArray> q = readNpy("q.npy");
//
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include "runtime/base/Status.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace llmopt::runtime {

enum class NpyType : uint8_t { F16, F32, F64, BF16, I8, I32, I64, U8, U32, Bool };

std::string_view toString(NpyType type); ///< "f16"
uint32_t bytesOf(NpyType type);

struct NpyArray {
  NpyType type = NpyType::F32;
  std::vector<int64_t> shape; ///< empty for a scalar
  std::vector<uint8_t> bytes; ///< rows one after the other

  bool operator==(const NpyArray &) const = default;
};

/// Most dimensions of an array, as in NumPy.
inline constexpr size_t kMaxNpyRank = 64;
inline constexpr uint64_t kMaxNpyBytes = uint64_t{1} << 40;

/// Elements of a shape, or an error when the product does not fit or an extent
/// is negative.
StatusOr<int64_t> elementCount(std::span<const int64_t> shape);

/// `name` is what messages call the file.
StatusOr<NpyArray> decodeNpy(std::span<const uint8_t> file, std::string_view name);
StatusOr<std::vector<uint8_t>> encodeNpy(const NpyArray &array, std::string_view name);

StatusOr<NpyArray> readNpy(const std::string &path);
Status writeNpy(const NpyArray &array, const std::string &path);

} // namespace llmopt::runtime

// Tensor maps of the simulator. On a GPU a tensor map is an opaque object of 128
// bytes that cuTensorMapEncodeTiled makes; this is the simulator's own form of it.
// A kernel gets the bytes as a parameter, or finds them in memory, as on a GPU.
//
//   TensorMap map;
//   map.type = TensorType::BF16;
//   map.rank = 2;
//   map.base = reinterpret_cast<uint64_t>(keys);
//   map.dims = {128, rows};   // the innermost first
//   map.strides = {256};      // bytes, of dimension 1 on
//   map.box = {64, 64};
//   map.swizzle = TensorSwizzle::B128;
//   StatusOr<EncodedTensorMap> bytes = encode(map);
//
// Reference: CUDA driver API, cuTensorMapEncodeTiled; PTX ISA 5.5 (tensors).
#pragma once

#include "runtime/base/Status.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace llmopt::sim {

/// Numbered as CUtensorMapDataType is.
enum class TensorType : uint8_t {
  U8,
  U16,
  U32,
  S32,
  U64,
  S64,
  F16,
  F32,
  F64,
  BF16,
  F32Ftz,
  TF32,
  TF32Ftz,
};
inline constexpr size_t kTensorTypes = 13;

/// Bytes of an element.
uint32_t sizeOf(TensorType type);
/// True for the types that a fill with NaN is allowed for.
bool isFloat(TensorType type);

/// How rows of a box lie in shared memory: the 16-byte pieces of each 128 bytes are
/// permuted by the address. Numbered as CUtensorMapSwizzle is.
enum class TensorSwizzle : uint8_t { None, B32, B64, B128 };

/// Bytes that a swizzle permutes within, and that a box's row may have: 32, 64, 128.
/// Without one rows are not limited by it: 0.
constexpr uint32_t spanOf(TensorSwizzle swizzle) {
  return swizzle == TensorSwizzle::None ? 0 : 16u << static_cast<uint32_t>(swizzle);
}

/// Where the byte of shared memory lies that has this address without a swizzle. The
/// pieces within 128 bytes change places by the number of the 128 bytes.
constexpr uint32_t swizzled(uint32_t address, TensorSwizzle swizzle) {
  uint32_t pieces = (1u << static_cast<uint32_t>(swizzle)) - 1;
  return address ^ ((address >> 7 & pieces) << 4);
}

/// What reads of elements outside the tensor give.
enum class TensorFill : uint8_t { Zero, Nan };

struct TensorMap {
  TensorType type = TensorType::BF16;
  TensorSwizzle swizzle = TensorSwizzle::None;
  TensorFill fill = TensorFill::Zero;
  uint32_t rank = 0; ///< 1 to 5
  uint64_t base = 0; ///< address, a multiple of 16
  /// The innermost dimension first, here and below. Elements.
  std::array<uint64_t, 5> dims = {1, 1, 1, 1, 1};
  /// Bytes between neighbours along dimensions 1, 2, ...; multiples of 16.
  std::array<uint64_t, 4> strides = {};
  std::array<uint32_t, 5> box = {1, 1, 1, 1, 1};
  /// Every how many elements one is taken; the box then has fewer.
  std::array<uint32_t, 5> elementStrides = {1, 1, 1, 1, 1};

  bool operator==(const TensorMap &) const = default;

  /// Elements of the box along a dimension as they lie in shared memory.
  uint32_t boxElements(uint32_t dimension) const {
    return (box[dimension] + elementStrides[dimension] - 1) / elementStrides[dimension];
  }
  /// Bytes of the whole box in shared memory: what a copy adds to its barrier's count.
  uint32_t boxBytes() const;
};

inline constexpr size_t kTensorMapBytes = 128;
struct alignas(64) EncodedTensorMap {
  std::array<std::byte, kTensorMapBytes> bytes = {};
};

/// InvalidArgument says which field breaks a rule of cuTensorMapEncodeTiled.
runtime::StatusOr<EncodedTensorMap> encode(const TensorMap &map);
/// Nothing if the bytes did not come from `encode`.
std::optional<TensorMap> decodeTensorMap(std::span<const std::byte, kTensorMapBytes> bytes);

} // namespace llmopt::sim

#include "runtime/device/sim/TensorMap.h"

#include <cstring>

namespace llmopt::sim {

using runtime::invalidArgument;
using runtime::Status;

namespace {

/// Marks the bytes as made here.
constexpr uint64_t kMagic = 0x70616d736e65742e; // ".tensmap"

/// The form of a map in its 128 bytes: fields as narrow as their limits allow.
struct Packed {
  uint64_t magic;
  uint64_t base;
  uint64_t strides[4];
  uint32_t dimsMinusOne[5];
  uint16_t box[5];
  uint8_t elementStrides[5];
  uint8_t type, swizzle, fill, rank;
};
static_assert(sizeof(Packed) <= kTensorMapBytes);

constexpr uint32_t kTypeBytes[kTensorTypes] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};

Status check(const TensorMap &map) {
  if (static_cast<size_t>(map.type) >= kTensorTypes)
    return invalidArgument("element type {}; 0 to {} are known", static_cast<int>(map.type),
                           kTensorTypes - 1);
  if (map.rank < 1 || map.rank > 5)
    return invalidArgument("rank {}; 1 to 5 are allowed", map.rank);
  if (map.base == 0 || map.base % 16)
    return invalidArgument("base address {:#x}; it must be a multiple of 16", map.base);
  uint32_t bytes = sizeOf(map.type);
  for (uint32_t i = 0; i < map.rank; ++i) {
    if (map.dims[i] < 1 || map.dims[i] > uint64_t{1} << 32)
      return invalidArgument("dims[{}] is {}; 1 to 2^32 are allowed", i, map.dims[i]);
    if (map.box[i] < 1 || map.box[i] > 256)
      return invalidArgument("box[{}] is {}; 1 to 256 are allowed", i, map.box[i]);
    if (map.elementStrides[i] < 1 || map.elementStrides[i] > 8)
      return invalidArgument("elementStrides[{}] is {}; 1 to 8 are allowed", i,
                             map.elementStrides[i]);
    if (i && (map.strides[i - 1] % 16 || map.strides[i - 1] >= uint64_t{1} << 40))
      return invalidArgument("strides[{}] is {} bytes; a multiple of 16 below 2^40 is wanted",
                             i - 1, map.strides[i - 1]);
  }
  if (map.elementStrides[0] != 1)
    return invalidArgument("elementStrides[0] is {}; it has no effect without interleaving: use 1",
                           map.elementStrides[0]);
  uint32_t rowBytes = map.box[0] * bytes, span = spanOf(map.swizzle);
  if (rowBytes % 16)
    return invalidArgument("a row of the box has {} bytes; a multiple of 16 is wanted", rowBytes);
  if (span && rowBytes > span)
    return invalidArgument("a row of the box has {} bytes; the swizzle allows {}", rowBytes, span);
  if (map.fill == TensorFill::Nan && !isFloat(map.type))
    return invalidArgument("a fill with NaN of elements that are integers");
  return {};
}

} // namespace

uint32_t sizeOf(TensorType type) { return kTypeBytes[static_cast<size_t>(type)]; }

bool isFloat(TensorType type) { return type >= TensorType::F16; }

uint32_t TensorMap::boxBytes() const {
  uint32_t bytes = sizeOf(type);
  for (uint32_t i = 0; i < rank; ++i)
    bytes *= boxElements(i);
  return bytes;
}

runtime::StatusOr<EncodedTensorMap> encode(const TensorMap &map) {
  if (Status status = check(map); !status.ok())
    return status.withContext("tensor map");
  Packed packed = {};
  packed.magic = kMagic;
  packed.base = map.base;
  packed.type = static_cast<uint8_t>(map.type);
  packed.swizzle = static_cast<uint8_t>(map.swizzle);
  packed.fill = static_cast<uint8_t>(map.fill);
  packed.rank = static_cast<uint8_t>(map.rank);
  for (uint32_t i = 0; i < 5; ++i) {
    packed.dimsMinusOne[i] = i < map.rank ? static_cast<uint32_t>(map.dims[i] - 1) : 0;
    packed.box[i] = i < map.rank ? static_cast<uint16_t>(map.box[i]) : 1;
    packed.elementStrides[i] = i < map.rank ? static_cast<uint8_t>(map.elementStrides[i]) : 1;
    if (i && i < map.rank)
      packed.strides[i - 1] = map.strides[i - 1];
  }
  EncodedTensorMap result;
  std::memcpy(result.bytes.data(), &packed, sizeof(packed));
  return result;
}

std::optional<TensorMap> decodeTensorMap(std::span<const std::byte, kTensorMapBytes> bytes) {
  Packed packed;
  std::memcpy(&packed, bytes.data(), sizeof(packed));
  if (packed.magic != kMagic)
    return std::nullopt;
  TensorMap map;
  map.type = static_cast<TensorType>(packed.type);
  map.swizzle = static_cast<TensorSwizzle>(packed.swizzle);
  map.fill = static_cast<TensorFill>(packed.fill);
  map.rank = packed.rank;
  map.base = packed.base;
  for (uint32_t i = 0; i < 5; ++i) {
    map.dims[i] = uint64_t{packed.dimsMinusOne[i]} + 1;
    map.box[i] = packed.box[i];
    map.elementStrides[i] = packed.elementStrides[i];
    if (i)
      map.strides[i - 1] = packed.strides[i - 1];
  }
  return map;
}

} // namespace llmopt::sim

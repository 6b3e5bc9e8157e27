#include "runtime/device/sim/ops/MatrixMath.h"

#include "runtime/device/sim/numeric/Float32.h"
#include "runtime/device/sim/numeric/Half.h"

#include <algorithm>
#include <limits>

namespace llmopt::sim {

using ptx::Type;

namespace {

// Elements to floats, without branches where there are many.
float halfToFloat(uint32_t bits) {
  uint32_t magnitude = (bits & 0x7fff) << 13;
  auto value = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  value |= (bits & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u;
  return std::bit_cast<float>(value | (bits & 0x8000) << 16);
}
// Sums of 32 products of such are exact in f32.
float signedToFloat(uint32_t bits) { return static_cast<int8_t>(bits & 0xff); }
float unsignedToFloat(uint32_t bits) { return static_cast<uint8_t>(bits & 0xff); }
float singleToFloat(uint32_t bits) { return std::bit_cast<float>(bits); }
float bfloatToFloat(uint32_t bits) { return std::bit_cast<float>((bits & 0xffff) << 16); }
/// The hardware does not read the lower mantissa bits.
float tf32ToFloat(uint32_t bits) { return std::bit_cast<float>(bits & 0xffffe000); }

template <const FloatFormat &Format> float smallToFloat(uint32_t bits) {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values{};
    for (uint32_t i = 0; i < 256; ++i)
      values[i] = decodeFloat(i, Format);
    return values;
  }();
  return table[bits & 0xff];
}

template <typename T, float (*Convert)(uint32_t)>
uint32_t convertChunk(const std::byte *from, float *to) {
  constexpr uint32_t kCount = kChunkBytes / sizeof(T);
  T bits[kCount];
  std::memcpy(bits, from, sizeof(bits));
  for (uint32_t i = 0; i < kCount; ++i)
    to[i] = Convert(bits[i]);
  return kCount;
}

} // namespace

uint32_t chunkToFloats(const std::byte *from, Type type, float *to) {
  switch (type) {
  case Type::F16:
    return convertChunk<uint16_t, &halfToFloat>(from, to);
  case Type::BF16:
    return convertChunk<uint16_t, &bfloatToFloat>(from, to);
  case Type::TF32:
    return convertChunk<uint32_t, &tf32ToFloat>(from, to);
  case Type::E4M3:
    return convertChunk<uint8_t, &smallToFloat<kE4M3>>(from, to);
  case Type::E5M2:
    return convertChunk<uint8_t, &smallToFloat<kE5M2>>(from, to);
  case Type::S8:
    return convertChunk<uint8_t, &signedToFloat>(from, to);
  case Type::U8:
    return convertChunk<uint8_t, &unsignedToFloat>(from, to);
  default:
    return 0;
  }
}

namespace {

constexpr uint32_t kGroups = 8, kGroupLanes = 4;

template <typename T, float (*Convert)(uint32_t)>
void unpackOperand(const Warp &warp, const uint32_t *rows, const Fragment &fragment,
                   float *matrix) {
  constexpr uint32_t kCount = kChunkBytes / sizeof(T);
  uint32_t stride = fragment.layout.cols;
  for (uint32_t reg = 0; reg < fragment.registers(); ++reg) {
    const uint32_t *cells = warp.narrow(rows[reg]);
    auto [row, col] = fragment.first[reg];
    alignas(64) float values[kGroups][kCount];
    for (uint32_t group = 0; group < kGroups; ++group)
      convertChunk<T, Convert>(reinterpret_cast<const std::byte *>(cells + kGroupLanes * group),
                               values[group]);
    if (fragment.part == Part::A) {
      for (uint32_t group = 0; group < kGroups; ++group)
        std::memcpy(matrix + (row + group) * stride + col, values[group], sizeof(values[group]));
      continue;
    }
    float *to = matrix + row * kTileN;
    for (uint32_t i = 0; i < kCount; ++i)
      for (uint32_t group = 0; group < kGroups; ++group)
        to[i * kTileN + group] = values[group][i];
  }
}

/// C of 16 rows: registers 0 and 1 have the even and the odd columns of rows 0 to 7, the others
/// those of rows 8 to 15; of f16, a register has both.
void unpackSums(const Warp &warp, const uint32_t *rows, const Fragment &fragment, bool half,
                float *matrix) {
  constexpr uint32_t kBlock = kGroups * kTileN;
  for (uint32_t block = 0; block < fragment.layout.rows / kGroups; ++block, matrix += kBlock) {
    if (half) {
      const uint32_t *cells = warp.narrow(rows[block]);
      for (uint32_t lane = 0; lane < kLanes; ++lane) {
        matrix[2 * lane] = halfToFloat(cells[lane]);
        matrix[2 * lane + 1] = halfToFloat(cells[lane] >> 16);
      }
      continue;
    }
    const uint32_t *even = warp.narrow(rows[2 * block]), *odd = warp.narrow(rows[2 * block + 1]);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      matrix[2 * lane] = singleToFloat(even[lane]);
      matrix[2 * lane + 1] = singleToFloat(odd[lane]);
    }
  }
}

} // namespace

void unpackFloats(const Warp &warp, const uint32_t *rows, const Fragment &fragment, Type type,
                  float *matrix) {
  if (fragment.part == Part::C)
    return unpackSums(warp, rows, fragment, type == Type::F16, matrix);
  switch (type) {
  case Type::F16:
    return unpackOperand<uint16_t, &halfToFloat>(warp, rows, fragment, matrix);
  case Type::BF16:
    return unpackOperand<uint16_t, &bfloatToFloat>(warp, rows, fragment, matrix);
  case Type::TF32:
    return unpackOperand<uint32_t, &tf32ToFloat>(warp, rows, fragment, matrix);
  case Type::E4M3:
    return unpackOperand<uint8_t, &smallToFloat<kE4M3>>(warp, rows, fragment, matrix);
  case Type::E5M2:
    return unpackOperand<uint8_t, &smallToFloat<kE5M2>>(warp, rows, fragment, matrix);
  case Type::S8:
    return unpackOperand<uint8_t, &signedToFloat>(warp, rows, fragment, matrix);
  case Type::U8:
    return unpackOperand<uint8_t, &unsignedToFloat>(warp, rows, fragment, matrix);
  default:
    return;
  }
}

void packSums(Warp &warp, const uint32_t *rows, bool half, const float *matrix) {
  constexpr uint32_t kBlock = kGroups * kTileN;
  for (uint32_t block = 0; block < kTileM / kGroups; ++block, matrix += kBlock) {
    if (half) {
      uint32_t *cells = warp.narrow(rows[block]);
      for (uint32_t lane = 0; lane < kLanes; ++lane)
        cells[lane] = F16(matrix[2 * lane]).bits | uint32_t{F16(matrix[2 * lane + 1]).bits} << 16;
      continue;
    }
    uint32_t *even = warp.narrow(rows[2 * block]), *odd = warp.narrow(rows[2 * block + 1]);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      even[lane] = std::bit_cast<uint32_t>(canonical(matrix[2 * lane]));
      odd[lane] = std::bit_cast<uint32_t>(canonical(matrix[2 * lane + 1]));
    }
  }
}

namespace {

using Row8 = float __attribute__((vector_size(32)));

/// C += A * B for matrices in row order; m is 16 for all float shapes.
[[gnu::always_inline]] inline void multiplyBody(const float *a, const Row8 *b, Row8 *c,
                                                uint32_t k) {
  constexpr uint32_t kTogether = 8;
  for (uint32_t first = 0; first < kTileM; first += kTogether) {
    Row8 sums[kTogether];
    for (uint32_t r = 0; r < kTogether; ++r)
      sums[r] = c[first + r];
    for (uint32_t i = 0; i < k; ++i)
      for (uint32_t r = 0; r < kTogether; ++r)
        sums[r] += a[(first + r) * k + i] * b[i];
    for (uint32_t r = 0; r < kTogether; ++r)
      c[first + r] = sums[r];
  }
}

void multiplyPlain(const float *a, const Row8 *b, Row8 *c, uint32_t k) { multiplyBody(a, b, c, k); }

using Multiply = void (*)(const float *, const Row8 *, Row8 *, uint32_t);

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void multiplyVector(const float *a, const Row8 *b, Row8 *c,
                                                        uint32_t k) {
  multiplyBody(a, b, c, k);
}
const Multiply kMultiply = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
                               ? &multiplyVector
                               : &multiplyPlain;
#else
const Multiply kMultiply = &multiplyPlain;
#endif

} // namespace

uint32_t addProducts(uint32_t c, float products, bool saturate) {
  int64_t sum = int64_t{static_cast<int32_t>(c)} + static_cast<int32_t>(products);
  if (saturate)
    sum = std::clamp<int64_t>(sum, std::numeric_limits<int32_t>::min(),
                              std::numeric_limits<int32_t>::max());
  return static_cast<uint32_t>(sum);
}

void multiplyTile(const float *a, const float *b, float *c, uint32_t k) {
  kMultiply(a, reinterpret_cast<const Row8 *>(b), reinterpret_cast<Row8 *>(c), k);
}

} // namespace llmopt::sim

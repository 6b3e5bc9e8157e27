// What mma and wgmma have in common: fragments as matrices of floats, and products of
// 16 rows and 8 columns of them.
#pragma once

#include "runtime/device/sim/exec/Fragment.h"
#include "runtime/device/sim/exec/Warp.h"
#include "runtime/device/sim/ptx/Ast.h"

namespace llmopt::sim {

inline constexpr uint32_t kTileM = 16, kTileN = 8, kTileMaxK = 32;

/// Places of a fragment in a matrix with rows of `stride` elements, by [register * perRegister +
/// element][lane].
struct Places {
  uint32_t registers = 0, perRegister = 1;
  std::array<std::array<uint16_t, kLanes>, 16> at = {};

  Places(const FragmentLayout &layout, uint32_t stride)
      : registers(layout.registers), perRegister(layout.perRegister) {
    for (uint32_t reg = 0; reg < registers; ++reg)
      for (uint32_t element = 0; element < perRegister; ++element)
        for (uint32_t lane = 0; lane < kLanes; ++lane) {
          Coordinate c = layout.at(lane, reg, element);
          at[reg * perRegister + element][lane] = static_cast<uint16_t>(c.row * stride + c.col);
        }
  }
};

/// The elements of f16, bf16, tf32, e4m3, e5m2, s8 or u8 in 16 bytes as floats; how many.
inline constexpr uint32_t kChunkBytes = 16;
uint32_t chunkToFloats(const std::byte *from, ptx::Type type, float *to);

/// The matrix that a fragment in registers of those rows holds.
void unpackFloats(const Warp &warp, const uint32_t *rows, const Places &places, ptx::Type type,
                  float *matrix);

/// C += A * B for matrices in row order, 32-byte aligned: 16 x k, k x 8, 16 x 8.
void multiplyTile(const float *a, const float *b, float *c, uint32_t k);

/// What becomes of an s32 of C when such sums of products of bytes, which are exact, are added.
uint32_t addProducts(uint32_t c, float products, bool saturate);

} // namespace llmopt::sim

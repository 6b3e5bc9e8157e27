// What mma and wgmma have in common: fragments as matrices of floats, and products of
// 16 rows and 8 columns of them.
#pragma once

#include "runtime/device/sim/exec/Fragment.h"
#include "runtime/device/sim/exec/Warp.h"
#include "runtime/device/sim/ptx/Ast.h"

namespace llmopt::sim {

inline constexpr uint32_t kTileM = 16, kTileN = 8, kTileMaxK = 32;

/// Which operand of a product a fragment is.
enum class Part : uint8_t { A, B, C };

/// A fragment of 8 x 8 blocks: eight groups of four lanes hold, in one register, 16 bytes each of
/// neighbouring elements. Those of A lie along a row, those of B along a column; two registers of C
/// have a block of f32 between them.
struct Fragment {
  FragmentLayout layout;
  Part part = Part::C;
  std::array<Coordinate, 8> first = {}; ///< of lane 0, by register

  Fragment(const FragmentLayout &layout, Part part) : layout(layout), part(part) {
    for (uint32_t reg = 0; reg < layout.registers; ++reg)
      first[reg] = layout.at(0, reg, 0);
  }
  uint32_t registers() const { return layout.registers; }
};

/// The elements of f16, bf16, tf32, e4m3, e5m2, s8 or u8 in 16 bytes as floats; how many.
inline constexpr uint32_t kChunkBytes = 16;
uint32_t chunkToFloats(const std::byte *from, ptx::Type type, float *to);

/// The matrix that a fragment in registers of those rows holds: rows of as many elements as the
/// fragment has columns.
void unpackFloats(const Warp &warp, const uint32_t *rows, const Fragment &fragment, ptx::Type type,
                  float *matrix);
/// A matrix of 16 rows of sums back to registers, as f32 or (`half`) as f16.
void packSums(Warp &warp, const uint32_t *rows, bool half, const float *matrix);

/// Where the sum of a lane lies in rows of 8 columns, of C in f32 or s32.
inline uint32_t sumAt(uint32_t reg, uint32_t lane) {
  return reg / 2 * 8 * kTileN + 2 * lane + reg % 2;
}

/// C += A * B for matrices in row order, 32-byte aligned: 16 x k, k x 8, 16 x 8.
void multiplyTile(const float *a, const float *b, float *c, uint32_t k);

/// What becomes of an s32 of C when such sums of products of bytes, which are exact, are added.
uint32_t addProducts(uint32_t c, float products, bool saturate);

} // namespace llmopt::sim

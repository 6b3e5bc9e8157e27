// Products with few rows that read B where it lies in memory, row by row.
#pragma once

#include "codegen/cpu/CpuIsa.h"
#include "dialect/tile/TileDialect.h"

namespace llmopt::cpu {

/// More rows make the products the slower part, and tiles by columns serve them.
constexpr int64_t kMostInPlaceRows = 8;

/// Rows of A that meet the same part of B.
int64_t rowsOfSlice(tile::MmaOp mma);

/// True for a bf16 product that AVX512-BF16 does with tiles by rows: few rows, whole
/// registers along the contiguous dimension of B.
bool takesRowPairs(tile::MmaOp mma, const CpuIsa &isa);

/// True for an f32 product with few rows whose B is loaded for it alone, by whole registers of
/// f32 or of 16 bits that widen in registers.
bool takesRows(tile::MmaOp mma, const CpuIsa &isa);

/// True when a product by takesRows reads B's bf16 as words of 32 bits. One load gives two
/// registers of f32, the even elements (a shift) and the odd ones (a mask): half the loads of
/// widening a register's worth at a time, and no shuffles. A or C follow that order.
bool splitsPairs(tile::MmaOp mma, const CpuIsa &isa);

/// Vectors of sums that such a product keeps in memory until they are added up across lanes.
constexpr int64_t kPartialSums = 16;

/// True when the only user of `load` is such a product, as its B, which then reads the rows
/// where they lie: the tile has no place in scratch memory.
bool streamsRows(tile::LoadOp load, const CpuIsa &isa);

} // namespace llmopt::cpu

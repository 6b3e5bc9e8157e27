// Where the elements of a matrix lie in the registers of a warp. A layout is
// linear in the bits of (lane, register, element of the register): each bit
// moves the element by a fixed number of rows and columns. One function for all
// shapes: the fragments of mma.sync differ only in how many elements share a
// register (PTX ISA 9.7.14, "matrix fragments").
#pragma once

#include <array>
#include <cstdint>

namespace llmopt::sim {

struct Coordinate {
  uint32_t row = 0;
  uint32_t col = 0;
};

struct FragmentLayout {
  uint32_t rows = 0;
  uint32_t cols = 0;
  uint32_t registers = 0;   ///< of 32 bits, per lane
  uint32_t perRegister = 1; ///< elements
  std::array<Coordinate, 5> laneBit = {};
  std::array<Coordinate, 2> registerBit = {};
  std::array<Coordinate, 2> elementBit = {};

  Coordinate at(uint32_t lane, uint32_t reg, uint32_t element) const;
};

/// Operand A of m rows (16 or 8) and k columns.
FragmentLayout operandLayoutA(uint32_t m, uint32_t k, uint32_t elementBits);
/// Operand B of k rows and 8 columns.
FragmentLayout operandLayoutB(uint32_t k, uint32_t elementBits);
/// C and D of m rows and 8 columns, of 32 or 16 bits.
FragmentLayout accumulatorLayout(uint32_t m, uint32_t elementBits);
/// The 8x8 matrices of 16-bit elements of ldmatrix, stmatrix, movmatrix.
FragmentLayout matrixLayout8x8();

} // namespace llmopt::sim

#include "runtime/device/sim/exec/Fragment.h"

namespace llmopt::sim {

Coordinate FragmentLayout::at(uint32_t lane, uint32_t reg, uint32_t element) const {
  Coordinate at;
  auto add = [&](const Coordinate *steps, uint32_t bits) {
    for (uint32_t i = 0; bits >> i; ++i) {
      if (bits >> i & 1) {
        at.row += steps[i].row;
        at.col += steps[i].col;
      }
    }
  };
  add(laneBit.data(), lane);
  add(registerBit.data(), reg);
  add(elementBit.data(), element);
  return at;
}

FragmentLayout operandLayoutA(uint32_t m, uint32_t k, uint32_t elementBits) {
  uint32_t per = 32 / elementBits;
  FragmentLayout layout;
  layout.rows = m;
  layout.cols = k;
  layout.perRegister = per;
  layout.registers = m * k / (32 * per);
  layout.elementBit = {{{0, 1}, {0, 2}}};
  layout.laneBit = {{{0, per}, {0, 2 * per}, {1, 0}, {2, 0}, {4, 0}}};
  layout.registerBit = {{{8, 0}, {0, 4 * per}}};
  if (m == 8)
    layout.registerBit = {{{0, 4 * per}, {0, 8 * per}}};
  return layout;
}

FragmentLayout operandLayoutB(uint32_t k, uint32_t elementBits) {
  uint32_t per = 32 / elementBits;
  FragmentLayout layout;
  layout.rows = k;
  layout.cols = 8;
  layout.perRegister = per;
  layout.registers = k * 8 / (32 * per);
  layout.elementBit = {{{1, 0}, {2, 0}}};
  layout.laneBit = {{{per, 0}, {2 * per, 0}, {0, 1}, {0, 2}, {0, 4}}};
  layout.registerBit = {{{4 * per, 0}, {8 * per, 0}}};
  return layout;
}

FragmentLayout accumulatorLayout(uint32_t m, uint32_t elementBits) {
  FragmentLayout layout;
  layout.rows = m;
  layout.cols = 8;
  layout.perRegister = 32 / elementBits;
  layout.registers = m * 8 / (32 * layout.perRegister);
  layout.laneBit = {{{0, 2}, {0, 4}, {1, 0}, {2, 0}, {4, 0}}};
  if (elementBits == 32) {
    layout.registerBit = {{{0, 1}, {8, 0}}};
  } else {
    layout.elementBit = {{{0, 1}, {0, 0}}};
    layout.registerBit = {{{8, 0}, {0, 0}}};
  }
  return layout;
}

FragmentLayout matrixLayout8x8() {
  FragmentLayout layout;
  layout.rows = layout.cols = 8;
  layout.registers = 1;
  layout.perRegister = 2;
  layout.elementBit = {{{0, 1}, {0, 0}}};
  layout.laneBit = {{{0, 2}, {0, 4}, {1, 0}, {2, 0}, {4, 0}}};
  return layout;
}

} // namespace llmopt::sim

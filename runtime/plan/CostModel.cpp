#include "runtime/plan/CostModel.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace llmopt::runtime {

using bundle::BufferRole;
using bundle::ElementType;
using bundle::KernelKind;
using bundle::Program;

namespace {

uint64_t keyElementBytes(const Program &program) {
  for (const bundle::Buffer &buffer : program.buffers)
    if (buffer.role == BufferRole::Key || buffer.role == BufferRole::KeyPool)
      return buffer.type == ElementType::F32 ? 4 : buffer.type == ElementType::I8 ? 1 : 2;
  return 2;
}

} // namespace

std::vector<Variant> attendVariants(const Program &program) {
  std::vector<Variant> variants;
  double least = 0;
  for (uint32_t i = 0; i < program.kernels.size(); ++i) {
    const bundle::Kernel &kernel = program.kernels[i];
    if (kernel.kind != KernelKind::Attend)
      continue;
    variants.push_back({.kernel = i,
                        .attend = static_cast<uint32_t>(variants.size()),
                        .tileRows = kernel.tileRows,
                        .tileKeys = kernel.tileKeys,
                        .heads = kernel.itemHeads,
                        .costPerTile = kernel.costPerTile,
                        .tileCost = 0,
                        .itemCost = 0,
                        .tileShift = std::has_single_bit(kernel.tileKeys)
                                         ? std::countr_zero(kernel.tileKeys)
                                         : -1});
    least = variants.size() == 1 ? kernel.costPerTile : std::min(least, kernel.costPerTile);
  }
  // Far from overflow: a sum of 2^31 keys, 2^16 heads and 2^10 units stays below 2^63.
  constexpr double kDearest = 64;
  for (Variant &variant : variants) {
    double relative = least > 0 ? std::min(variant.costPerTile / least, kDearest) : 1;
    variant.tileCost = static_cast<uint64_t>(std::lround(relative * kTileUnits));
    variant.itemCost = static_cast<uint64_t>(static_cast<double>(variant.tileCost) * kItemTiles);
  }
  return variants;
}

uint64_t partialRowCost(const Program &program) {
  const bundle::AttentionFacts &facts = program.facts;
  uint64_t tileKeys = 0;
  for (const bundle::Kernel &kernel : program.kernels)
    if (kernel.kind == KernelKind::Attend)
      tileKeys = std::max<uint64_t>(tileKeys, kernel.tileKeys);
  uint64_t tileBytes = tileKeys * (facts.dQk + facts.dV) * keyElementBytes(program);
  uint64_t rowBytes = 2 * sizeof(float) * (uint64_t{facts.dV} + 1);
  if (facts.dV == 0 || tileBytes == 0)
    return kTileUnits / 32;
  return std::max<uint64_t>(1, kTileUnits * rowBytes / tileBytes);
}

} // namespace llmopt::runtime

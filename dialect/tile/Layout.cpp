// See Layout.h.
#include "dialect/tile/Layout.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>

using namespace llmopt::tile;

namespace {

constexpr int64_t kLanes = 32;

LayoutAxis row(int64_t extent, int64_t stride) { return {extent, LayoutDim::Row, stride}; }
LayoutAxis column(int64_t extent, int64_t stride) { return {extent, LayoutDim::Column, stride}; }
LayoutAxis replica(int64_t extent) { return {extent, LayoutDim::Replica, 0}; }

int64_t extent(const LayoutAxes &axes) {
  int64_t product = 1;
  for (const LayoutAxis &axis : axes)
    product *= axis.extent;
  return product;
}

void addTo(std::pair<int64_t, int64_t> &place, const LayoutAxes &axes, int64_t index) {
  for (const LayoutAxis &axis : axes) {
    int64_t digit = index % axis.extent;
    index /= axis.extent;
    if (axis.dim == LayoutDim::Row)
      place.first += digit * axis.stride;
    if (axis.dim == LayoutDim::Column)
      place.second += digit * axis.stride;
  }
}

LayoutAxes merged(const LayoutAxes &axes) {
  LayoutAxes result;
  for (const LayoutAxis &axis : axes) {
    if (axis.extent == 1)
      continue;
    if (!result.empty() && result.back().dim == axis.dim &&
        axis.stride == result.back().stride * result.back().extent)
      result.back().extent *= axis.extent;
    else
      result.push_back(axis);
  }
  return result;
}

/// Warps over `blocks` blocks of `height` rows: runs of blocks for each warp. Returns the
/// warp axes and adds the blocks that a warp holds itself to `registers`.
LayoutAxes rowsOverWarps(int64_t blocks, int64_t height, int64_t warps, LayoutAxes &registers) {
  int64_t used = std::min<int64_t>(llvm::bit_floor(uint64_t(blocks)), warps);
  int64_t own = llvm::divideCeil(blocks, used);
  if (own > 1)
    registers.push_back(row(own, height));
  LayoutAxes result;
  if (used > 1)
    result.push_back(row(used, own * height));
  if (used < warps)
    result.push_back(replica(warps / used));
  return result;
}

} // namespace

std::pair<int64_t, int64_t> Layout::at(int64_t registerIndex, int64_t lane, int64_t warp) const {
  std::pair<int64_t, int64_t> place{0, 0};
  addTo(place, registers, registerIndex);
  addTo(place, lanes, lane);
  addTo(place, warps, warp);
  return place;
}

int64_t Layout::registerCount() const { return extent(registers); }
int64_t Layout::laneCount() const { return extent(lanes); }
int64_t Layout::warpCount() const { return extent(warps); }

std::pair<int64_t, int64_t> Layout::cover() const {
  auto [r, c] = at(registerCount() - 1, laneCount() - 1, warpCount() - 1);
  return {r + 1, c + 1};
}

Layout Layout::slice(LayoutDim keep) const {
  Layout result;
  for (const LayoutAxis &axis : registers)
    if (axis.dim == keep)
      result.registers.push_back(axis);
  auto replicate = [&](const LayoutAxes &axes) {
    LayoutAxes kept;
    for (const LayoutAxis &axis : axes)
      kept.push_back(axis.dim == keep ? axis : replica(axis.extent));
    return kept;
  };
  result.lanes = replicate(lanes);
  result.warps = replicate(warps);
  return result.normalised();
}

Layout Layout::normalised() const { return {merged(registers), merged(lanes), merged(warps)}; }

std::string Layout::str() const {
  std::string text;
  llvm::raw_string_ostream os(text);
  auto put = [&](const char *name, const LayoutAxes &axes) {
    os << name << " [";
    llvm::interleaveComma(axes, os, [&](const LayoutAxis &axis) {
      os << axis.extent;
      if (axis.dim == LayoutDim::Replica)
        os << " copies";
      else
        os << (axis.dim == LayoutDim::Row ? " rows " : " columns ") << axis.stride;
    });
    os << "]";
  };
  put("registers", registers);
  put(", lanes", lanes);
  put(", warps", warps);
  return text;
}

Layout llmopt::tile::accumulatorLayout(int64_t rows, int64_t columns, int64_t warps) {
  Layout layout;
  layout.registers = {column(2, 1), row(2, 8), column(llvm::divideCeil(columns, 8), 8)};
  layout.lanes = {column(4, 2), row(8, 1)};
  layout.warps = rowsOverWarps(llvm::divideCeil(rows, 16), 16, warps, layout.registers);
  return layout.normalised();
}

Layout llmopt::tile::firstOperandLayout(int64_t rows, int64_t depth, int64_t warps) {
  Layout layout;
  layout.registers = {column(2, 1), row(2, 8), column(2, 8),
                      column(llvm::divideCeil(depth, 16), 16)};
  layout.lanes = {column(4, 2), row(8, 1)};
  layout.warps = rowsOverWarps(llvm::divideCeil(rows, 16), 16, warps, layout.registers);
  return layout.normalised();
}

Layout llmopt::tile::secondOperandLayout(int64_t depth, int64_t columns) {
  Layout layout;
  layout.registers = {row(2, 1), row(2, 8), column(llvm::divideCeil(columns, 8), 8),
                      row(llvm::divideCeil(depth, 16), 16)};
  layout.lanes = {row(4, 2), column(8, 1)};
  return layout.normalised();
}

Layout llmopt::tile::plainProductLayout(int64_t rows, int64_t columns, int64_t warps, int64_t run) {
  Layout layout;
  layout.registers = {column(run, 1), column(llvm::divideCeil(columns, 8 * run), 8 * run)};
  layout.lanes = {column(8, run), row(4, 1)};
  layout.warps = rowsOverWarps(llvm::divideCeil(rows, 4), 4, warps, layout.registers);
  return layout.normalised();
}

Layout llmopt::tile::blockedLayout(int64_t rows, int64_t columns, int64_t warps, int64_t run) {
  Layout layout;
  int64_t units = llvm::divideCeil(columns, run);
  int64_t across = std::min<int64_t>(kLanes, llvm::PowerOf2Ceil(units));
  if (run > 1)
    layout.registers.push_back(column(run, 1));
  if (across > 1)
    layout.lanes.push_back(column(across, run));
  // A single column takes one lane; the others hold copies, as in a slice of a wider tile.
  int64_t down = across == 1 && rows == 1 ? 1 : kLanes / across;
  if (down > 1)
    layout.lanes.push_back(row(down, 1));
  if (across * down < kLanes)
    layout.lanes.push_back(replica(kLanes / across / down));
  int64_t wide = llvm::divideCeil(columns, run * across), high = llvm::divideCeil(rows, down);
  if (wide > 1)
    layout.registers.push_back(column(wide, run * across));
  layout.warps = rowsOverWarps(high, down, warps, layout.registers);
  return layout.normalised();
}

Layout llmopt::tile::copyRowsLayout(int64_t rows, int64_t lanesPerRow, int64_t warps) {
  Layout layout;
  int64_t down = kLanes / lanesPerRow;
  layout.lanes = {replica(lanesPerRow), row(down, 1)};
  layout.warps = {row(warps, down)};
  layout.registers = {row(llvm::divideCeil(rows, down * warps), down * warps)};
  return layout.normalised();
}

SharedLayout SharedLayout::of(int64_t columns, int64_t bytes) {
  int64_t padded = llvm::alignTo(columns, 16); // whole k and n steps of mma.m16n8k16
  SharedLayout layout;
  layout.pitch = llvm::alignTo(padded * bytes, 16);
  while (layout.span < 8 && layout.chunks() % (2 * layout.span) == 0)
    layout.span *= 2;
  return layout;
}

int64_t SharedLayout::at(int64_t row, int64_t chunk) const {
  return row * pitch + ((chunk ^ (row / (8 / span) % span)) * 16);
}

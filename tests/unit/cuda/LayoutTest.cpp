// Layouts as maps: every element once, fragments as the PTX ISA draws them, banks apart.
#include "dialect/tile/Layout.h"
#include "codegen/cuda/passes/RowTurns.h"

#include <gtest/gtest.h>
#include <map>
#include <set>

using namespace llmopt::tile;

namespace {

using Place = std::pair<int64_t, int64_t>;

/// Threads that hold each element, as (warp, lane).
std::map<Place, std::set<Place>> holdersOf(const Layout &layout) {
  std::map<Place, std::set<Place>> holders;
  for (int64_t warp = 0; warp < layout.warpCount(); ++warp)
    for (int64_t lane = 0; lane < layout.laneCount(); ++lane)
      for (int64_t r = 0; r < layout.registerCount(); ++r)
        holders[layout.at(r, lane, warp)].insert({warp, lane});
  return holders;
}

/// Every element of the covered rectangle is held, by `copies` threads.
void expectWhole(const Layout &layout, size_t copies) {
  auto holders = holdersOf(layout);
  auto [rows, columns] = layout.cover();
  ASSERT_EQ(holders.size(), size_t(rows * columns)) << layout.str();
  for (const auto &[place, threads] : holders)
    ASSERT_EQ(threads.size(), copies) << layout.str();
}

TEST(Layout, product_layouts_hold_every_element_once_or_in_whole_copies) {
  for (int64_t warps : {1, 2, 4, 8})
    for (int64_t rows : {16, 32, 64, 80, 128})
      for (int64_t columns : {1, 8, 37, 64, 72, 128, 256}) {
        Layout c = accumulatorLayout(rows, columns, warps);
        int64_t used = 1;
        for (const LayoutAxis &axis : c.warps)
          used *= axis.dim == LayoutDim::Row ? axis.extent : 1;
        expectWhole(c, warps / used);
        ASSERT_GE(c.cover().first, rows);
        ASSERT_GE(c.cover().second, columns);
        expectWhole(firstOperandLayout(rows, columns, warps), warps / used);
        for (int64_t run : {1, 4}) {
          Layout plain = plainProductLayout(rows, columns, warps, run);
          expectWhole(plain, holdersOf(plain).begin()->second.size());
          ASSERT_EQ(plain.laneCount(), 32);
          ASSERT_EQ(plain.warpCount(), warps);
        }
      }
}

TEST(Layout, blocked_layouts_cover_any_shape) {
  for (int64_t warps : {1, 4})
    for (int64_t rows : {1, 3, 16, 65})
      for (int64_t columns : {1, 2, 31, 64, 300})
        for (int64_t run : {1, 2}) {
          Layout layout = blockedLayout(rows, columns, warps, run);
          expectWhole(layout, holdersOf(layout).begin()->second.size());
          ASSERT_GE(layout.cover().first, rows);
          ASSERT_GE(layout.cover().second, columns);
          ASSERT_EQ(layout.laneCount(), 32);
          ASSERT_EQ(layout.warpCount(), warps);
        }
}

/// PTX ISA, mma.m16n8k16: row and column of element `i` of lane `lane` (groupID = lane / 4).
TEST(Layout, fragments_are_those_of_the_ptx_isa) {
  Layout a = firstOperandLayout(16, 16, 1), b = secondOperandLayout(16, 8),
         c = accumulatorLayout(16, 8, 1);
  for (int64_t lane = 0; lane < 32; ++lane) {
    int64_t group = lane / 4, inGroup = lane % 4;
    for (int64_t i = 0; i < 8; ++i) {
      int64_t row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
      int64_t column = inGroup * 2 + i % 2 + (i >= 4 ? 8 : 0);
      ASSERT_EQ(a.at(i, lane, 0), (Place{row, column})) << lane << " a" << i;
    }
    for (int64_t i = 0; i < 4; ++i) {
      ASSERT_EQ(b.at(i, lane, 0), (Place{inGroup * 2 + i % 2 + (i >= 2 ? 8 : 0), group}));
      ASSERT_EQ(c.at(i, lane, 0), (Place{group + (i >= 2 ? 8 : 0), inGroup * 2 + i % 2}));
    }
  }
}

/// The weights of the first product are the first operand of the second, where they lie.
TEST(Layout, an_accumulator_is_a_first_operand) {
  for (int64_t keys : {16, 32, 64, 128})
    EXPECT_EQ(accumulatorLayout(64, keys, 4), firstOperandLayout(64, keys, 4));
  EXPECT_NE(accumulatorLayout(64, 8, 4), firstOperandLayout(64, 8, 4));
}

TEST(Layout, a_slice_keeps_its_dimension_and_copies_the_other) {
  for (const Layout &layout :
       {accumulatorLayout(64, 72, 4), plainProductLayout(20, 64, 4, 1), blockedLayout(5, 100, 4)}) {
    Layout rows = layout.slice(LayoutDim::Row);
    for (int64_t warp = 0; warp < 4; ++warp)
      for (int64_t lane = 0; lane < 32; ++lane) {
        std::set<int64_t> whole, sliced;
        for (int64_t r = 0; r < layout.registerCount(); ++r)
          whole.insert(layout.at(r, lane, warp).first);
        for (int64_t r = 0; r < rows.registerCount(); ++r) {
          ASSERT_EQ(rows.at(r, lane, warp).second, 0);
          sliced.insert(rows.at(r, lane, warp).first);
        }
        ASSERT_EQ(whole, sliced);
        ASSERT_EQ(size_t(rows.registerCount()), sliced.size()) << "each row once";
      }
  }
}

TEST(Layout, rows_in_lanes_are_each_with_a_lane_that_shares_them) {
  size_t handedOut = 0;
  for (int64_t warps : {1, 4})
    for (int64_t sharing : {1, 2, 4, 8, 32})
      for (int64_t rows : {4, 16, 48, 64, 128}) {
        Layout copy = copyRowsLayout(rows, sharing, warps);
        std::optional<Layout> inLanes = llmopt::cuda::rowsInLanes(copy);
        bool some = copy.registerCount() > 1 && copy.registerCount() <= sharing;
        ASSERT_EQ(inLanes.has_value(), some) << copy.str();
        if (!some)
          continue;
        ++handedOut;
        ASSERT_EQ(inLanes->registerCount(), 1) << inLanes->str();
        ASSERT_EQ(inLanes->laneCount(), 32) << inLanes->str();
        ASSERT_EQ(inLanes->warpCount(), warps) << inLanes->str();
        for (int64_t warp = 0; warp < warps; ++warp)
          for (int64_t lane = 0; lane < 32; ++lane)
            for (int64_t turn = 0; turn < copy.registerCount(); ++turn)
              ASSERT_EQ(inLanes->at(0, lane / sharing * sharing + turn, warp),
                        copy.at(turn, lane, warp))
                  << copy.str() << " " << inLanes->str();
      }
  EXPECT_GT(handedOut, 5u);
}

TEST(Layout, normalising_changes_the_axes_and_not_the_map) {
  Layout layout;
  layout.registers = {{2, LayoutDim::Column, 1}, {1, LayoutDim::Row, 7}, {4, LayoutDim::Column, 2}};
  layout.lanes = {{4, LayoutDim::Replica, 0}, {8, LayoutDim::Replica, 0}};
  Layout normal = layout.normalised();
  EXPECT_EQ(normal.registers.size(), 1u);
  for (int64_t r = 0; r < 8; ++r)
    for (int64_t lane = 0; lane < 32; ++lane)
      EXPECT_EQ(layout.at(r, lane, 0), normal.at(r, lane, 0));
}

TEST(SharedLayout, places_are_distinct_and_within_the_row) {
  for (int64_t columns = 1; columns <= 256; ++columns)
    for (int64_t bytes : {2, 4}) {
      SharedLayout layout = SharedLayout::of(columns, bytes);
      ASSERT_GE(layout.pitch, columns * bytes);
      for (int64_t row = 0; row < 16; ++row) {
        std::set<int64_t> places;
        for (int64_t chunk = 0; chunk < layout.chunks(); ++chunk) {
          int64_t at = layout.at(row, chunk) - row * layout.pitch;
          ASSERT_TRUE(at >= 0 && at < layout.pitch && at % 16 == 0);
          places.insert(at);
        }
        ASSERT_EQ(places.size(), size_t(layout.chunks()));
      }
    }
}

/// ldmatrix reads a chunk of each of 8 neighbouring rows at once: 8 groups of 4 banks.
TEST(SharedLayout, eight_rows_of_a_column_lie_in_different_banks) {
  for (int64_t columns = 1; columns <= 256; ++columns)
    for (int64_t bytes : {2, 4}) {
      SharedLayout layout = SharedLayout::of(columns, bytes);
      for (int64_t first : {0, 8, 24})
        for (int64_t chunk = 0; chunk < layout.chunks(); ++chunk) {
          std::set<int64_t> banks;
          for (int64_t row = first; row < first + 8; ++row)
            banks.insert(layout.at(row, chunk) / 16 % 8);
          ASSERT_EQ(banks.size(), 8u) << columns << " columns of " << bytes << " bytes";
        }
    }
}

} // namespace

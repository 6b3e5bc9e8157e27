// The running requests in the order of admission, and the rows of those that are steady: what a
// step looks at of each request that decodes and does nothing else is its place in these arrays.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace llmopt::runtime {

class RunningRows {
public:
  void reserve(uint32_t most) {
    slots.reserve(most);
    until.reserve(most);
    blocks.reserve(most);
    rows.reserve(most);
    ends.reserve(most);
  }

  bool empty() const { return slots.empty(); }
  uint32_t size() const { return uint32_t(slots.size()); }
  uint32_t operator[](uint32_t position) const { return slots[position]; }
  std::span<const uint32_t> requests() const { return slots; }
  uint32_t positionOf(uint32_t slot) const {
    return uint32_t(std::find(slots.begin(), slots.end(), slot) - slots.begin());
  }

  void add(uint32_t slot) {
    slots.push_back(slot);
    until.push_back(0);
    blocks.push_back(0);
    rows.push_back(0);
    ends.push_back(0);
  }
  /// One that is not steady.
  void remove(uint32_t position) {
    slots.erase(slots.begin() + position);
    until.erase(until.begin() + position);
    blocks.erase(blocks.begin() + position);
    rows.erase(rows.begin() + position);
    ends.erase(ends.begin() + position);
  }

  /// It can be steady in the steps before `end`; the newest step's row is `row`.
  void beginSteady(uint32_t position, uint32_t end, uint32_t row) {
    ends[position] = end;
    rows[position] = row;
    ++steady;
  }
  /// No plan of a step before `step` looks at it, and of the rows before the one of `block` none
  /// ends a block or lets a page go.
  void setNext(uint32_t position, uint32_t step, uint32_t block) {
    until[position] = step;
    blocks[position] = block;
  }
  void endSteady(uint32_t position) {
    until[position] = blocks[position] = 0;
    --steady;
  }
  uint32_t steadyCount() const { return steady; }
  bool isSteady(uint32_t position) const { return until[position] != 0; }
  /// 0 where it is not steady.
  uint32_t next(uint32_t position) const { return until[position]; }
  /// The next step whose row of it ends a block or lets a page go.
  uint32_t block(uint32_t position) const { return blocks[position]; }
  /// Of a steady one.
  uint32_t end(uint32_t position) const { return ends[position]; }
  /// Of a steady one, in the newest step.
  uint32_t row(uint32_t position) const { return rows[position]; }
  /// Those of [begin, end) have rows from `first` on in a step that is newer.
  void setRows(uint32_t begin, uint32_t end, uint32_t first) {
    for (uint32_t i = begin; i < end; ++i)
      rows[i] = first + (i - begin);
  }
  /// The first position from `begin` on that is not steady, or the step's plan looks at it; `size`
  /// where there is none.
  uint32_t firstDue(uint32_t begin, uint32_t step) const {
    return firstOf(until.data(), begin, step);
  }
  /// The same of those whose row of the step ends a block or lets a page go.
  uint32_t firstBlock(uint32_t begin, uint32_t step) const {
    return firstOf(blocks.data(), begin, step);
  }

private:
  /// Looks at several at a time: nearly all are steady.
  uint32_t firstOf(const uint32_t *due, uint32_t begin, uint32_t step) const {
    uint32_t i = begin, count = size();
#if defined(__SSE2__)
    constexpr uint32_t kTogether = 16;
    for (; count - i >= kTogether; i += kTogether)
      if (uint32_t mask = dueOf16(due + i, step))
        return i + uint32_t(std::countr_zero(mask));
#endif
    while (i < count && due[i] > step)
      ++i;
    return i;
  }
#if defined(__SSE2__)
  /// A bit for each that is at most `step`.
  static uint32_t dueOf16(const uint32_t *due, uint32_t step) {
    const __m128i sign = _mm_set1_epi32(INT32_MIN); // there are comparisons of signed numbers only
    const __m128i limit = _mm_xor_si128(_mm_set1_epi32(int(step)), sign);
    auto later = [&](int i) {
      __m128i four = _mm_loadu_si128(reinterpret_cast<const __m128i *>(due) + i);
      return _mm_cmpgt_epi32(_mm_xor_si128(four, sign), limit);
    };
    __m128i low = _mm_packs_epi32(later(0), later(1)), high = _mm_packs_epi32(later(2), later(3));
    return 0xffff & ~uint32_t(_mm_movemask_epi8(_mm_packs_epi16(low, high)));
  }
#endif

  std::vector<uint32_t> slots;
  // Of steady ones; the first two are 0 of others.
  std::vector<uint32_t> until;  ///< the next step whose plan looks at them
  std::vector<uint32_t> blocks; ///< the next step whose row ends a block or lets a page go
  std::vector<uint32_t> rows;   ///< their rows in the newest step
  std::vector<uint32_t> ends;   ///< the first step in which they cannot be steady
  uint32_t steady = 0;
};

} // namespace llmopt::runtime

#include "dialect/reference/Rows.h"

#include <set>

namespace llmopt::reference {

namespace {

constexpr int64_t kSampledRows = 64;
/// Boundaries of one kind that are visited in any sequence; more where they are cheap.
constexpr int64_t kFewestBoundaries = 32;

/// SplitMix64: the next of a seeded sequence.
uint64_t next(uint64_t &state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

/// Adds both sides of the boundaries of sequence `b`, moved by `shift`; of `most` of them,
/// evenly spread, where there are more.
void addBoundaries(std::set<int64_t> &queries, int64_t length,
                   const std::vector<std::vector<int64_t>> &boundaries, size_t b, int64_t shift,
                   int64_t most) {
  if (b >= boundaries.size())
    return;
  auto count = int64_t(boundaries[b].size());
  int64_t stride = std::max<int64_t>(1, (count + most - 1) / most);
  for (int64_t k = 0; k < count; k += stride)
    for (int64_t query : {boundaries[b][size_t(k)] + shift - 1, boundaries[b][size_t(k)] + shift})
      if (query >= 0 && query < length)
        queries.insert(query);
}

/// Adds both sides of the queries shift + k step; of `most` of them, evenly spread, where
/// there are more.
void addBoundaries(std::set<int64_t> &queries, int64_t length, int64_t step, int64_t shift,
                   int64_t most) {
  if (step <= 0)
    return;
  int64_t first = shift >= 0 ? shift : shift + (-shift + step - 1) / step * step;
  int64_t count = first < length ? (length - 1 - first) / step + 1 : 0;
  int64_t stride = std::max<int64_t>(1, (count + most - 1) / most);
  for (int64_t k = 0; k < count; k += stride)
    for (int64_t query : {first + k * step - 1, first + k * step})
      if (query >= 0 && query < length)
        queries.insert(query);
}

} // namespace

RowChoice chooseRows(const Lengths &lengths, const Boundaries &boundaries, uint64_t seed,
                     int64_t limit) {
  RowChoice choice;
  double elements = 0;
  for (size_t b = 0; b < lengths.queries.size(); ++b) {
    choice.total += lengths.queries[b] * lengths.heads;
    elements += double(lengths.queries[b]) * double(lengths.keys[b]) * double(lengths.heads);
  }
  bool all = elements <= double(limit);
  uint64_t state = seed;
  int64_t turn = 0;
  for (int64_t b = 0; b < int64_t(lengths.queries.size()); ++b) {
    int64_t length = lengths.queries[size_t(b)];
    std::set<int64_t> queries;
    if (!all) {
      int64_t toPosition = lengths.keys[size_t(b)] - length;
      int64_t most =
          std::max(kFewestBoundaries, limit / (8 * std::max<int64_t>(1, lengths.keys[size_t(b)])));
      addBoundaries(queries, length, boundaries.queryTile, boundaries.queryTile, most);
      for (int64_t step : {boundaries.keyTile, boundaries.page, boundaries.split})
        addBoundaries(queries, length, step, step - toPosition, most);
      addBoundaries(queries, length, boundaries.tileQueries, size_t(b), 0, most);
      addBoundaries(queries, length, boundaries.splitKeys, size_t(b), -toPosition, most);
      for (int64_t i = 0; i < kSampledRows && length > 0; ++i)
        queries.insert(int64_t(next(state) % uint64_t(length)));
    }
    for (int64_t query = 0; query < length; ++query) {
      bool everyHead = all || query == 0 || query == length - 1;
      if (everyHead)
        for (int64_t head = 0; head < lengths.heads; ++head)
          choice.rows.push_back({b, query, head});
      else if (queries.contains(query))
        choice.rows.push_back({b, query, turn++ % lengths.heads});
    }
  }
  return choice;
}

} // namespace llmopt::reference

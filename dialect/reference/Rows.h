// Which rows the oracle evaluates: all of them up to a limit of score elements, else
// those where errors live, plus a random sample.
#pragma once

#include "dialect/reference/Reference.h"

namespace llmopt::reference {

/// Steps at which kernels change what they do; 0: none. Query tiles count queries, the
/// others keys: a row stands at a key boundary when its position does.
struct Boundaries {
  int64_t queryTile = 0, keyTile = 0, page = 0, split = 0;
  /// Boundaries that follow no step, by sequence: first queries of tiles, first keys of splits.
  std::vector<std::vector<int64_t>> tileQueries = {}, splitKeys = {};
};

struct RowChoice {
  std::vector<Row> rows;
  int64_t total = 0; ///< rows of the whole batch
  double share() const { return total ? double(rows.size()) / double(total) : 1; }
};

inline constexpr int64_t kAllRowsLimit = 10'000'000; ///< score elements

/// All rows while the batch has at most `limit` score elements. Else of each sequence:
/// the first and the last row in every head, both sides of each boundary (of 32 at least,
/// evenly spread, where all would cost more than the limit) and 64 seeded rows, in heads
/// taken in turn.
RowChoice chooseRows(const Lengths &lengths, const Boundaries &boundaries, uint64_t seed,
                     int64_t limit = kAllRowsLimit);

} // namespace llmopt::reference

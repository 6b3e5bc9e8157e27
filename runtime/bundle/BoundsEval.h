// Evaluates a mask's key intervals (Bounds.h) for one range of queries. The
// result, a KeySet, answers exactly which keys and key tiles some query of the
// range MAY see.
//
//   KeySet may = evaluate(facts.may, {.queryLo = 10, .queryHi = 17, .queryLen =
//   64,
//                                     .keyLen = 64, .scalars = values});
//   if (may.intersects(tileLo, tileHi)) ...
//
// Arithmetic is 64-bit and saturates, so that a spec's "no limit" (INT64_MAX)
// stays one. Programs must be checked by `validate` once before they are
// evaluated.
#pragma once

#include "runtime/base/Status.h"
#include "runtime/bundle/Bounds.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace llmopt::bundle {

/// Most instructions of one program: the evaluator's stack has this many
/// entries.
inline constexpr size_t kMaxBoundInsns = 256;

/// Run-time values that a bound program reads. The three scalar arrays are
/// indexed as Program::scalars; a missing entry reads as 0.
struct BoundInputs {
  int64_t queryLo = 0, queryHi = 0; ///< smallest and largest query position
  int64_t queryLen = 0, keyLen = 0;
  std::span<const int64_t> scalars = {};
  std::span<const int64_t> perHeadMin = {}, perHeadMax = {};
};

/// Keys k of [lo, hi) with floormod(k - phase, stride) < width. A dense
/// interval has stride 0. Always normalised: 0 <= lo <= hi <= keyLen, 0 <=
/// phase < stride and 0 < width < stride unless dense.
struct KeyInterval {
  int64_t lo = 0, hi = 0;
  int64_t stride = 0, phase = 0, width = 0;
  bool operator==(const KeyInterval &) const = default;
};

/// A union of intervals. All queries take half-open key ranges; an empty or
/// inverted range holds nothing. Tiles count from absolute key 0: tile t is
/// keys [t * tileKeys, (t + 1) * tileKeys), and only its part inside the range
/// is looked at.
class KeySet {
public:
  KeySet() = default;
  /// Drops empty intervals and normalises the others; keys outside [0, keyLen)
  /// go.
  KeySet(std::span<const KeyInterval> intervals, int64_t keyLen);
  void clear() { parts.clear(); }
  /// One more interval, dropped or normalised likewise.
  void add(KeyInterval interval, int64_t keyLen);

  bool empty() const { return parts.empty(); }
  bool contains(int64_t key) const { return intersects(key, key + 1); }
  bool intersects(int64_t begin, int64_t end) const;

  std::optional<int64_t> firstVisible(int64_t begin, int64_t end) const;
  std::optional<int64_t> lastVisible(int64_t begin, int64_t end) const;

  /// Number of tiles that hold a visible key of [begin, end).
  int64_t visibleTiles(int64_t begin, int64_t end, int64_t tileKeys) const;

  /// Last key + 1 of the count-th (from 1) visible tile of [begin, end),
  /// clipped to `end`; `end` when there are fewer. The place to cut a range by
  /// work.
  int64_t endOfVisibleTile(int64_t begin, int64_t end, int64_t tileKeys, int64_t count) const;

  std::span<const KeyInterval> intervals() const { return parts; }

private:
  template <typename Visit>
  void forTileRuns(int64_t begin, int64_t end, int64_t tileKeys, Visit visit) const;

  std::vector<KeyInterval> parts;
};

/// Refuses stack underflow, leftovers, unknown operations, scalars that do not
/// exist, and thinned intervals that lack one of stride, phase and width.
runtime::Status validate(const BoundProgram &program, size_t scalarCount);
runtime::Status validate(const BoundSet &set, size_t scalarCount);

/// Value of a validated program; 0 for an invalid one.
int64_t evaluate(const BoundProgram &program, const BoundInputs &inputs);

/// The keys of [0, inputs.keyLen) that the set names.
KeySet evaluate(const BoundSet &set, const BoundInputs &inputs);
/// The same into a set whose memory is used again.
void evaluate(const BoundSet &set, const BoundInputs &inputs, KeySet &result);

/// a - b * floor(a / b) for b > 0; 0 for b <= 0.
int64_t floorMod(int64_t a, int64_t b);
/// floor(a / b) for b > 0; 0 for b <= 0.
int64_t floorDiv(int64_t a, int64_t b);

} // namespace llmopt::bundle

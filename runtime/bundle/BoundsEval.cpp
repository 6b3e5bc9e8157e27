#include "runtime/bundle/BoundsEval.h"

#include <algorithm>
#include <array>
#include <limits>

namespace llmopt::bundle {

using runtime::invalidArgument;
using runtime::Status;

namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

int64_t addSaturated(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_add_overflow(a, b, &result))
    return b > 0 ? kMax : kMin;
  return result;
}

int64_t subSaturated(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_sub_overflow(a, b, &result))
    return b < 0 ? kMax : kMin;
  return result;
}

int64_t mulSaturated(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_mul_overflow(a, b, &result))
    return (a < 0) == (b < 0) ? kMax : kMin;
  return result;
}

bool isBinary(BoundOp op) { return op >= BoundOp::Add; }

bool readsScalar(BoundOp op) {
  return op == BoundOp::Scalar || op == BoundOp::ScalarMin || op == BoundOp::ScalarMax;
}

int64_t applyBinary(BoundOp op, int64_t a, int64_t b) {
  switch (op) {
  case BoundOp::Add:
    return addSaturated(a, b);
  case BoundOp::Sub:
    return subSaturated(a, b);
  case BoundOp::Mul:
    return mulSaturated(a, b);
  case BoundOp::Min:
    return std::min(a, b);
  case BoundOp::Max:
    return std::max(a, b);
  case BoundOp::FloorDiv:
    return floorDiv(a, b);
  case BoundOp::FloorMod:
    return floorMod(a, b);
  default:
    return 0;
  }
}

int64_t at(std::span<const int64_t> values, int64_t index) {
  return index >= 0 && static_cast<uint64_t>(index) < values.size() ? values[index] : 0;
}

int64_t readLeaf(const BoundInsn &insn, const BoundInputs &inputs) {
  switch (insn.op) {
  case BoundOp::Const:
    return insn.value;
  case BoundOp::QueryLo:
    return inputs.queryLo;
  case BoundOp::QueryHi:
    return inputs.queryHi;
  case BoundOp::QueryLen:
    return inputs.queryLen;
  case BoundOp::KeyLen:
    return inputs.keyLen;
  case BoundOp::Scalar:
    return at(inputs.scalars, insn.value);
  case BoundOp::ScalarMin:
    return at(inputs.perHeadMin, insn.value);
  case BoundOp::ScalarMax:
    return at(inputs.perHeadMax, insn.value);
  default:
    return 0;
  }
}

/// Smallest key >= from of the interval, or hi.
int64_t nextKey(const KeyInterval &interval, int64_t from) {
  int64_t key = std::max(from, interval.lo);
  if (key >= interval.hi)
    return interval.hi;
  if (interval.stride == 0)
    return key;
  int64_t offset = floorMod(key - interval.phase, interval.stride);
  if (offset >= interval.width)
    key = addSaturated(key, interval.stride - offset);
  return std::min(key, interval.hi);
}

/// Largest key < before of the interval, or lo - 1.
int64_t previousKey(const KeyInterval &interval, int64_t before) {
  int64_t key = std::min(before, interval.hi) - 1;
  if (key < interval.lo)
    return interval.lo - 1;
  if (interval.stride == 0)
    return key;
  int64_t offset = floorMod(key - interval.phase, interval.stride);
  if (offset >= interval.width)
    key -= offset - (interval.width - 1);
  return std::max(key, interval.lo - 1);
}

struct TileRun {
  int64_t first, last; ///< tile indices, inclusive
};

/// The first maximal run of tiles at or after `tile` that the interval's keys
/// of [begin, end) touch without a gap of a whole tile.
std::optional<TileRun> nextTileRun(const KeyInterval &interval, int64_t tile, int64_t begin,
                                   int64_t end, int64_t tileKeys) {
  int64_t from = std::max(begin, mulSaturated(tile, tileKeys));
  int64_t stop = std::min(end, interval.hi);
  int64_t first = nextKey(interval, from);
  if (first >= stop)
    return std::nullopt;
  // A gap shorter than a tile leaves no tile untouched between first and last
  // key.
  if (interval.stride - interval.width < tileKeys)
    return TileRun{first / tileKeys, previousKey(interval, stop) / tileKeys};
  int64_t offset = floorMod(first - interval.phase, interval.stride);
  int64_t last = std::min(addSaturated(first, interval.width - 1 - offset), stop - 1);
  return TileRun{first / tileKeys, last / tileKeys};
}

} // namespace

int64_t floorDiv(int64_t a, int64_t b) {
  if (b <= 0)
    return 0;
  int64_t quotient = a / b;
  return a % b < 0 ? quotient - 1 : quotient;
}

int64_t floorMod(int64_t a, int64_t b) {
  if (b <= 0)
    return 0;
  int64_t remainder = a % b;
  return remainder < 0 ? remainder + b : remainder;
}

KeySet::KeySet(std::span<const KeyInterval> intervals, int64_t keyLen) {
  for (const KeyInterval &interval : intervals)
    add(interval, keyLen);
}

void KeySet::add(KeyInterval interval, int64_t keyLen) {
  interval.lo = std::max<int64_t>(interval.lo, 0);
  interval.hi = std::min(interval.hi, keyLen);
  if (interval.stride < 0)
    interval.stride = 0;
  if (interval.stride > 0) {
    if (interval.width <= 0)
      return;
    interval.phase = floorMod(interval.phase, interval.stride);
    if (interval.width >= interval.stride)
      interval.stride = 0;
  }
  if (interval.stride == 0)
    interval.phase = interval.width = 0;
  // An interval of which no key remains would only slow the queries down.
  if (interval.lo < interval.hi && nextKey(interval, interval.lo) < interval.hi)
    parts.push_back(interval);
}

bool KeySet::intersects(int64_t begin, int64_t end) const {
  return firstVisible(begin, end).has_value();
}

std::optional<int64_t> KeySet::firstVisible(int64_t begin, int64_t end) const {
  int64_t best = end;
  for (const KeyInterval &interval : parts)
    if (int64_t key = nextKey(interval, begin); key < interval.hi)
      best = std::min(best, key);
  if (best >= end)
    return std::nullopt;
  return best;
}

std::optional<int64_t> KeySet::lastVisible(int64_t begin, int64_t end) const {
  begin = std::max<int64_t>(begin, 0);
  if (begin >= end)
    return std::nullopt;
  int64_t best = begin - 1;
  for (const KeyInterval &interval : parts)
    if (int64_t key = previousKey(interval, end); key >= interval.lo)
      best = std::max(best, key);
  if (best < begin)
    return std::nullopt;
  return best;
}

/// Calls visit(first, last) for disjoint ascending runs of visible tiles, until
/// it returns false.
template <typename Visit>
void KeySet::forTileRuns(int64_t begin, int64_t end, int64_t tileKeys, Visit visit) const {
  begin = std::max<int64_t>(begin, 0);
  if (tileKeys <= 0 || begin >= end)
    return;
  int64_t tile = begin / tileKeys;
  while (true) {
    std::optional<TileRun> best;
    for (const KeyInterval &interval : parts) {
      std::optional<TileRun> run = nextTileRun(interval, tile, begin, end, tileKeys);
      if (run && (!best || run->first < best->first ||
                  (run->first == best->first && run->last > best->last)))
        best = run;
    }
    if (!best || !visit(best->first, best->last))
      return;
    tile = best->last + 1;
  }
}

int64_t KeySet::visibleTiles(int64_t begin, int64_t end, int64_t tileKeys) const {
  int64_t count = 0;
  forTileRuns(begin, end, tileKeys, [&](int64_t first, int64_t last) {
    count += last - first + 1;
    return true;
  });
  return count;
}

int64_t KeySet::endOfVisibleTile(int64_t begin, int64_t end, int64_t tileKeys,
                                 int64_t count) const {
  int64_t result = end;
  forTileRuns(begin, end, tileKeys, [&](int64_t first, int64_t last) {
    int64_t length = last - first + 1;
    if (count > length) {
      count -= length;
      return true;
    }
    result = std::min(end, mulSaturated(first + count, tileKeys));
    return false;
  });
  return result;
}

Status validate(const BoundProgram &program, size_t scalarCount) {
  if (program.size() > kMaxBoundInsns)
    return invalidArgument("bound program has {} instructions; at most {} are allowed",
                           program.size(), kMaxBoundInsns);
  size_t depth = 0;
  for (size_t i = 0; i < program.size(); ++i) {
    const BoundInsn &insn = program[i];
    if (insn.op > BoundOp::FloorMod)
      return invalidArgument("bound program instruction {} has operation {}; the last "
                             "known one is {}",
                             i, static_cast<int>(insn.op), static_cast<int>(BoundOp::FloorMod));
    if (readsScalar(insn.op) &&
        (insn.value < 0 || static_cast<uint64_t>(insn.value) >= scalarCount))
      return invalidArgument("bound program instruction {} reads scalar {}; the program "
                             "has {} scalars",
                             i, insn.value, scalarCount);
    if (!isBinary(insn.op)) {
      ++depth;
      continue;
    }
    if (depth < 2)
      return invalidArgument("bound program instruction {} needs two operands; the "
                             "stack holds {}",
                             i, depth);
    --depth;
  }
  if (depth != 1)
    return invalidArgument("bound program leaves {} values; exactly one is allowed", depth);
  return {};
}

Status validate(const BoundSet &set, size_t scalarCount) {
  for (size_t i = 0; i < set.intervals.size(); ++i) {
    const BoundInterval &interval = set.intervals[i];
    std::string context = fmt::format("interval {}", i);
    for (const BoundProgram *program : {&interval.lo, &interval.hi})
      if (Status status = validate(*program, scalarCount); !status.ok())
        return status.withContext(context);
    std::array thinning = {&interval.stride, &interval.phase, &interval.width};
    size_t given = 0;
    for (const BoundProgram *program : thinning) {
      if (program->empty())
        continue;
      ++given;
      if (Status status = validate(*program, scalarCount); !status.ok())
        return status.withContext(context);
    }
    if (given != 0 && given != thinning.size())
      return invalidArgument("interval {} has {} of stride, phase and width; all or "
                             "none are allowed",
                             i, given);
  }
  return {};
}

int64_t evaluate(const BoundProgram &program, const BoundInputs &inputs) {
  if (program.size() > kMaxBoundInsns)
    return 0;
  std::array<int64_t, kMaxBoundInsns> stack;
  size_t depth = 0;
  for (const BoundInsn &insn : program) {
    if (!isBinary(insn.op)) {
      stack[depth++] = readLeaf(insn, inputs);
      continue;
    }
    if (depth < 2)
      return 0;
    --depth;
    stack[depth - 1] = applyBinary(insn.op, stack[depth - 1], stack[depth]);
  }
  return depth == 1 ? stack[0] : 0;
}

KeySet evaluate(const BoundSet &set, const BoundInputs &inputs) {
  KeySet result;
  evaluate(set, inputs, result);
  return result;
}

void evaluate(const BoundSet &set, const BoundInputs &inputs, KeySet &result) {
  result.clear();
  for (const BoundInterval &source : set.intervals) {
    KeyInterval interval{.lo = evaluate(source.lo, inputs), .hi = evaluate(source.hi, inputs)};
    if (!source.stride.empty()) {
      interval.stride = evaluate(source.stride, inputs);
      interval.phase = evaluate(source.phase, inputs);
      interval.width = evaluate(source.width, inputs);
      // By the definition of FloorMod a stride <= 0 leaves offset 0: all or
      // nothing.
      if (interval.stride <= 0 && interval.width <= 0)
        continue;
    }
    result.add(interval, inputs.keyLen);
  }
}

} // namespace llmopt::bundle

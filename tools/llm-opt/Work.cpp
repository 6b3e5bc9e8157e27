// See Work.h.
#include "tools/llm-opt/Work.h"
#include "runtime/bundle/BoundsEval.h"
#include "runtime/device/Arguments.h"
#include "runtime/plan/Planner.h"

#include <algorithm>
#include <map>
#include <set>

namespace llmopt::cli {
namespace {

using bundle::BoundInputs;
using bundle::KeySet;

/// Values of the program's scalars as the mask's bounds read them, over some query heads.
struct BoundScalars {
  std::vector<int64_t> values, perHeadMin, perHeadMax;
};

bool hasPerHead(const bundle::Program &program) {
  return std::any_of(program.scalars.begin(), program.scalars.end(),
                     [](const bundle::Scalar &scalar) { return scalar.perHeadBuffer >= 0; });
}

BoundScalars scalarsOf(const bundle::Program &program, const harness::Call &call, int64_t firstHead,
                       int64_t heads) {
  BoundScalars scalars;
  for (const bundle::Scalar &scalar : program.scalars) {
    auto given = call.numbers.find(scalar.name);
    int64_t value = given == call.numbers.end() ? scalar.intDefault : int64_t(given->second);
    if (const harness::HostArray *argument = call.find(scalar.name);
        argument && argument->shape.empty())
      value = int64_t(argument->get({}));
    int64_t lowest = value, highest = value;
    const harness::HostArray *perHead =
        scalar.perHeadBuffer < 0 ? nullptr : call.find(program.buffers[scalar.perHeadBuffer].name);
    for (int64_t head = firstHead; perHead && head < firstHead + heads; ++head) {
      int64_t one = int64_t(perHead->get({head}));
      lowest = head > firstHead ? std::min(lowest, one) : one;
      highest = head > firstHead ? std::max(highest, one) : one;
    }
    scalars.values.push_back(value);
    scalars.perHeadMin.push_back(lowest);
    scalars.perHeadMax.push_back(highest);
  }
  return scalars;
}

/// Heads whose numbers are alike: all of them, or `each` at a time.
struct HeadClass {
  int64_t heads;
  BoundScalars scalars;
};

std::vector<HeadClass> headClasses(const bundle::Program &program, const harness::Call &call,
                                   int64_t each) {
  int64_t all = program.facts.queryHeads;
  if (!hasPerHead(program))
    return {{all, scalarsOf(program, call, 0, all)}};
  std::vector<HeadClass> classes;
  for (int64_t head = 0; head < all; head += each)
    classes.push_back({each, scalarsOf(program, call, head, each)});
  return classes;
}

double elementBytes(const bundle::Program &program) {
  for (const bundle::Buffer &buffer : program.buffers)
    if (buffer.role == bundle::BufferRole::Query)
      return runtime::bytesOf(buffer.type);
  return 4;
}

/// True where every key of [begin, end) is in the set.
bool holdsAll(const KeySet &set, int64_t begin, int64_t end) {
  for (int64_t reached = begin; reached < end;) {
    int64_t next = reached;
    for (const bundle::KeyInterval &part : set.intervals()) {
      if (reached < part.lo || reached >= part.hi)
        continue;
      int64_t rest = part.stride ? bundle::floorMod(reached - part.phase, part.stride) : 0;
      if (!part.stride)
        next = std::max(next, part.hi);
      else if (rest < part.width)
        next = std::max(next, std::min(part.hi, reached - rest + part.width));
    }
    if (next == reached)
      return false;
    reached = next;
  }
  return true;
}

/// What an item visits.
struct ItemTiles {
  double full = 0, partial = 0, keys = 0;
};

ItemTiles walk(const KeySet &may, const KeySet &surely, int64_t keyBegin, int64_t keyEnd,
               int64_t tileKeys) {
  ItemTiles tiles;
  for (int64_t key = keyBegin; key < keyEnd;) {
    std::optional<int64_t> seen = may.firstVisible(key, keyEnd);
    if (!seen)
      break;
    int64_t tile = *seen / tileKeys * tileKeys, end = std::min(tile + tileKeys, keyEnd);
    bool full =
        tile >= keyBegin && tile + tileKeys <= keyEnd && holdsAll(surely, tile, tile + tileKeys);
    ++(full ? tiles.full : tiles.partial);
    tiles.keys += full ? tileKeys : may.visibleTiles(std::max(tile, keyBegin), end, 1);
    key = end;
  }
  return tiles;
}

/// Items of one sequence shape are alike: each kind is walked once.
class Predictor {
public:
  Predictor(const bundle::Program &program, const runtime::Plan &plan, const harness::Call &call)
      : program(program), plan(plan), group(program.facts.queryHeads / program.facts.kvHeads),
        classes(headClasses(program, call, group)) {}

  Prediction run();

private:
  const ItemTiles &tilesOf(const bundle::WorkItem &item, int64_t tileKeys);

  const bundle::Program &program;
  const runtime::Plan &plan;
  int64_t group;
  std::vector<HeadClass> classes;
  std::map<std::array<int64_t, 8>, ItemTiles> known;
};

const ItemTiles &Predictor::tilesOf(const bundle::WorkItem &item, int64_t tileKeys) {
  const bundle::SequenceRecord &sequence = plan.sequences[item.sequence];
  size_t heads = classes.size() > 1 ? item.kvHead : 0;
  int64_t lo = plan.rows[item.firstRow / group].position;
  int64_t hi = plan.rows[(item.firstRow + item.rowCount - 1) / group].position;
  auto [place, isNew] = known.try_emplace({int64_t(heads), lo, hi, sequence.queryLen,
                                           sequence.keyLen, item.keyBegin, item.keyEnd, tileKeys});
  if (isNew) {
    const BoundScalars &scalars = classes[heads].scalars;
    BoundInputs inputs{lo,
                       hi,
                       sequence.queryLen,
                       sequence.keyLen,
                       scalars.values,
                       scalars.perHeadMin,
                       scalars.perHeadMax};
    place->second = walk(bundle::evaluate(program.facts.may, inputs),
                         bundle::evaluate(program.facts.surely, inputs), item.keyBegin,
                         std::min<int64_t>(item.keyEnd, sequence.keyLen), tileKeys);
  }
  return place->second;
}

Prediction Predictor::run() {
  const bundle::AttentionFacts &facts = program.facts;
  double bytes = elementBytes(program);
  Prediction prediction;
  std::set<std::pair<uint32_t, uint32_t>> rowTiles; // once, however many splits
  for (const runtime::AttendPlan &attend : plan.attends) {
    TileClasses &classesOf = prediction.tiles.emplace_back();
    int64_t tileKeys = program.kernels[attend.kernel].tileKeys;
    for (const bundle::WorkItem &item : attend.items) {
      if (item.rowCount == 0)
        continue;
      const ItemTiles &tiles = tilesOf(item, tileKeys);
      classesOf.full += tiles.full;
      classesOf.partial += tiles.partial;
      classesOf.empty -= tiles.full + tiles.partial;
      prediction.keyBytes += tiles.keys * (facts.dQk + facts.dV) * bytes;
      prediction.queryBytes += double(item.rowCount) * facts.dQk * bytes;
      if (!rowTiles.insert({item.firstRow, item.kvHead}).second)
        continue;
      int64_t keys = plan.sequences[item.sequence].keyLen;
      classesOf.empty += double((keys + tileKeys - 1) / tileKeys);
      prediction.queryBytes += double(item.rowCount) * facts.dV * bytes;
    }
  }
  constexpr double kOutAndIn = 2 * sizeof(float); // partials and their LSE are f32
  prediction.queryBytes += double(plan.partialRows) * (facts.dV + 1) * kOutAndIn;
  return prediction;
}

} // namespace

Work workOf(const bundle::Program &program, const harness::Shape &shape,
            const harness::Call &call) {
  Work work;
  const bundle::AttentionFacts &facts = program.facts;
  if (!facts.queryHeads)
    return work;
  std::map<std::pair<int64_t, int64_t>, double> sequences; // how many of each shape
  for (size_t s = 0; s < shape.queryLengths.size(); ++s)
    ++sequences[{shape.queryLengths[s], shape.keyLengths[s]}];
  int64_t group = facts.queryHeads / facts.kvHeads;
  std::vector<HeadClass> each = headClasses(program, call, 1);
  std::vector<HeadClass> groups = headClasses(program, call, group);
  double bytes = elementBytes(program);
  for (const auto &[lengths, count] : sequences) {
    auto [queries, keys] = lengths;
    runtime::SequenceShape sequence{.queryLen = queries, .keyLen = keys};
    auto visible = [&, keys = keys, queries = queries](const BoundScalars &scalars, int64_t first,
                                                       int64_t last) {
      BoundInputs inputs{runtime::positionOf(facts, sequence, first),
                         runtime::positionOf(facts, sequence, last),
                         queries,
                         keys,
                         scalars.values,
                         scalars.perHeadMin,
                         scalars.perHeadMax};
      return double(bundle::evaluate(facts.may, inputs).visibleTiles(0, keys, 1));
    };
    for (const HeadClass &heads : each)
      for (int64_t q = 0; q < queries; ++q)
        work.pairs += count * visible(heads.scalars, q, q) * double(heads.heads);
    if (queries > 0)
      for (const HeadClass &heads : groups)
        work.keyBytes += count * visible(heads.scalars, 0, queries - 1) *
                         double(heads.heads / group) * (facts.dQk + facts.dV) * bytes;
    work.queryBytes += count * double(queries) * facts.queryHeads * (facts.dQk + facts.dV) * bytes;
  }
  work.flops = work.pairs * 2 * (facts.dQk + facts.dV);
  return work;
}

std::vector<KeySet> visibleKeys(const bundle::Program &program, const harness::Shape &shape,
                                const harness::Call &call) {
  const bundle::AttentionFacts &facts = program.facts;
  BoundScalars scalars = scalarsOf(program, call, 0, facts.queryHeads);
  std::vector<KeySet> all;
  for (size_t s = 0; s < shape.queryLengths.size(); ++s) {
    int64_t queries = shape.queryLengths[s], keys = shape.keyLengths[s];
    runtime::SequenceShape sequence{.queryLen = queries, .keyLen = keys};
    BoundInputs inputs{runtime::positionOf(facts, sequence, 0),
                       runtime::positionOf(facts, sequence, queries - 1),
                       queries,
                       keys,
                       scalars.values,
                       scalars.perHeadMin,
                       scalars.perHeadMax};
    all.push_back(queries > 0 ? bundle::evaluate(facts.may, inputs) : KeySet());
  }
  return all;
}

Prediction predict(const bundle::Program &program, const runtime::Plan &plan,
                   const harness::Call &call) {
  if (!program.facts.kvHeads)
    return {};
  return Predictor(program, plan, call).run();
}

} // namespace llmopt::cli

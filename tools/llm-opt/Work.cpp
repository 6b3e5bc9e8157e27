// See Work.h.
#include "tools/llm-opt/Work.h"
#include "runtime/bundle/BoundsEval.h"
#include "runtime/device/Arguments.h"

#include <algorithm>

namespace llmopt::cli {
namespace {

/// Values of the program's scalars as the mask's bounds read them.
struct BoundScalars {
  std::vector<int64_t> values, perHeadMin, perHeadMax;
};

BoundScalars scalarsOf(const bundle::Program &program, const harness::Call &call) {
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
    for (int64_t head = 0; perHead && head < perHead->shape[0]; ++head) {
      int64_t one = int64_t(perHead->get({head}));
      lowest = head ? std::min(lowest, one) : one;
      highest = head ? std::max(highest, one) : one;
    }
    scalars.values.push_back(value);
    scalars.perHeadMin.push_back(lowest);
    scalars.perHeadMax.push_back(highest);
  }
  return scalars;
}

} // namespace

Work workOf(const bundle::Program &program, const harness::Shape &shape,
            const harness::Call &call) {
  Work work;
  const bundle::AttentionFacts &facts = program.facts;
  if (!facts.queryHeads)
    return work;
  BoundScalars scalars = scalarsOf(program, call);
  bundle::ElementType element = bundle::ElementType::F32;
  for (const bundle::Buffer &buffer : program.buffers)
    if (buffer.role == bundle::BufferRole::Query)
      element = buffer.type;
  double bytes = runtime::bytesOf(element);
  for (size_t s = 0; s < shape.queryLengths.size(); ++s) {
    int64_t queries = shape.queryLengths[s], keys = shape.keyLengths[s];
    auto visible = [&](int64_t first, int64_t last) {
      bundle::BoundInputs inputs{
          first, last, queries, keys, scalars.values, scalars.perHeadMin, scalars.perHeadMax};
      return double(bundle::evaluate(facts.may, inputs).visibleTiles(0, keys, 1));
    };
    for (int64_t q = 0; q < queries; ++q)
      work.pairs += visible(q + keys - queries, q + keys - queries) * facts.queryHeads;
    if (queries > 0)
      work.keyBytes +=
          visible(keys - queries, keys - 1) * facts.kvHeads * (facts.dQk + facts.dV) * bytes;
    work.queryBytes += double(queries) * facts.queryHeads * (facts.dQk + facts.dV) * bytes;
  }
  work.flops = work.pairs * 2 * (facts.dQk + facts.dV);
  return work;
}

} // namespace llmopt::cli

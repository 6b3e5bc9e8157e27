#include "runtime/engine/StepCost.h"

#include <algorithm>
#include <cmath>

using namespace llmopt::runtime;

namespace {

// The makers' data sheets: dense bf16 tensor throughput, memory, one direction of
// NVLink (PCIe where there is none) and of PCIe to the host.
constexpr Accelerator table[] = {
    {"a100", 312e12, 2.039e12, 80e9, 300e9, 32e9}, {"h100", 989e12, 3.35e12, 80e9, 450e9, 64e9},
    {"h200", 989e12, 4.8e12, 141e9, 450e9, 64e9},  {"b200", 2250e12, 8e12, 180e9, 900e9, 64e9},
    {"l40s", 362e12, 0.864e12, 48e9, 32e9, 32e9},  {"rtx4090", 165e12, 1.008e12, 24e9, 32e9, 32e9},
};

/// (query, key) pairs that the mask lets through, and distinct keys, for queries at
/// positions [before, before + queries).
void visible(const kv::GroupSpec &group, uint64_t before, uint64_t queries, double &pairs,
             double &keys) {
  double n = double(queries), b = double(before);
  if (group.keepsAll()) {
    pairs = n * b + n * (n + 1) / 2;
    keys = b + n;
    return;
  }
  uint64_t end = before + queries, first = group.firstKey(before);
  double sink =
      group.kind == kv::GroupKind::Window ? double(std::min<uint64_t>(group.sink, first)) : 0;
  keys = double(end - first) + sink;
  if (group.kind == kv::GroupKind::Window) {
    double w = group.window;
    // The first queries of a sequence see less than a whole window.
    double partial = std::clamp(w - b - 1, 0.0, n);
    pairs = partial * b + partial * (partial + 1) / 2 + (n - partial) * w;
    // Of the sink, a query sees what lies before its window: min(sink, position + 1 - w).
    auto sinkPairs = [s = double(group.sink)](double most) {
      double rising = std::clamp(most, 0.0, s);
      return rising * (rising + 1) / 2 + std::max(most - s, 0.0) * s;
    };
    pairs += sinkPairs(b + n - w) - sinkPairs(b - w);
    return;
  }
  pairs = 0;
  for (uint64_t at = before; at < end;) { // chunk by chunk
    uint64_t start = at / group.chunk * group.chunk;
    uint64_t stop = std::min(end, start + group.chunk);
    double m = double(stop - at), inside = double(at - start);
    pairs += m * inside + m * (m + 1) / 2;
    at = stop;
  }
}

} // namespace

std::span<const Accelerator> llmopt::runtime::accelerators() { return table; }

StatusOr<Accelerator> llmopt::runtime::findAccelerator(std::string_view name) {
  std::string known;
  for (const Accelerator &each : table) {
    if (each.name == name)
      return each;
    known += (known.empty() ? "" : ", ") + std::string(each.name);
  }
  return makeStatus(StatusCode::NotFound, "accelerator '{}' is unknown; known are {}", name, known);
}

double ModelFacts::tokenBytes() const {
  double sum = 0;
  for (const AttentionFacts &group : groups)
    sum += group.tokenBytes;
  return sum;
}

ModelFacts llmopt::runtime::llama8b(uint32_t pageSize) {
  ModelFacts model;
  model.name = "Llama-3.1-8B";
  model.layers = 32;
  model.hidden = 4096;
  // A layer: Q and O of 4096 x 4096, K and V of 4096 x 1024, three of 4096 x 14336.
  model.denseParams = 32.0 * (2 * 4096.0 * 4096 + 2 * 4096.0 * 1024 + 3 * 4096.0 * 14336);
  model.headParams = 128256.0 * 4096;
  AttentionFacts group;
  group.layers = 32;
  group.queryHeads = 32;
  group.kvHeads = 8;
  group.keyDim = group.valueDim = 128;
  group.tokenBytes = 32.0 * 8 * (128 + 128) * 2;
  group.group.pageSize = pageSize;
  group.group.dataBytes = uint64_t(group.tokenBytes) * pageSize;
  model.groups.push_back(group);
  return model;
}

StepCost::StepCost(const ModelFacts &model, const Accelerator &accelerator,
                   const StepCostOptions &options)
    : facts(model), device(accelerator), options(options),
      flops(accelerator.flops * options.attainedFlops * options.accelerators),
      bandwidth(accelerator.bandwidth * options.attainedBandwidth * options.accelerators) {}

void StepCost::begin(Work &work) const {
  work.tokens = work.logits = 0;
  work.pairs.assign(facts.groups.size(), 0);
  work.keys.assign(facts.groups.size(), 0);
}

void StepCost::addRow(Work &work, uint64_t keysBefore, uint64_t queries) const {
  work.tokens += double(queries);
  for (size_t g = 0; g < facts.groups.size(); ++g) {
    double pairs, keys;
    visible(facts.groups[g].group, keysBefore, queries, pairs, keys);
    work.pairs[g] += pairs;
    work.keys[g] += keys + double(queries); // read, and written
  }
}

double StepCost::seconds(const Work &work) const {
  double touched = facts.denseParams;
  if (facts.experts)
    touched += facts.expertParams *
               (1 - std::pow(1 - double(facts.expertsPerToken) / facts.experts, work.tokens));
  double weights = (touched + (work.logits > 0 ? facts.headParams : 0)) * facts.bytesPerParam;
  double products = 2 * (facts.activeParams() * work.tokens + facts.headParams * work.logits);
  double seconds = options.launchSeconds + std::max(products / flops, weights / bandwidth);
  for (size_t g = 0; g < facts.groups.size(); ++g) {
    const AttentionFacts &group = facts.groups[g];
    double scores =
        2.0 * group.queryHeads * (group.keyDim + group.valueDim) * work.pairs[g] * group.layers;
    seconds += std::max(scores / flops, work.keys[g] * group.tokenBytes / bandwidth);
  }
  if (double n = options.accelerators; n > 1)
    seconds += 2.0 * facts.layers *
               (options.allReduceLatency +
                2 * (n - 1) / n * work.tokens * facts.hidden * 2 / device.linkBandwidth);
  return seconds;
}

kv::CostModel StepCost::preemptionCosts() const {
  kv::CostModel costs;
  costs.secondsPerToken = 2 * facts.activeParams() / flops;
  costs.secondsPerTokenAndKey = 0;
  for (const AttentionFacts &group : facts.groups)
    if (group.group.keepsAll())
      costs.secondsPerTokenAndKey +=
          2.0 * group.queryHeads * (group.keyDim + group.valueDim) * group.layers / flops;
  costs.bytesPerSecond = device.hostBandwidth * options.attainedBandwidth * options.accelerators;
  return costs;
}

#include "tools/llm-opt/ReplayLayers.h"

#include "runtime/engine/SimExecutor.h"

#include <algorithm>
#include <cmath>

using namespace llmopt;
using namespace llmopt::cli;
using namespace llmopt::runtime;

namespace {

constexpr uint32_t kHidden = 16, kVocabulary = 64, kMostKvHeads = 2, kMostRatio = 8;

std::vector<float> weights(uint64_t seed, size_t in, size_t out) {
  std::vector<float> values(in * out);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = float((randomAt(seed, i) * 2 - 1) / std::sqrt(double(in)));
  return values;
}

/// y += x W.
void multiply(const std::vector<float> &w, const float *x, size_t in, float *y) {
  size_t out = w.size() / in;
  for (size_t i = 0; i < in; ++i)
    for (size_t o = 0; o < out; ++o)
      y[o] += x[i] * w[i * out + o];
}

} // namespace

ModelFacts cli::scaledDown(const ModelFacts &model) {
  ModelFacts scaled = model;
  scaled.name += ", scaled down";
  scaled.layers = uint32_t(model.groups.size());
  for (AttentionFacts &facts : scaled.groups) {
    uint32_t ratio = std::min(kMostRatio, facts.queryHeads / std::max(facts.kvHeads, 1u));
    facts.layers = 1;
    facts.kvHeads = std::min(facts.kvHeads, kMostKvHeads);
    facts.queryHeads = facts.kvHeads * std::max(ratio, 1u);
    facts.keyDim = facts.valueDim = kReplayHeadDim;
    facts.tokenBytes = double(facts.kvHeads) * (facts.keyDim + facts.valueDim) * sizeof(float);
    facts.group.dataBytes = uint64_t(facts.tokenBytes) * facts.group.pageSize;
    facts.group.scaleBytes = 0;
  }
  return scaled;
}

ReplayLayers::ReplayLayers(const ModelFacts &scaled) {
  for (const AttentionFacts &facts : scaled.groups) {
    Layer &layer = layers.emplace_back();
    layer.queryWidth = facts.queryHeads * facts.keyDim;
    layer.keyWidth = facts.kvHeads * facts.keyDim;
    uint64_t seed = 10 * layers.size();
    layer.query = weights(seed, kHidden, layer.queryWidth);
    layer.key = weights(seed + 1, kHidden, layer.keyWidth);
    layer.value = weights(seed + 2, kHidden, layer.keyWidth);
    layer.output = weights(seed + 3, layer.queryWidth, kHidden);
  }
}

Status ReplayLayers::begin(const ModelBatch &batch) {
  hidden.resize(batch.ids.size() * kHidden);
  for (size_t t = 0; t < batch.ids.size(); ++t)
    for (uint32_t i = 0; i < kHidden; ++i)
      hidden[t * kHidden + i] = float(randomAt(batch.ids[t], batch.positions[t] % 512, i) * 2 - 1);
  logits = batch.logits;
  return {};
}

Status ReplayLayers::project(const ModelBatch &batch, uint32_t index, const LayerArrays &arrays) {
  const Layer &layer = layers[index];
  const std::vector<float> *of[] = {&layer.query, &layer.key, &layer.value};
  void *to[] = {arrays.query, arrays.key, arrays.value};
  for (int i = 0; i < 3; ++i) {
    size_t width = of[i]->size() / kHidden;
    staging[i].assign(batch.ids.size() * width, 0);
    for (size_t t = 0; t < batch.ids.size(); ++t)
      multiply(*of[i], &hidden[t * kHidden], kHidden, &staging[i][t * width]);
    LLMOPT_RETURN_IF_ERROR(
        batch.stream->copyIn(to[i], staging[i].data(), staging[i].size() * sizeof(float)));
  }
  return {};
}

Status ReplayLayers::absorb(const ModelBatch &batch, uint32_t index, const LayerArrays &arrays) {
  const Layer &layer = layers[index];
  std::vector<float> &output = staging[0];
  output.resize(batch.ids.size() * layer.queryWidth);
  LLMOPT_RETURN_IF_ERROR(
      batch.stream->copyOut(output.data(), arrays.output, output.size() * sizeof(float)));
  LLMOPT_RETURN_IF_ERROR(batch.stream->synchronize());
  for (size_t t = 0; t < batch.ids.size(); ++t)
    multiply(layer.output, &output[t * layer.queryWidth], layer.queryWidth, &hidden[t * kHidden]);
  return {};
}

StatusOr<kv::Token> ReplayLayers::sample(const SampleQuery &query) {
  const float *x = &hidden[size_t(logits[query.logit]) * kHidden];
  float best = -INFINITY;
  kv::Token token = 0;
  for (uint32_t v = 0; v < kVocabulary; ++v) {
    float sum = 0;
    for (uint32_t i = 0; i < kHidden; ++i)
      sum += x[i] * float(randomAt(v, i, 7) * 2 - 1);
    if (sum > best)
      best = sum, token = v;
  }
  return token;
}

Status ReplayLayers::draft(const ModelRow &, kv::Token last, uint32_t position,
                           std::span<kv::Token> drafts) {
  for (size_t i = 0; i < drafts.size(); ++i)
    drafts[i] = kv::Token((last + position + i) % kVocabulary);
  return {};
}

// A small transformer whose numbers follow from a seed: RMS norms, rotary positions, grouped
// query attention, gated MLP. Everything but attention is computed token by token in a fixed
// order, so that a token's bits depend on nothing else in the batch.
#pragma once

#include "runtime/executor/ModelLayers.h"

#include <map>
#include <vector>

namespace llmopt::test {

using namespace llmopt::runtime;

struct TinyConfig {
  uint32_t layers = 2, hidden = 32, queryHeads = 4, kvHeads = 2, headDim = 8, inner = 48;
  uint32_t vocabulary = 256;
  uint64_t seed = 1;
};

class TinyModel {
public:
  explicit TinyModel(const TinyConfig &config);

  const TinyConfig &config() const { return shape; }
  uint32_t queryWidth() const { return shape.queryHeads * shape.headDim; }
  uint32_t keyWidth() const { return shape.kvHeads * shape.headDim; }

  /// One token each; T is float, or double for a reference.
  template <typename T> void embed(kv::Token token, T *x) const;
  template <typename T>
  void project(uint32_t layer, uint32_t position, const T *x, T *q, T *k, T *v) const;
  template <typename T> void absorb(uint32_t layer, const T *o, T *x) const;
  template <typename T> void logits(const T *x, T *out) const;

private:
  struct Layer {
    std::vector<float> q, k, v, o, gate, up, down; ///< (in, out)
  };
  TinyConfig shape;
  std::vector<float> embedding, head;
  std::vector<Layer> layers;
};

/// The largest logit, or one drawn by (seed, position).
kv::Token sampleFrom(std::span<const float> logits, bool greedy, uint64_t seed, uint32_t position);
uint64_t hashOf(std::span<const float> logits);

/// What a sequence yielded: tokens, and hashes of the logits behind them.
struct Answer {
  std::vector<kv::Token> tokens;
  std::vector<uint64_t> logits;
};

/// The model as the executor calls it, on a device whose memory is the host's. Keeps the
/// hashes of the logits behind each token.
class TinyLayers : public ModelLayers {
public:
  explicit TinyLayers(const TinyModel &model) : model(model) {}

  Status begin(const ModelBatch &batch) override;
  Status project(const ModelBatch &batch, uint32_t layer, const LayerArrays &arrays) override;
  Status absorb(const ModelBatch &batch, uint32_t layer, const LayerArrays &arrays) override;
  Status finish(const ModelBatch &batch) override;
  StatusOr<kv::Token> sample(const SampleQuery &query) override;

  /// By request and generation, then by position in the answer.
  std::map<std::pair<uint32_t, uint32_t>, std::vector<uint64_t>> hashes;
  /// The logits themselves, when wanted.
  bool keepLogits = false;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<std::vector<float>>> kept;

protected:
  const TinyModel &model;

private:
  std::vector<float> hidden, logitRows;
};

} // namespace llmopt::test

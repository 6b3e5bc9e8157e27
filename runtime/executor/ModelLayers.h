// What a model is to the executor: attention is the executor's, everything else the
// caller's. For each step the executor calls
//
//   begin(batch)                        embedding
//   for each layer, from 0 on:
//     project(batch, layer, arrays)     writes Q, K and V (rotary applied)
//     ... the executor appends K and V to the cache and attends ...
//     absorb(batch, layer, arrays)      reads the output: projection, residual, MLP
//   finish(batch)                       logits of the tokens that want them
//   sample(query) ...                   one call for each token that may come out
//   draft(query, ...)                   where the scheduler asks for drafts of the device
//
// All calls come from one thread, step after step. Work that is given to the stream runs in
// its order; what `sample` and `draft` answer must be there when they return.
//
// A model whose `project` and `absorb` do nothing but give work to the stream, and the same work
// whatever the batch is (it reads numbers of tokens and the like from memory that `begin` wrote),
// says so by `worksOnStream`. Both are then called once for each layer of each capture bucket,
// with a batch of no tokens, and a step is one replay between `begin` and `finish`.
#pragma once

#include "runtime/device/Device.h"
#include "runtime/kv/Prompt.h"
#include "runtime/scheduler/StepInput.h"

#include <span>

namespace llmopt::runtime {

/// A row whose base and tokens are known now.
struct ModelRow {
  const step::Row *row = nullptr;
  uint32_t firstToken = 0, tokenCount = 0; ///< in the batch's arrays
  uint32_t base = 0;                       ///< KV slots before it
  uint32_t outputPosition = 0;             ///< answer tokens before its first
};

/// The query tokens of a step, rows one after the other. Valid during the calls of the step.
struct ModelBatch {
  std::span<const kv::Token> ids;
  std::span<const uint32_t> positions;
  std::span<const ModelRow> rows;
  std::span<const uint32_t> logits; ///< indices of the tokens whose logits are wanted
  Stream *stream = nullptr;
};

/// Arrays of one layer in device memory, (tokens, heads, dimension), contiguous.
struct LayerArrays {
  void *query = nullptr, *key = nullptr, *value = nullptr;
  const void *output = nullptr;
};

/// The next token of an answer.
struct SampleQuery {
  const ModelRow *row = nullptr;
  uint32_t logit = 0;    ///< index in ModelBatch::logits
  uint32_t position = 0; ///< of the token in the answer: keys its random number
};

class ModelLayers {
public:
  virtual ~ModelLayers() = default;

  virtual bool worksOnStream() const { return false; }
  virtual Status begin(const ModelBatch &batch) = 0;
  virtual Status project(const ModelBatch &batch, uint32_t layer, const LayerArrays &arrays) = 0;
  virtual Status absorb(const ModelBatch &batch, uint32_t layer, const LayerArrays &arrays) = 0;
  virtual Status finish(const ModelBatch &batch) = 0;
  /// A function of the logits, the row's seed and the position alone: then neither
  /// preemption nor drafts change an answer.
  virtual StatusOr<kv::Token> sample(const SampleQuery &query) = 0;
  /// Guesses for the tokens after `last`, which is token `position` of the row's answer.
  virtual Status draft(const ModelRow &row, kv::Token last, uint32_t position,
                       std::span<kv::Token> drafts) {
    return makeStatus(StatusCode::Unsupported,
                      "the scheduler wants {} drafts of the device and the model makes none; "
                      "implement ModelLayers::draft",
                      drafts.size());
  }
};

} // namespace llmopt::runtime

// What a step's rows are once the rows before them have run: base lengths, tokens and
// positions; and which drafts the model's tokens confirm. Plain data, no device.
#pragma once

#include "runtime/executor/ModelLayers.h"
#include "runtime/scheduler/StepResult.h"

#include <functional>
#include <vector>

namespace llmopt::runtime {

/// What a row leaves for the rows that follow it.
struct RowState {
  uint32_t length = 0, outputPosition = 0;
  kv::Token last = 0; ///< the last token that it yielded
  bool failed = false;
};

/// The KV of an accepted draft of a tree goes from the slot of its place among the drafts to
/// that of its place in the sequence.
struct TokenMove {
  uint32_t tableSlot = 0, from = 0, to = 0; ///< `to` below `from`
};

/// A step that was run, kept until no later step can name it.
struct StepRecord {
  uint64_t step = step::kNoStep;
  std::vector<RowState> rows;
  std::vector<TokenMove> moves;  ///< in this order, before any row of a later step
  std::vector<kv::Token> drafts; ///< that the model made after each row, equally many each
  StepResult result;
};

/// The rows of one step, resolved. Rows that follow a failed one have failed too, and are not
/// in the batch.
class StepRows {
public:
  /// `find` gives the record of a step in flight, or null. Unsupported for a tree of drafts
  /// where `trees` says that kernels have no mask for them, Internal where the step contradicts
  /// what was run.
  Status resolve(const StepInput &input, bool trees,
                 const std::function<const StepRecord *(uint64_t)> &find);

  /// `stream` is left to the caller.
  ModelBatch batch() const { return {ids, positions, rows, logits, nullptr}; }
  /// Index in the batch of a row of the step; none where it has failed.
  static constexpr uint32_t kFailed = UINT32_MAX;
  std::span<const uint32_t> places() const { return place; }
  /// Of each token: bit k is set where it sees the k-th token of its row, all bits where it
  /// sees every earlier one (attn's mask `tree`).
  std::span<const uint64_t> treeSets() const { return sets; }

private:
  Status addRow(const StepInput &input, const step::Row &row, const RowState &base,
                const std::function<const StepRecord *(uint64_t)> &find);
  void addSets(std::span<const step::Draft> drafts, uint32_t tokens);

  std::vector<kv::Token> ids;
  std::vector<uint64_t> sets;
  std::vector<uint32_t> positions, logits, place;
  std::vector<ModelRow> rows;
};

/// Most tokens of a row of a tree: bits of a set.
inline constexpr uint32_t kMostTreeTokens = 64;

/// Samples the tokens of a step's rows, accepts drafts, asks for `drafts` new ones a row, and
/// fills the record.
Status sampleRows(const StepInput &input, const StepRows &rows, ModelLayers &model, uint32_t drafts,
                  StepRecord &record);

} // namespace llmopt::runtime

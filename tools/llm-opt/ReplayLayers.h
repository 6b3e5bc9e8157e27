// A model for replays on a device: layer groups with the real masks, ratios of heads and page
// sizes, and small heads; projections by fixed pseudo-random weights, on the host. What a
// device does in attention, copies and appends is real; the answers mean nothing.
#pragma once

#include "runtime/engine/StepCost.h"
#include "runtime/executor/ModelLayers.h"

#include <vector>

namespace llmopt::cli {

/// One layer for each group, of heads of this size.
inline constexpr uint32_t kReplayHeadDim = 8;

/// `model` with one layer a group, few and small heads, f32: sizes of pages follow.
runtime::ModelFacts scaledDown(const runtime::ModelFacts &model);

class ReplayLayers : public runtime::ModelLayers {
public:
  explicit ReplayLayers(const runtime::ModelFacts &scaled);

  runtime::Status begin(const runtime::ModelBatch &batch) override;
  runtime::Status project(const runtime::ModelBatch &batch, uint32_t layer,
                          const runtime::LayerArrays &arrays) override;
  runtime::Status absorb(const runtime::ModelBatch &batch, uint32_t layer,
                         const runtime::LayerArrays &arrays) override;
  runtime::Status finish(const runtime::ModelBatch &) override { return {}; }
  /// The largest of a few products with the token's state.
  runtime::StatusOr<runtime::kv::Token> sample(const runtime::SampleQuery &query) override;
  /// The tokens that an answer would repeat: few of them are right.
  runtime::Status draft(const runtime::ModelRow &row, runtime::kv::Token last, uint32_t position,
                        std::span<runtime::kv::Token> drafts) override;

private:
  struct Layer {
    uint32_t queryWidth = 0, keyWidth = 0;
    std::vector<float> query, key, value, output; ///< (in, out)
  };

  std::vector<Layer> layers;
  std::vector<float> hidden, staging[3];
  std::span<const uint32_t> logits;
};

} // namespace llmopt::cli

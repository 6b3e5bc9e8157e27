// Attention of a step as work that was captured at load and is replayed: the same kernels with
// the same pointers, grids and parameter bytes each time; only what lies in device memory
// changes from step to step.
//
//   {.maxRows = 64, .maxQueryTokens = 1, .phases = kDecodes}    // decode steps
//   {.maxRows = 64, .maxQueryTokens = 256, .phases = kAllPhases}
//
// Attention is captured layer by layer, since what lies between is the model's; where the model's
// own work can be captured too (ModelLayers.h), and the bucket leaves no group out, all layers are
// one piece of work.
//
// A bucket's work is that of every kernel which a row within it may choose. Kernels without rows
// in a step find empty lists. A step takes the smallest bucket that it fits; where it fits none,
// kernels are launched one by one, which is counted.
#pragma once

#include "runtime/device/Device.h"
#include "runtime/executor/LayerCall.h"
#include "runtime/executor/LayerKernels.h"

#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace llmopt::runtime {

inline constexpr uint8_t kPrefills = 1 << uint8_t(step::Phase::Prefill);
inline constexpr uint8_t kDecodes = 1 << uint8_t(step::Phase::Decode);
inline constexpr uint8_t kVerifies = 1 << uint8_t(step::Phase::Verify);
inline constexpr uint8_t kAllPhases = kPrefills | kDecodes | kVerifies;

struct CaptureBucket {
  uint32_t maxRows = 0;
  uint32_t maxQueryTokens = 1; ///< of a row
  uint8_t phases = kDecodes;
  /// Layer groups whose layers are replayed; empty: all. Those of others are launched one by
  /// one, in the same step.
  std::vector<uint32_t> groups = {};
};

/// What a step asks of a bucket.
struct StepShape {
  uint32_t rows = 0, longestRow = 0;
  uint8_t phases = 0;
};

struct CaptureCounters {
  std::vector<uint64_t> replayed; ///< steps of each bucket, in the order of the options
  uint64_t eager = 0;             ///< steps that fitted none, or where none was asked for
};

class Captures {
public:
  /// A layer group's calls, as the executor has them.
  struct GroupCalls {
    LayerCall *append;
    std::span<LayerCall> attend;
    uint32_t layers;
  };

  /// A layer of the model: its group, and its place in it.
  struct LayerPlace {
    uint32_t group, index;
  };
  /// The model's work around the attention of a layer; empty where it cannot be captured.
  struct ModelWork {
    std::span<const LayerPlace> layers;
    std::function<Status(uint32_t)> project, absorb;
  };

  /// Captures all buckets. InvalidArgument for one that no step can fit.
  static StatusOr<Captures> capture(Stream &stream, std::span<const CaptureBucket> buckets,
                                    const LayerKernels &kernels, std::span<const GroupCalls> calls,
                                    const ModelWork &model);

  static constexpr uint32_t kNone = UINT32_MAX;
  /// The smallest bucket that a step fits, or kNone; counts it.
  uint32_t choose(const StepShape &shape);
  /// Kernels of a group that the bucket's work runs, by their place in LayerKernels::attend.
  std::span<const uint32_t> kernelsOf(uint32_t bucket, uint32_t group) const {
    return made[bucket].kernels[group];
  }
  bool has(uint32_t bucket, uint32_t group) const { return made[bucket].covers[group]; }
  /// Whether all layers are one piece of work.
  bool isWhole(uint32_t bucket) const { return made[bucket].whole != nullptr; }
  Status replayWhole(Stream &stream, uint32_t bucket) const {
    return stream.replay(*made[bucket].whole);
  }
  Status replay(Stream &stream, uint32_t bucket, uint32_t group, uint32_t layer) const {
    return stream.replay(*made[bucket].graphs[group][layer]);
  }
  const CaptureCounters &counters() const { return counts; }

private:
  struct Bucket {
    CaptureBucket limits;
    std::vector<std::vector<uint32_t>> kernels;              ///< of each group
    std::vector<bool> covers;                                ///< of each group
    std::vector<std::vector<std::unique_ptr<Graph>>> graphs; ///< of each group, of each layer
    std::unique_ptr<Graph> whole;                            ///< instead, of all layers
  };
  static Status captureBucket(Stream &stream, const LayerKernels &kernels,
                              std::span<const GroupCalls> calls, const ModelWork &model,
                              Bucket &bucket);

  std::vector<Bucket> made;
  std::vector<uint32_t> bySize; ///< of `made`, ascending
  CaptureCounters counts;
};

} // namespace llmopt::runtime

// How long a step takes on a named accelerator: the cost model of simulated runs.
//
//   step = launch + linear + sum over layer groups of attention + all-reduce
//
//   linear    = max(2 * (P * tokens + H * logits) / F, bytes of the weights touched / B)
//   attention = max(4 * heads * d * pairs * layers / F,
//                   KV bytes read and written / B)
//   all-reduce = 2 * layers * (latency + 2 * (N - 1) / N * tokens * hidden * 2 / L), N > 1
//
// P: parameters that one token uses; H: those of the output head; F, B: N times the
// accelerator's peak and bandwidth, times the shares of them that kernels attain
// (`attainedFlops`, `attainedBandwidth`); L: its link. Pairs are the (query, key) pairs that
// the group's mask lets through; a row reads each visible key once. Of a mixture of experts
// a step of t tokens touches 1 - (1 - k/E)^t of the experts' weights. `launch` is the time
// between two steps in which the device does nothing: launches and gaps between kernels.
// The host's own time a step is the engine's, and overlaps with the device when more than
// one step is in flight.
#pragma once

#include "runtime/kv/CostModel.h"
#include "runtime/kv/Groups.h"
#include "runtime/scheduler/StepInput.h"

#include <string>
#include <string_view>
#include <vector>

namespace llmopt::runtime {

struct Accelerator {
  std::string_view name;
  double flops;     ///< dense bf16, a second
  double bandwidth; ///< bytes a second
  double memoryBytes;
  double linkBandwidth; ///< bytes a second to its peers, one direction
  double hostBandwidth; ///< bytes a second to host memory, one direction
};

/// NotFound with the known names.
StatusOr<Accelerator> findAccelerator(std::string_view name);
std::span<const Accelerator> accelerators();

/// The layers of one KV group.
struct AttentionFacts {
  kv::GroupSpec group;
  uint32_t layers = 0, queryHeads = 0, kvHeads = 0, keyDim = 0, valueDim = 0;
  /// KV bytes of one token in all its layers.
  double tokenBytes = 0;
};

struct ModelFacts {
  std::string name;
  uint32_t layers = 0, hidden = 0;
  double denseParams = 0;  ///< of the layers, without experts
  double headParams = 0;   ///< vocabulary times hidden
  double expertParams = 0; ///< of all experts of all layers
  uint32_t experts = 0, expertsPerToken = 0;
  double bytesPerParam = 2;
  std::vector<AttentionFacts> groups;

  double activeParams() const {
    return denseParams + (experts ? expertParams * expertsPerToken / experts : 0);
  }
  double tokenBytes() const;
};

/// Llama-3.1-8B in bf16: what is simulated when no model is named.
ModelFacts llama8b(uint32_t pageSize);

struct StepCostOptions {
  uint32_t accelerators = 1; ///< N, tensor parallel
  double attainedFlops = 0.6, attainedBandwidth = 0.8;
  double launchSeconds = 200e-6;
  double allReduceLatency = 10e-6;
};

class StepCost {
public:
  StepCost(const ModelFacts &model, const Accelerator &accelerator, const StepCostOptions &options);

  /// Adds a row of `queries` tokens behind `keysBefore` cached ones.
  struct Work {
    double tokens = 0, logits = 0;
    std::vector<double> pairs, keys; ///< of each group
  };
  void begin(Work &work) const;
  void addRow(Work &work, uint64_t keysBefore, uint64_t queries) const;
  double seconds(const Work &work) const;

  /// The same figures for the choice between recompute and swap.
  kv::CostModel preemptionCosts() const;
  const ModelFacts &model() const { return facts; }

private:
  ModelFacts facts;
  Accelerator device;
  StepCostOptions options;
  double flops, bandwidth;
};

} // namespace llmopt::runtime

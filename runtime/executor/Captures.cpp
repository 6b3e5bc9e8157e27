#include "runtime/executor/Captures.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <tuple>

using namespace llmopt::runtime;

namespace {

constexpr step::Phase kPhases[] = {step::Phase::Prefill, step::Phase::Decode, step::Phase::Verify};

Status checkBucket(const CaptureBucket &bucket, size_t index, size_t groups) {
  if (bucket.maxRows < 1 || bucket.maxQueryTokens < 1 || bucket.phases == 0 ||
      bucket.phases > kAllPhases)
    return invalidArgument("capture bucket {} is for {} rows of {} query tokens and phases {:#x}; "
                           "at least one of each and phases up to {:#x} are allowed",
                           index, bucket.maxRows, bucket.maxQueryTokens, bucket.phases, kAllPhases);
  for (uint32_t group : bucket.groups)
    if (group >= groups)
      return invalidArgument("capture bucket {} names layer group {}; there are {}", index, group,
                             groups);
  return {};
}

/// Kernels that a row within the bucket may choose.
std::vector<uint32_t> kernelsWithin(const CaptureBucket &bucket, const LayerKernels::Group &group) {
  std::vector<uint32_t> kernels;
  for (step::Phase phase : kPhases)
    for (const LayerKernels::Choice &choice : group.choices[size_t(phase)])
      if ((bucket.phases >> uint8_t(phase) & 1) && choice.minQueries <= bucket.maxQueryTokens)
        kernels.push_back(choice.kernel);
  std::ranges::sort(kernels);
  kernels.erase(std::unique(kernels.begin(), kernels.end()), kernels.end());
  return kernels;
}

/// Everything that `give` gives to the stream.
template <typename Give> StatusOr<std::unique_ptr<Graph>> captureOf(Stream &stream, Give give) {
  LLMOPT_RETURN_IF_ERROR(stream.beginCapture());
  Status status = give();
  StatusOr<std::unique_ptr<Graph>> graph = stream.endCapture();
  return status.ok() ? std::move(graph) : status;
}

Status giveLayer(Stream &stream, const Captures::GroupCalls &calls,
                 std::span<const uint32_t> kernels, uint32_t layer) {
  LLMOPT_RETURN_IF_ERROR(calls.append->run(stream, layer));
  for (uint32_t kernel : kernels)
    LLMOPT_RETURN_IF_ERROR(calls.attend[kernel].run(stream, layer, LayerCall::Merging::Always));
  return {};
}

} // namespace

Status Captures::captureBucket(Stream &stream, const LayerKernels &kernels,
                               std::span<const GroupCalls> calls, const ModelWork &model,
                               Bucket &bucket) {
  bucket.kernels.resize(calls.size());
  bucket.graphs.resize(calls.size());
  bucket.covers.resize(calls.size());
  std::vector<uint32_t> &groups = bucket.limits.groups;
  if (groups.empty()) {
    groups.resize(calls.size());
    std::iota(groups.begin(), groups.end(), 0);
  }
  for (uint32_t g : groups) {
    bucket.covers[g] = true;
    bucket.kernels[g] = kernelsWithin(bucket.limits, kernels.group(g));
  }
  if (model.project && std::ranges::find(bucket.covers, false) == bucket.covers.end()) {
    StatusOr<std::unique_ptr<Graph>> whole = captureOf(stream, [&]() -> Status {
      for (uint32_t layer = 0; layer < model.layers.size(); ++layer) {
        auto [group, index] = model.layers[layer];
        LLMOPT_RETURN_IF_ERROR(model.project(layer));
        LLMOPT_RETURN_IF_ERROR(giveLayer(stream, calls[group], bucket.kernels[group], index));
        LLMOPT_RETURN_IF_ERROR(model.absorb(layer));
      }
      return {};
    });
    if (!whole)
      return whole.status();
    bucket.whole = *std::move(whole);
    return {};
  }
  for (uint32_t g : groups)
    for (uint32_t layer = 0; layer < calls[g].layers; ++layer) {
      StatusOr<std::unique_ptr<Graph>> graph =
          captureOf(stream, [&] { return giveLayer(stream, calls[g], bucket.kernels[g], layer); });
      if (!graph)
        return graph.status();
      bucket.graphs[g].push_back(*std::move(graph));
    }
  return {};
}

StatusOr<Captures> Captures::capture(Stream &stream, std::span<const CaptureBucket> buckets,
                                     const LayerKernels &kernels, std::span<const GroupCalls> calls,
                                     const ModelWork &model) {
  Captures captures;
  for (size_t b = 0; b < buckets.size(); ++b) {
    LLMOPT_RETURN_IF_ERROR(checkBucket(buckets[b], b, calls.size()));
    Bucket &bucket = captures.made.emplace_back();
    bucket.limits = buckets[b];
    Status status = captureBucket(stream, kernels, calls, model, bucket);
    if (!status.ok())
      return status.withContext(fmt::format("capture bucket {}", b));
  }
  captures.bySize.resize(buckets.size());
  std::iota(captures.bySize.begin(), captures.bySize.end(), 0);
  auto size = [&](uint32_t b) {
    const CaptureBucket &of = captures.made[b].limits;
    return std::tuple(of.maxRows, of.maxQueryTokens, std::popcount(of.phases), of.groups.size());
  };
  std::ranges::sort(captures.bySize, {}, [&](uint32_t b) { return std::pair(size(b), b); });
  captures.counts.replayed.resize(buckets.size());
  return captures;
}

uint32_t Captures::choose(const StepShape &shape) {
  for (uint32_t b : bySize) {
    const CaptureBucket &of = made[b].limits;
    if (shape.rows <= of.maxRows && shape.longestRow <= of.maxQueryTokens &&
        (shape.phases & ~of.phases) == 0) {
      ++counts.replayed[b];
      return b;
    }
  }
  ++counts.eager;
  return kNone;
}

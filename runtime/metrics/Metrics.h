// What a serving process counts, and its two texts: Prometheus' exposition format 0.0.4
// and JSON. Names are vLLM's, with the prefix "llmopt:", so that dashboards carry over.
//
// One thread (the engine's) writes; a server copies the texts out between steps. Recording
// neither locks nor allocates, which is why this is not prometheus-cpp: its counters are
// atomics behind shared registries, and its histograms keep no quantiles.
#pragma once

#include "runtime/metrics/Histogram.h"

#include <cstdint>
#include <string>
#include <vector>

namespace llmopt::runtime {

/// Why a request ended. The order is that of ServingMetrics::finished.
enum class FinishReason : uint8_t {
  Length,        ///< all tokens that were asked for
  Stop,          ///< a stop token
  Abort,         ///< the caller's wish
  Deadline,      ///< its time was over
  DeviceFailure, ///< its step failed
  None,          ///< it has not ended
};
inline constexpr size_t kFinishReasons = size_t(FinishReason::None);

/// "length", "stop", ...
const char *toString(FinishReason reason);

/// Why a request was not taken.
enum class RejectReason : uint8_t {
  EmptyPrompt,
  TooLong,        ///< over the model's length
  LargerThanPool, ///< no pool of this size can ever hold it
  QueueFull,
  NoTime,  ///< its deadline was over when it came
  Invalid, ///< another argument is out of bounds
};
inline constexpr size_t kRejectReasons = size_t(RejectReason::Invalid) + 1;
const char *toString(RejectReason reason);

struct ServingMetrics {
  // Seconds in the texts, nanoseconds here.
  Histogram timeToFirstToken, interToken, timePerOutputToken, requestLatency, queueTime,
      prefillTime, decodeTime;
  Histogram promptTokens, generationTokens; ///< a request
  Histogram stepTokens;                     ///< a step
  Histogram hostTime;                       ///< a step, in schedule and complete together

  uint64_t running = 0, waiting = 0, swapped = 0;
  uint64_t pagesTotal = 0, pagesUsed = 0; ///< of the first group that keeps all; used: not free,
                                          ///< not cached
  uint64_t prefixQueries = 0, prefixHits = 0;         ///< tokens looked up and found
  uint64_t prefixPageQueries = 0, prefixPageHits = 0; ///< full pages of prompts, and found
  uint64_t promptTokensTotal = 0, generationTokensTotal = 0;
  // Query tokens of all steps, drafts included. Each position of a request is computed once:
  //   tokensComputed = positions - tokensReused + tokensRecomputed + tokensRejected
  //                    + tokensDiscarded
  uint64_t tokensComputed = 0;
  uint64_t tokensReused = 0;     ///< positions never computed: prefix hits
  uint64_t tokensRecomputed = 0; ///< computed before, and lost by preemption
  uint64_t tokensRejected = 0;   ///< drafts that were not accepted, or past the answer's end
  uint64_t tokensDiscarded = 0;  ///< of discarded or failed rows
  uint64_t draftsProposed = 0, draftsAccepted = 0;
  uint64_t preemptions = 0, swapOuts = 0, swapIns = 0, steps = 0;
  uint64_t forks = 0; ///< samples that share the pages of their prompt with another
  uint64_t transfers = 0, tokensTransferred = 0; ///< KV that other machines computed
  uint64_t discardedRows = 0; ///< rows of requests that had ended when the step was done
  // What the block manager counts: Scheduler::allMetrics fills it in.
  uint64_t evictions = 0, evictionsAfterHit = 0; ///< pages; of them those that had been hit
  uint64_t pageCopies = 0;                       ///< before the first write to a shared page
  uint64_t pagesSwappedOut = 0, pagesSwappedIn = 0;
  uint64_t pagesDemoted = 0, hostPageHits = 0; ///< the cache's second level
  struct GroupPages {
    uint64_t total = 0, used = 0, cached = 0;
  };
  std::vector<GroupPages> groupPages; ///< of each layer group
  // What the executor counts: Server::metrics fills it in.
  uint64_t eagerSteps = 0;
  std::vector<uint64_t> replayedSteps; ///< of each capture bucket
  struct Decision {
    std::string reason;
    uint64_t plans = 0;
  };
  std::vector<Decision> cascades; ///< whether plans share keys of several rows, or why not
  uint64_t finished[kFinishReasons] = {};
  uint64_t rejected[kRejectReasons] = {};
};

std::string prometheusText(const ServingMetrics &metrics);
/// One object; a histogram is {count, mean, min, p50, p90, p99, max}, times in seconds.
std::string jsonText(const ServingMetrics &metrics, int indent = 2);

} // namespace llmopt::runtime

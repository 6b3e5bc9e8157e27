#include "runtime/metrics/Metrics.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <iterator>
#include <span>

using namespace llmopt::runtime;

const char *llmopt::runtime::toString(FinishReason reason) {
  constexpr const char *names[] = {"length", "stop", "abort", "deadline", "device_failure", "none"};
  return names[size_t(reason)];
}

const char *llmopt::runtime::toString(RejectReason reason) {
  constexpr const char *names[] = {"empty_prompt", "too_long", "larger_than_pool",
                                   "queue_full",   "no_time",  "invalid"};
  return names[size_t(reason)];
}

namespace {

// vLLM's bucket bounds, in seconds and in tokens.
constexpr double kFirstToken[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                  1.0,   2.5,   5.0,  7.5,  10,   20,   40,   80,  160,  640, 2560};
constexpr double kPerToken[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                0.75, 1.0,   2.5,  5.0,   7.5, 10,   20,  40,  80};
constexpr double kRequest[] = {0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10,   15,  20,
                               30,  40,  50,  60,  120, 240, 480, 960, 1920, 7680};
constexpr double kHost[] = {1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 1e-2};
constexpr double kTokens[] = {1,    2,    5,    10,    20,    50,    100,    200,   500,
                              1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};

struct HistogramRow {
  const char *name, *help;
  double unit; ///< what one recorded count is in the text's unit
  Histogram ServingMetrics::*histogram;
  std::span<const double> bounds;
};

constexpr double kNano = 1e-9;
constexpr HistogramRow histograms[] = {
    {"time_to_first_token_seconds", "Time from arrival to the first token", kNano,
     &ServingMetrics::timeToFirstToken, kFirstToken},
    {"inter_token_latency_seconds", "Time between two tokens of a request", kNano,
     &ServingMetrics::interToken, kPerToken},
    {"request_time_per_output_token_seconds", "Mean time a token after the first, of a request",
     kNano, &ServingMetrics::timePerOutputToken, kPerToken},
    {"e2e_request_latency_seconds", "Time from arrival to the last token", kNano,
     &ServingMetrics::requestLatency, kRequest},
    {"request_queue_time_seconds", "Time in the waiting queue before the first step", kNano,
     &ServingMetrics::queueTime, kRequest},
    {"request_prefill_time_seconds", "Time from the first step to the first token", kNano,
     &ServingMetrics::prefillTime, kRequest},
    {"request_decode_time_seconds", "Time from the first token to the last", kNano,
     &ServingMetrics::decodeTime, kRequest},
    {"request_prompt_tokens", "Prompt tokens of a request", 1, &ServingMetrics::promptTokens,
     kTokens},
    {"request_generation_tokens", "Answer tokens of a request", 1,
     &ServingMetrics::generationTokens, kTokens},
    {"iteration_tokens_total", "Query tokens of a step", 1, &ServingMetrics::stepTokens, kTokens},
    {"step_host_seconds", "Host time of a step: scheduling it and taking its results", kNano,
     &ServingMetrics::hostTime, kHost},
};

struct NumberRow {
  const char *name, *type, *help;
  uint64_t ServingMetrics::*value;
};

constexpr NumberRow numbers[] = {
    {"num_requests_running", "gauge", "Requests that hold pages", &ServingMetrics::running},
    {"num_requests_waiting", "gauge", "Requests in the queue", &ServingMetrics::waiting},
    {"num_requests_swapped", "gauge", "Requests whose pages are in host memory",
     &ServingMetrics::swapped},
    {"kv_cache_pages", "gauge", "Pages of the first layer group that keeps all",
     &ServingMetrics::pagesTotal},
    {"kv_cache_pages_used", "gauge",
     "Pages of the first layer group that keeps all that requests hold",
     &ServingMetrics::pagesUsed},
    {"prefix_cache_queries_total", "counter", "Prompt tokens looked up",
     &ServingMetrics::prefixQueries},
    {"prefix_cache_hits_total", "counter", "Prompt tokens found", &ServingMetrics::prefixHits},
    {"prefix_cache_page_queries_total", "counter", "Full pages of prompts looked up",
     &ServingMetrics::prefixPageQueries},
    {"prefix_cache_page_hits_total", "counter", "Full pages of prompts found",
     &ServingMetrics::prefixPageHits},
    {"prompt_tokens_total", "counter", "Prompt tokens of finished prefills",
     &ServingMetrics::promptTokensTotal},
    {"generation_tokens_total", "counter", "Tokens given out",
     &ServingMetrics::generationTokensTotal},
    {"computed_tokens_total", "counter", "Query tokens of all steps",
     &ServingMetrics::tokensComputed},
    {"recomputed_tokens_total", "counter", "Query tokens computed again after a preemption",
     &ServingMetrics::tokensRecomputed},
    {"reused_tokens_total", "counter", "Positions not computed thanks to prefix hits",
     &ServingMetrics::tokensReused},
    {"rejected_tokens_total", "counter", "Query tokens of drafts that were not accepted",
     &ServingMetrics::tokensRejected},
    {"discarded_tokens_total", "counter", "Query tokens of discarded and failed rows",
     &ServingMetrics::tokensDiscarded},
    {"spec_decode_num_draft_tokens_total", "counter", "Drafts proposed",
     &ServingMetrics::draftsProposed},
    {"spec_decode_num_accepted_tokens_total", "counter", "Drafts accepted",
     &ServingMetrics::draftsAccepted},
    {"num_preemptions_total", "counter", "Preemptions", &ServingMetrics::preemptions},
    {"num_swap_outs_total", "counter", "Preemptions to host memory", &ServingMetrics::swapOuts},
    {"num_swap_ins_total", "counter", "Returns from host memory", &ServingMetrics::swapIns},
    {"num_forks_total", "counter", "Samples that share the pages of their prompt",
     &ServingMetrics::forks},
    {"kv_transfers_total", "counter", "Prompts whose KV another machine was to write",
     &ServingMetrics::transfers},
    {"kv_transferred_tokens_total", "counter", "Tokens whose KV another machine wrote",
     &ServingMetrics::tokensTransferred},
    {"kv_page_evictions_total", "counter", "Cached pages that made room for others",
     &ServingMetrics::evictions},
    {"kv_page_evictions_after_hit_total", "counter", "Of these, pages that had been hit",
     &ServingMetrics::evictionsAfterHit},
    {"kv_page_copies_total", "counter", "Shared pages copied before a write",
     &ServingMetrics::pageCopies},
    {"kv_pages_swapped_out_total", "counter", "Pages of preempted requests copied to host memory",
     &ServingMetrics::pagesSwappedOut},
    {"kv_pages_swapped_in_total", "counter", "Pages of preempted requests copied back",
     &ServingMetrics::pagesSwappedIn},
    {"prefix_cache_demoted_pages_total", "counter",
     "Cached pages copied to host memory before they were evicted", &ServingMetrics::pagesDemoted},
    {"prefix_cache_host_page_hits_total", "counter", "Pages hit in host memory",
     &ServingMetrics::hostPageHits},
    {"eager_steps_total", "counter", "Steps whose kernels were launched one by one",
     &ServingMetrics::eagerSteps},
    {"steps_total", "counter", "Steps launched", &ServingMetrics::steps},
    {"discarded_rows_total", "counter", "Rows whose request had ended before their step was done",
     &ServingMetrics::discardedRows},
};

double usage(const ServingMetrics &metrics) {
  return metrics.pagesTotal ? double(metrics.pagesUsed) / double(metrics.pagesTotal) : 0;
}

} // namespace

std::string llmopt::runtime::prometheusText(const ServingMetrics &metrics) {
  std::string text;
  auto out = std::back_inserter(text);
  auto head = [&](const char *name, const char *help, const char *type) {
    fmt::format_to(out, "# HELP llmopt:{0} {1}.\n# TYPE llmopt:{0} {2}\n", name, help, type);
  };
  for (const NumberRow &row : numbers) {
    head(row.name, row.help, row.type);
    fmt::format_to(out, "llmopt:{} {}\n", row.name, metrics.*row.value);
  }
  head("kv_cache_usage_perc", "Share of the first group's pages that requests hold, 0 to 1",
       "gauge");
  fmt::format_to(out, "llmopt:kv_cache_usage_perc {}\n", usage(metrics));
  struct PageGauge {
    const char *name, *help;
    uint64_t ServingMetrics::GroupPages::*value;
  };
  constexpr PageGauge gauges[] = {
      {"kv_group_pages", "Pages that a layer group holds or could take",
       &ServingMetrics::GroupPages::total},
      {"kv_group_pages_used", "Pages of a layer group that requests hold",
       &ServingMetrics::GroupPages::used},
      {"kv_group_pages_cached", "Pages of a layer group that only the prefix cache holds",
       &ServingMetrics::GroupPages::cached}};
  for (const PageGauge &gauge : gauges) {
    if (metrics.groupPages.empty())
      break;
    head(gauge.name, gauge.help, "gauge");
    for (size_t g = 0; g < metrics.groupPages.size(); ++g)
      fmt::format_to(out, "llmopt:{}{{group=\"{}\"}} {}\n", gauge.name, g,
                     metrics.groupPages[g].*gauge.value);
  }
  if (!metrics.replayedSteps.empty())
    head("replayed_steps_total", "Steps that replayed a capture bucket", "counter");
  for (size_t i = 0; i < metrics.replayedSteps.size(); ++i)
    fmt::format_to(out, "llmopt:replayed_steps_total{{bucket=\"{}\"}} {}\n", i,
                   metrics.replayedSteps[i]);
  if (!metrics.cascades.empty())
    head("cascade_plans_total", "Plans by whether rows share items, or why not", "counter");
  for (const ServingMetrics::Decision &each : metrics.cascades)
    fmt::format_to(out, "llmopt:cascade_plans_total{{decision=\"{}\"}} {}\n", each.reason,
                   each.plans);
  head("request_success_total", "Ended requests by reason", "counter");
  for (size_t i = 0; i < kFinishReasons; ++i)
    fmt::format_to(out, "llmopt:request_success_total{{finished_reason=\"{}\"}} {}\n",
                   toString(FinishReason(i)), metrics.finished[i]);
  head("request_rejected_total", "Requests that were not taken, by reason", "counter");
  for (size_t i = 0; i < kRejectReasons; ++i)
    fmt::format_to(out, "llmopt:request_rejected_total{{reason=\"{}\"}} {}\n",
                   toString(RejectReason(i)), metrics.rejected[i]);
  for (const HistogramRow &row : histograms) {
    const Histogram &histogram = metrics.*row.histogram;
    head(row.name, row.help, "histogram");
    for (double bound : row.bounds)
      fmt::format_to(out, "llmopt:{}_bucket{{le=\"{}\"}} {}\n", row.name, bound,
                     histogram.countUpTo(uint64_t(bound / row.unit + 0.5)));
    fmt::format_to(out,
                   "llmopt:{0}_bucket{{le=\"+Inf\"}} {1}\nllmopt:{0}_sum {2}\n"
                   "llmopt:{0}_count {1}\n",
                   row.name, histogram.count(), histogram.sum() * row.unit);
  }
  return text;
}

std::string llmopt::runtime::jsonText(const ServingMetrics &metrics, int indent) {
  nlohmann::ordered_json root;
  for (const NumberRow &row : numbers)
    root[row.name] = metrics.*row.value;
  root["kv_cache_usage_perc"] = usage(metrics);
  for (const ServingMetrics::GroupPages &group : metrics.groupPages)
    root["kv_group_pages"].push_back(
        {{"total", group.total}, {"used", group.used}, {"cached", group.cached}});
  if (!metrics.replayedSteps.empty())
    root["replayed_steps_total"] = metrics.replayedSteps;
  for (const ServingMetrics::Decision &each : metrics.cascades)
    root["cascade_plans_total"][each.reason] = each.plans;
  for (size_t i = 0; i < kFinishReasons; ++i)
    root["request_success_total"][toString(FinishReason(i))] = metrics.finished[i];
  for (size_t i = 0; i < kRejectReasons; ++i)
    root["request_rejected_total"][toString(RejectReason(i))] = metrics.rejected[i];
  for (const HistogramRow &row : histograms) {
    const Histogram &histogram = metrics.*row.histogram;
    root[row.name] = {{"count", histogram.count()},
                      {"mean", histogram.mean() * row.unit},
                      {"min", double(histogram.min()) * row.unit},
                      {"p50", histogram.quantile(0.5) * row.unit},
                      {"p90", histogram.quantile(0.9) * row.unit},
                      {"p99", histogram.quantile(0.99) * row.unit},
                      {"max", double(histogram.max()) * row.unit}};
  }
  return root.dump(indent);
}

#include "tools/llm-opt/ReplayReport.h"

#include <fmt/format.h>

#include <iterator>

using namespace llmopt;
using namespace llmopt::runtime;
using nlohmann::ordered_json;

namespace {

struct Latency {
  const char *key, *label;
  Histogram ServingMetrics::*histogram;
};

constexpr Latency latencies[] = {
    {"ttft_s", "TTFT", &ServingMetrics::timeToFirstToken},
    {"tpot_s", "TPOT", &ServingMetrics::timePerOutputToken},
    {"itl_s", "ITL", &ServingMetrics::interToken},
    {"queue_s", "queue time", &ServingMetrics::queueTime},
    {"latency_s", "request", &ServingMetrics::requestLatency},
};

/// A time that reads well: "1.23 s", "45.6 ms", "7.8 us".
std::string shown(double seconds) {
  if (seconds >= 1 || seconds == 0)
    return fmt::format("{:.2f} s", seconds);
  return seconds >= 1e-3 ? fmt::format("{:.2f} ms", seconds * 1e3)
                         : fmt::format("{:.2f} us", seconds * 1e6);
}

double share(uint64_t part, uint64_t whole) {
  return whole ? 100.0 * double(part) / double(whole) : 0;
}

} // namespace

std::string cli::replayText(const ReplayTitle &title, const ReplayReport &report) {
  std::string text;
  auto out = std::back_inserter(text);
  const ServingMetrics &m = report.metrics;
  fmt::format_to(out, "{} ({}) on {}, {}, {} pages, policy {}\n", title.trace,
                 toString(report.format), title.model, title.accelerator, title.pages,
                 title.policy);
  fmt::format_to(out, "requests    {} finished, {} refused; {:.1f} s {} in {:.2f} s\n",
                 report.finished, report.refused, report.seconds,
                 report.simulated ? "simulated" : "without idle gaps", report.wallSeconds);
  if (report.saturated)
    fmt::format_to(out,
                   "saturated   the queue was empty {:.1f} s after the last arrival: latencies "
                   "grow with the trace's length\n",
                   report.drainSeconds);
  fmt::format_to(out, "{:<12}{:>12}{:>12}{:>12}{:>12}\n", "", "mean", "p50", "p90", "p99");
  for (const Latency &row : latencies) {
    const Histogram &h = m.*row.histogram;
    fmt::format_to(out, "{:<12.11}{:>12}{:>12}{:>12}{:>12}\n", row.label, shown(h.mean() * 1e-9),
                   shown(h.quantile(0.5) * 1e-9), shown(h.quantile(0.9) * 1e-9),
                   shown(h.quantile(0.99) * 1e-9));
  }
  fmt::format_to(out, "throughput  {:.1f} output tokens/s, {:.1f} tokens/s, {:.3f} requests/s\n",
                 report.outputRate, report.totalRate, report.requestRate);
  fmt::format_to(out, "goodput     {:.3f} requests/s ({:.1f} % of all met both goals)\n",
                 report.goodput, 100 * report.goodShare);
  fmt::format_to(out, "prefix hits {} of {} tokens ({:.1f} %), {} of {} full pages\n", m.prefixHits,
                 m.prefixQueries, share(m.prefixHits, m.prefixQueries), m.prefixPageHits,
                 m.prefixPageQueries);
  fmt::format_to(out, "steps       {}; at most {} running, {} waiting; device busy {:.1f} %\n",
                 m.steps, report.mostRunning, report.mostWaiting, 100 * report.deviceBusy);
  fmt::format_to(out,
                 "preemptions {} ({} to host memory); {} of {} computed tokens were computed "
                 "again\n",
                 m.preemptions, m.swapOuts, m.tokensRecomputed, m.tokensComputed);
  if (m.draftsProposed)
    fmt::format_to(out, "drafts      {} of {} accepted ({:.1f} %)\n", m.draftsAccepted,
                   m.draftsProposed, share(m.draftsAccepted, m.draftsProposed));
  for (const ReplayGroup &group : report.groups)
    fmt::format_to(out, "pages       {}: at most {} used at once; {} cached at the end, {} held\n",
                   group.kind, group.mostUsed, group.cachedAtEnd, group.usedAtEnd);
  fmt::format_to(out, "evictions   {} pages, {} of them had been hit\n", report.pages.evicted,
                 report.pages.evictedAfterHit);
  if (report.hostMemory)
    fmt::format_to(out,
                   "host memory {} pages swapped out, {} back; {} cached pages demoted, {} hit "
                   "there\n",
                   report.pages.swappedOutPages, report.pages.swappedInPages,
                   report.pages.demotedPages, report.pages.hostHitPages);
  fmt::format_to(out, "host        {} a step (mean {}, p99 {}), measured\n",
                 shown(m.hostTime.quantile(0.5) * 1e-9), shown(m.hostTime.mean() * 1e-9),
                 shown(m.hostTime.quantile(0.99) * 1e-9));
  return text;
}

ordered_json cli::replayJson(const ReplayTitle &title, const ReplayReport &report) {
  const ServingMetrics &m = report.metrics;
  ordered_json json = {{"trace", title.trace},
                       {"format", toString(report.format)},
                       {"model", title.model},
                       {"accelerator", title.accelerator},
                       {"policy", title.policy},
                       {"pages", title.pages},
                       {"requests", report.requests},
                       {"finished", report.finished},
                       {"refused", report.refused},
                       {report.simulated ? "simulated_s" : "busy_s", report.seconds},
                       {"arrival_s", report.arrivalSeconds},
                       {"drain_s", report.drainSeconds},
                       {"saturated", report.saturated},
                       {"wall_s", report.wallSeconds}};
  for (const Latency &row : latencies) {
    const Histogram &h = m.*row.histogram;
    json[row.key] = {{"mean", h.mean() * 1e-9},
                     {"p50", h.quantile(0.5) * 1e-9},
                     {"p90", h.quantile(0.9) * 1e-9},
                     {"p99", h.quantile(0.99) * 1e-9}};
  }
  json["host_us_per_step"] = {{"mean", m.hostTime.mean() * 1e-3},
                              {"p50", m.hostTime.quantile(0.5) * 1e-3},
                              {"p99", m.hostTime.quantile(0.99) * 1e-3}};
  json["output_tokens_per_s"] = report.outputRate;
  json["tokens_per_s"] = report.totalRate;
  json["requests_per_s"] = report.requestRate;
  json["goodput_per_s"] = report.goodput;
  json["good_share"] = report.goodShare;
  json["device_busy"] = report.deviceBusy;
  json["most_running"] = report.mostRunning;
  json["most_waiting"] = report.mostWaiting;
  json["hit_pages"] = m.prefixPageHits;
  json["queried_pages"] = m.prefixPageQueries;
  json["evicted_pages"] = report.pages.evicted;
  json["groups"] = ordered_json::array();
  for (const ReplayGroup &group : report.groups)
    json["groups"].push_back({{"kind", group.kind},
                              {"page_size", group.pageSize},
                              {"available_at_end", group.slots},
                              {"most_used", group.mostUsed},
                              {"cached_at_end", group.cachedAtEnd},
                              {"held_at_end", group.usedAtEnd}});
  json["metrics"] = ordered_json::parse(jsonText(m, -1));
  return json;
}

// Host time of a plan, for marks that docs/design/planner.md names:
//
//   decode      256 sequences x 8 KV heads for 132 workers, lengths of 1 to 4,096 keys
//   growth      the same batch a token later, where few lengths cross a key tile: every plan
//               that was whole counts, and those that kept their items are counted apart
//   invariant   the same with splits at absolute positions
//   cascade     the same with a system prompt of 1,024 tokens that 64 of them share, and a
//               deeper one of 512 that 16 of these share
//
// Rows, sequences, items and merges are written in each. Heap allocations of the timed part are
// counted and must be none. Times are the thread's processor time, without what asking the clock
// takes.
#include "runtime/bundle/BundleIO.h"
#include "runtime/plan/Planner.h"
#include "tools/bench/HeapCount.h"
#include "tools/bench/ThreadClock.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <random>

using namespace llmopt::runtime;

namespace bundle = llmopt::bundle;

using llmopt::bench::allocations, llmopt::bench::counting;
using llmopt::bench::threadClockNs, llmopt::bench::threadNs;
using llmopt::bundle::BoundOp;

namespace {

constexpr uint32_t kSequences = 256, kKvHeads = 8, kGroup = 4, kWorkers = 132;
constexpr uint32_t kKeyLen = 4096, kTop = 1024, kDeep = 512;
/// A gate stands at twice a mark.
constexpr double kGate = 2;

struct Case {
  const char *name;
  double markUs;
  bool invariant = false, cascade = false, grows = false;
};
constexpr Case kCases[] = {
    {.name = "decode", .markUs = 10},
    {.name = "growth", .markUs = 10, .grows = true},
    {.name = "invariant", .markUs = 60, .invariant = true},
    {.name = "cascade", .markUs = 30, .cascade = true},
    {.name = "invariant cascade", .markUs = 80, .invariant = true, .cascade = true}};

/// Decode of Llama-3 8B on a GPU: causal, pages of 16, tiles of 16 and 64 rows and 64 keys.
bundle::Program program() {
  bundle::Program made;
  made.name = "decode";
  bundle::AttentionFacts &facts = made.facts;
  facts.queryHeads = kKvHeads * kGroup;
  facts.kvHeads = kKvHeads;
  facts.dQk = facts.dV = 128;
  facts.queryForm = bundle::QueryForm::Ragged;
  facts.kvForm = bundle::KvForm::Paged;
  facts.pageSize = 16;
  facts.mixesSequences = true;
  auto upTo = [](BoundOp query) {
    return bundle::BoundSet{{{.lo = {{BoundOp::Const, -(int64_t{1} << 40)}},
                              .hi = {{query}, {BoundOp::Const, 1}, {BoundOp::Add}}}}};
  };
  facts.may = upTo(BoundOp::QueryHi);
  facts.surely = upTo(BoundOp::QueryLo);
  made.buffers.push_back(
      {"k", bundle::BufferRole::KeyPool, bundle::ElementType::BF16, false, false, {}});
  made.kernels = {{"decode", bundle::KernelKind::Attend, 0, 16, 64, 0, 1},
                  {"prefill", bundle::KernelKind::Attend, 0, 64, 64, 0, 1.6},
                  {"merge", bundle::KernelKind::Merge}};
  return made;
}

BatchShape batchOf(bool cascade) {
  std::mt19937 random(1);
  BatchShape batch;
  if (cascade)
    batch.prefixes = {{kNoPrefix, kTop}, {0, kTop + kDeep}};
  for (uint32_t s = 0; s < kSequences; ++s) {
    SequenceShape &shape = batch.sequences.emplace_back();
    shape.queryLen = 1;
    shape.keyLen = 1 + random() % kKeyLen;
    shape.queryBase = s;
    shape.batch = shape.tableBase = s;
    if (!cascade || s % 4)
      continue;
    shape.prefix = s % 16 ? 0 : 1;
    shape.keyLen = std::max<int64_t>(shape.keyLen, kTop + kDeep + 1);
  }
  return batch;
}

/// Times of `count` plans, ascending; 0 where a plan failed.
Status measure(const Case &which, uint32_t count, std::vector<double> &times, PlanCounters &made) {
  bundle::Program of = program();
  PlanOptions options{.workers = kWorkers,
                      .batchInvariant = which.invariant,
                      .cascadeLevels = which.cascade ? 2u : 0u};
  StatusOr<Planner> planner = Planner::create(
      of, options, {kSequences, kSequences, mostSplits(of, options, kKeyLen + 4 * count)});
  if (!planner)
    return planner.status();
  Plan plan = makeRoom(of, planner->room());
  BatchShape batch = batchOf(which.cascade);
  ScalarValues scalars;
  const uint64_t clock = threadClockNs();
  constexpr uint32_t kWarm = 50;
  for (uint32_t i = 0; i < count + kWarm; ++i) {
    if (which.grows || i % 16 == 0)
      for (uint32_t s = i % 8; s < kSequences; s += which.grows ? 8 : 1)
        ++batch.sequences[s].keyLen;
    uint64_t start = threadNs();
    counting = i >= kWarm;
    StatusOr<PlanChange> change = planner->plan(batch, scalars, plan, which.grows);
    counting = false;
    double spent = double(threadNs() - start - clock) * 1e-3;
    if (!change)
      return change.status();
    if (i >= kWarm)
      times.push_back(spent);
  }
  std::sort(times.begin(), times.end());
  made = planner->counters();
  return {};
}

} // namespace

int main(int argc, char **argv) {
  uint32_t count = 3000, tries = 3;
  bool gate = false;
  std::string only;
  CLI::App app{"Host time of a plan, and its marks"};
  app.add_option("--plans", count, "measured plans of each case (3000)")
      ->check(CLI::Range(100, 1000000));
  app.add_option("--only", only, "one case, by name");
  app.add_flag("--gate", gate, "exit 1 where the p50 is beyond twice a mark, in three tries");
  CLI11_PARSE(app, argc, argv);
  bool failed = false;
  for (const Case &which : kCases) {
    if (!only.empty() && only != which.name)
      continue;
    bool slow = true;
    for (uint32_t i = 0; slow && i < (gate ? tries : 1); ++i) {
      std::vector<double> times;
      PlanCounters made;
      Status status = measure(which, count, times, made);
      if (!status.ok()) {
        fmt::print(stderr, "{}: {}\n", which.name, status.toString());
        return 1;
      }
      double p50 = times[times.size() / 2], p99 = times[times.size() * 99 / 100];
      fmt::print("{:18} p10 {:6.2f} us, p50 {:6.2f} us, p99 {:6.2f} us, mark {:2.0f} us; {} of {} "
                 "kept their items, "
                 "{} with shared keys; {} allocations\n",
                 which.name, times[times.size() / 10], p50, p99, which.markUs, made.lengthsOnly,
                 made.plans, made.cascades[size_t(CascadeAnswer::Used)], allocations);
      slow = p50 > kGate * which.markUs;
    }
    failed |= slow && gate;
  }
  return failed || allocations != 0;
}

// How evenly work is dealt, by the documented cost model, on lengths that hurt and on lengths
// of real traces.
#include "Loads.h"

#include "runtime/trace/Trace.h"
#include "tests/support/TestData.h"

using namespace plantest;

namespace {

using Lengths = std::vector<std::pair<int64_t, int64_t>>;

std::vector<Kernel> gpuKernels() { return {attendKernel(16, 64, 1), attendKernel(64, 64, 1.6)}; }

void expectBalanced(const Lengths &lengths, uint32_t workers, const char *what) {
  Program program = costedProgram(4, 8, gpuKernels());
  BatchShape batch = makeBatch(lengths);
  StatusOr<Plan> plan = makePlan(program, batch, {}, {.workers = workers});
  ASSERT_TRUE(plan) << plan.status().toString();
  // The check walks over all rows and heads.
  bool small = lengths.size() < 20;
  if (small)
    checkPlan(program, batch, {}, {.workers = workers}, *plan);
  Loads loads = loadsOf(program, *plan);
  EXPECT_LE(loads.longest, 1.05 * loads.mean + loads.oneTile)
      << what << ", " << workers << " workers, mean " << loads.mean / kTileUnits << " tiles";

  PlanOptions invariant{.workers = workers, .batchInvariant = true};
  plan = makePlan(program, batch, {}, invariant);
  ASSERT_TRUE(plan) << plan.status().toString();
  if (small)
    checkPlan(program, batch, {}, invariant, *plan);
  loads = loadsOf(program, *plan);
  EXPECT_LE(loads.longest, loads.mean + loads.largestItem + 2) << what << ", batch invariant";
}

} // namespace

TEST(Balance, OneLongSequenceAmongShortOnes) {
  Lengths lengths(16, {1, 512});
  lengths[0] = {1, 131072};
  for (uint32_t workers : {2, 132})
    expectBalanced(lengths, workers, "131072 and 15 x 512");
}

TEST(Balance, LengthsThatDoNotDivide) {
  for (uint32_t workers : {2, 132}) {
    expectBalanced(Lengths(9, {1, 64 * 256}), workers, "9 equal ones");
    expectBalanced(Lengths(133, {1, 4096}), workers, "133 equal ones");
    expectBalanced(Lengths(1, {1, 1000000}), workers, "one");
    expectBalanced({{700, 9000}, {1, 30}, {1, 7000}, {33, 33}}, workers, "chunks and decodes");
  }
}

/// Lists that threads take as they come, several for each: a long sequence among the first lists of
/// a thread, which are not cut through, must not cost it its share. Found by decode of 65536 and 15
/// x 128 keys, of which one of two threads had 80 %.
TEST(Balance, ThreadsWithSeveralLists) {
  std::vector<Lengths> batches = {Lengths(1, {1, 65536}), Lengths(2, {1, 32768}),
                                  Lengths(3, {1, 20000}), Lengths(16, {1, 4096})};
  for (size_t place : {0, 7, 15}) {
    batches.push_back(Lengths(16, {1, 128}));
    batches.back()[place] = {1, 65536};
    batches.push_back(Lengths(16, {1, 4096}));
    batches.back()[place] = {1, 100000};
  }
  for (uint32_t together : {1, 4})
    for (uint32_t threads : {2, 3, 8})
      for (const Lengths &lengths : batches) {
        SCOPED_TRACE(std::to_string(lengths.size()) + " sequences, the first of " +
                     std::to_string(lengths[0].second) + ", " + std::to_string(threads) +
                     " threads, heads " + std::to_string(together));
        Program program =
            costedProgram(4, 4, {attendKernel(4, 64, 1, together), attendKernel(192, 64, 6)});
        BatchShape batch = makeBatch(lengths);
        PlanOptions options{.workers = 4 * threads, .threads = threads};
        StatusOr<Plan> plan = makePlan(program, batch, {}, options);
        ASSERT_TRUE(plan) << plan.status().toString();
        checkPlan(program, batch, {}, options, *plan);
        Loads loads = loadsOf(program, *plan, threads);
        EXPECT_LE(loads.longest, 1.05 * loads.mean + loads.oneTile);
      }
}

/// Batches as a server would have them: requests that came one after the other, each somewhere
/// in its answer; and chunks of prompts.
TEST(Balance, BatchesOfTraces) {
  LLMOPT_NEEDS_TEST_DATA();
  uint32_t batches = 0;
  for (const auto &entry :
       std::filesystem::directory_iterator(llmopt::test::dataFolder() / "traces")) {
    std::string path = entry.path();
    if (!path.ends_with(".csv.gz") && !path.ends_with(".jsonl.gz"))
      continue;
    TraceOptions limited;
    limited.limit = 600;
    StatusOr<Trace> trace = readTrace(path, limited);
    if (!trace) // the second file of a pair
      continue;
    std::mt19937 random(7);
    for (size_t first = 0, size = 8; first + size <= trace->requests.size(); first += size) {
      Lengths decodes, chunks;
      for (size_t i = first; i < first + size; ++i) {
        const TraceRequest &request = trace->requests[i];
        int64_t prompt = request.promptTokens;
        decodes.push_back({1, prompt + 1 + random() % std::max(1, request.outputTokens)});
        chunks.push_back({std::min<int64_t>(prompt, 1 + random() % 300), prompt});
      }
      expectBalanced(decodes, first % 3 ? 132 : 2, path.c_str());
      expectBalanced(chunks, first % 3 ? 2 : 132, path.c_str());
      if (HasFailure())
        return;
      ++batches;
      size = size == 8 ? 40 : size == 40 ? 160 : 8;
    }
  }
  EXPECT_GE(batches, 30u);
}

TEST(Balance, SplitsAreFewerThanWorkers) {
  Program program = costedProgram(4, 8, gpuKernels());
  Lengths lengths(256, {1, 3000});
  StatusOr<Plan> plan = makePlan(program, makeBatch(lengths), {}, {.workers = 132});
  ASSERT_TRUE(plan);
  EXPECT_LE(plan->attends[0].items.size(), 256u * 8 + 131);
  EXPECT_LE(plan->merges.size(), 131u * 4);
}

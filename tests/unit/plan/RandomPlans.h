// Random programs, options and batches for tests that hold for all of them.
#pragma once

#include "PlanTestUtil.h"

namespace plantest {

class Random {
public:
  explicit Random(uint32_t seed) : engine(seed) {}
  int64_t pick(int64_t lo, int64_t hi) {
    return std::uniform_int_distribution<int64_t>(lo, hi)(engine);
  }
  /// Small values are as likely as large ones.
  int64_t pickLength(int64_t most) { return std::min(most, pick(0, int64_t{1} << pick(0, 20))); }

private:
  std::mt19937 engine;
};

inline BoundSet randomMask(Random &random) {
  switch (random.pick(0, 5)) {
  case 0:
    return fullMask();
  case 1:
    return windowMask(random.pick(1, 600));
  case 2:
    return sinkOrWindowMask(random.pick(1, 5), random.pick(1, 300));
  case 3:
    return dilatedMask(random.pick(1, 400));
  case 4:
    return BoundSet();
  default:
    return causalMask();
  }
}

inline Program randomProgram(Random &random) {
  std::vector<Kernel> kernels;
  for (int64_t i = random.pick(1, 3); i > 0; --i)
    kernels.push_back(attendKernel(random.pick(1, 128), random.pick(1, 128),
                                   static_cast<double>(random.pick(1, 40)) / 10));
  Program program =
      makeProgram(random.pick(1, 16), random.pick(1, 3), randomMask(random), std::move(kernels));
  program.facts.topLeft = random.pick(0, 4) == 0;
  program.facts.batchInvariant = random.pick(0, 4) == 0;
  return program;
}

/// Kernels that take items of several heads together, beside others or alone.
inline Program withTuples(Random &random, Program program) {
  AttentionFacts &facts = program.facts;
  uint32_t group = facts.queryHeads / facts.kvHeads;
  facts.kvHeads = 8;
  facts.queryHeads = group * 8;
  bool mixed = random.pick(0, 2) == 0;
  uint32_t heads = 1u << random.pick(0, 3);
  for (Kernel &kernel : program.kernels)
    if (kernel.kind == KernelKind::Attend)
      kernel.itemHeads = mixed ? 1u << random.pick(0, 3) : heads;
  EXPECT_TRUE(validate(program).ok());
  return program;
}

inline PlanOptions randomOptions(Random &random) {
  PlanOptions options{.workers = static_cast<uint32_t>(random.pick(0, 256))};
  options.threads = random.pick(0, 1) ? 0 : random.pick(1, 64);
  options.splitPolicy = static_cast<SplitPolicy>(random.pick(0, 3));
  options.splits = random.pick(1, 20);
  options.splitKeys = random.pick(0, 1) ? 0 : random.pick(1, 2000);
  if (random.pick(0, 2) == 0)
    options.maxPartialRows = random.pickLength(100000);
  // Of batches without a tree: changes nothing but the room.
  options.cascadeLevels = random.pick(0, 1) ? 0 : random.pick(1, 4);
  return options;
}

inline BatchShape randomBatch(Random &random) {
  std::vector<std::pair<int64_t, int64_t>> lengths;
  int64_t budget = 6000; // queries in all, to bound the time of the check
  for (int64_t i = random.pick(0, 12); i > 0; --i) {
    int64_t queries =
        std::min(budget, random.pick(0, 1) ? random.pick(0, 3) : random.pickLength(5000));
    budget -= queries;
    lengths.push_back({queries, random.pickLength(5000)});
  }
  return makeBatch(lengths);
}

/// The room that a planner made for the batch sets aside.
inline PlanCounts boundOf(const Program &program, const PlanOptions &options,
                          const BatchShape &batch) {
  PlanLimits limits{.rows = batch.sequences.size()};
  int64_t longest = 0;
  for (const SequenceShape &sequence : batch.sequences) {
    limits.queryTokens += sequence.queryLen;
    longest = std::max(longest, sequence.keyLen);
  }
  limits.splits = mostSplits(program, options, longest);
  return PlanCounts::bound(program, options, limits);
}

} // namespace plantest

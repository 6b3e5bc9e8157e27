// What workers have to do, by the documented cost model, from a plan's arrays alone.
#pragma once

#include "PlanTestUtil.h"

#include "runtime/plan/CostModel.h"

namespace plantest {

struct Loads {
  double longest = 0, mean = 0;
  double largestItem = 0; ///< a tuple's items are one
  double oneTile = 0;     ///< a tuple of items of one key tile, its part of the merge included
};

/// Of `threads` that share out the workers in runs; 0: of each worker.
inline Loads loadsOf(const Program &program, const Plan &plan, uint32_t threads = 0) {
  if (!threads)
    threads = plan.workers;
  std::vector<Variant> variants = attendVariants(program);
  double partialRow = double(partialRowCost(program));
  std::vector<double> loads(threads);
  Loads result;
  for (const AttendPlan &attend : plan.attends) {
    const Variant &variant = *std::find_if(variants.begin(), variants.end(), [&](const Variant &v) {
      return v.kernel == attend.kernel;
    });
    if (!attend.items.empty())
      result.oneTile =
          std::max(result.oneTile, variant.heads * (double(variant.tileCost + variant.itemCost) +
                                                    partialRow * variant.tileRows));
    for (uint32_t w = 0; w < plan.workers; ++w)
      for (uint32_t i = attend.itemOffsets[w]; i < attend.itemOffsets[w + 1]; ++i) {
        const WorkItem &item = attend.items[i];
        double cost = double(variant.itemCost) +
                      double((item.keyEnd - item.keyBegin) / variant.tileKeys * variant.tileCost);
        if (item.partialSlot >= 0)
          cost += partialRow * item.rowCount;
        loads[uint64_t{w} * threads / plan.workers] += cost;
        result.largestItem = std::max(result.largestItem, cost * variant.heads);
      }
  }
  for (double load : loads) {
    result.longest = std::max(result.longest, load);
    result.mean += load / threads;
  }
  return result;
}

/// A program with the dimensions and formats that costs are made of.
inline Program costedProgram(uint32_t group, uint32_t kvHeads, std::vector<Kernel> kernels) {
  Program program = makeProgram(group, kvHeads, causalMask(), std::move(kernels));
  program.facts.dQk = program.facts.dV = 128;
  program.buffers.push_back({"k", BufferRole::KeyPool, ElementType::BF16, false, false, {}});
  return program;
}

} // namespace plantest

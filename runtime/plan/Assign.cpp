#include "runtime/plan/Assign.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <utility>

namespace llmopt::runtime {

namespace {

/// Items of at least this share of the mean load are placed one by one.
constexpr double kLongShare = 1.0 / 16;

using Load = std::pair<double, uint32_t>; // (load, worker): ties go to the first worker

/// Longest first, each to the least loaded worker.
void placeLongItems(std::span<const double> costs, std::vector<uint32_t> &longItems,
                    std::vector<double> &loads, std::vector<uint32_t> &workerOf) {
  std::sort(longItems.begin(), longItems.end(), [&](uint32_t a, uint32_t b) {
    return costs[a] != costs[b] ? costs[a] > costs[b] : a < b;
  });
  std::priority_queue<Load, std::vector<Load>, std::greater<>> queue;
  for (uint32_t worker = 0; worker < loads.size(); ++worker)
    queue.push({0.0, worker});
  for (uint32_t item : longItems) {
    auto [load, worker] = queue.top();
    queue.pop();
    workerOf[item] = worker;
    loads[worker] = load + costs[item];
    queue.push({loads[worker], worker});
  }
}

/// Walks the short items and the workers' free capacities side by side.
void fillWithShortItems(std::span<const double> costs, std::span<const uint32_t> shortItems,
                        std::span<const double> loads, std::vector<uint32_t> &workerOf) {
  double shortTotal = 0;
  for (uint32_t item : shortItems)
    shortTotal += costs[item];
  double mean = (std::accumulate(loads.begin(), loads.end(), 0.0) + shortTotal) /
                static_cast<double>(loads.size());
  double capacity = 0;
  for (double load : loads)
    capacity += std::max(0.0, mean - load);
  // Workers above the mean have no room, so the room exceeds the items: stretch
  // them to share the surplus evenly.
  double stretch = shortTotal > 0 ? capacity / shortTotal : 0;
  uint32_t worker = 0;
  double place = 0, room = std::max(0.0, mean - loads[0]);
  for (uint32_t item : shortItems) {
    double middle = place + costs[item] * stretch / 2;
    while (middle > room && worker + 1 < loads.size())
      room += std::max(0.0, mean - loads[++worker]);
    workerOf[item] = worker;
    place += costs[item] * stretch;
  }
}

} // namespace

std::vector<uint32_t> assignItems(std::span<const double> costs, uint32_t workers) {
  std::vector<uint32_t> workerOf(costs.size(), 0);
  if (workers <= 1)
    return workerOf;
  double mean = std::accumulate(costs.begin(), costs.end(), 0.0) / workers;
  std::vector<uint32_t> longItems, shortItems;
  for (uint32_t item = 0; item < costs.size(); ++item)
    (costs[item] >= mean * kLongShare ? longItems : shortItems).push_back(item);
  std::vector<double> loads(workers, 0.0);
  placeLongItems(costs, longItems, loads, workerOf);
  fillWithShortItems(costs, shortItems, loads, workerOf);
  return workerOf;
}

} // namespace llmopt::runtime

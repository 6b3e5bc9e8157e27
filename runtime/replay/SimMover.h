// Copies between device and host memory in simulated time: one link, copies in order.
#pragma once

#include "runtime/engine/Executor.h"
#include "runtime/kv/Groups.h"
#include "runtime/kv/PageMover.h"

#include <algorithm>
#include <vector>

namespace llmopt::runtime {

class SimMover : public kv::PageMover {
public:
  SimMover(std::vector<kv::GroupSpec> groups, double bytesPerSecond, double latency, Clock &clock)
      : groups(std::move(groups)), rate(bytesPerSecond), latency(latency), clock(clock) {}

  kv::EventId copyOut(std::span<const kv::PageMove> moves, kv::StepId) override {
    return start(moves);
  }
  kv::EventId copyIn(std::span<const kv::PageMove> moves, kv::StepId) override {
    return start(moves);
  }
  bool done(kv::EventId event) override { return ends[event - 1] <= clock.now(); }
  int64_t endOf(kv::EventId event) const { return ends[event - 1]; }
  /// When the last copy so far ends.
  int64_t idleFrom() const { return linkFree; }

private:
  kv::EventId start(std::span<const kv::PageMove> moves) {
    double bytes = 0;
    for (const kv::PageMove &move : moves)
      bytes += double(groups[move.group].pageBytes());
    linkFree = std::max(linkFree, clock.now()) + int64_t((latency + bytes / rate) * 1e9);
    ends.push_back(linkFree);
    return ends.size();
  }

  std::vector<kv::GroupSpec> groups;
  double rate, latency;
  Clock &clock;
  std::vector<int64_t> ends; ///< of each event
  int64_t linkFree = 0;
};

} // namespace llmopt::runtime

#include "runtime/scheduler/Policy.h"

#include <iterator>

using namespace llmopt::runtime;

namespace {

class Fcfs : public Policy {
  uint64_t key(const WaiterView &) const override { return 0; }
};

class ByPriority : public Policy {
  uint64_t key(const WaiterView &waiter) const override { return waiter.priority; }
};

class LongestPrefix : public Policy {
  uint64_t key(const WaiterView &waiter) const override { return ~uint64_t(waiter.matched); }
  bool usesMatches() const override { return true; }
};

/// Tokens still to compute and to give, the shortest first.
class ShortestRemaining : public Policy {
  uint64_t key(const WaiterView &waiter) const override {
    return uint64_t(waiter.knownTokens - waiter.matched) + waiter.tokensToGive;
  }
  bool usesMatches() const override { return true; }
};

constexpr std::string_view names[] = {"fcfs", "priority", "longest-prefix", "shortest-remaining"};

} // namespace

std::unique_ptr<Policy> llmopt::runtime::makePolicy(PolicyKind kind) {
  switch (kind) {
  case PolicyKind::Priority:
    return std::make_unique<ByPriority>();
  case PolicyKind::LongestPrefix:
    return std::make_unique<LongestPrefix>();
  case PolicyKind::ShortestRemaining:
    return std::make_unique<ShortestRemaining>();
  case PolicyKind::Fcfs:
    break;
  }
  return std::make_unique<Fcfs>();
}

std::string_view llmopt::runtime::toString(PolicyKind kind) { return names[size_t(kind)]; }

bool llmopt::runtime::parsePolicy(std::string_view name, PolicyKind &kind) {
  for (size_t i = 0; i < std::size(names); ++i)
    if (names[i] == name) {
      kind = PolicyKind(i);
      return true;
    }
  return false;
}

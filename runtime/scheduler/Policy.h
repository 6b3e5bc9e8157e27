// In which order waiting requests are looked at. A policy is a key: the least goes first,
// ties by arrival. Ageing stands above all policies (docs/design/scheduler.md).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

namespace llmopt::runtime {

enum class PolicyKind : uint8_t { Fcfs, Priority, LongestPrefix, ShortestRemaining };

/// What a policy may look at.
struct WaiterView {
  uint32_t priority = 0;     ///< 0 is the highest class
  uint32_t knownTokens = 0;  ///< prompt and tokens given out before a preemption
  uint32_t matched = 0;      ///< of them, found in the prefix cache when last looked up
  uint32_t tokensToGive = 0; ///< of the answer, at most
};

class Policy {
public:
  virtual ~Policy() = default;
  virtual uint64_t key(const WaiterView &waiter) const = 0;
  /// Whether `matched` is worth looking up while a request waits.
  virtual bool usesMatches() const { return false; }
};

std::unique_ptr<Policy> makePolicy(PolicyKind kind);

/// "fcfs", "priority", "longest-prefix", "shortest-remaining".
std::string_view toString(PolicyKind kind);
bool parsePolicy(std::string_view name, PolicyKind &kind);

} // namespace llmopt::runtime

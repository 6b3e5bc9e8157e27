#include "runtime/plan/split/SplitRule.h"

namespace llmopt::runtime {

StatusOr<SplitRule> chooseSplitRule(const bundle::AttentionFacts &facts, const PlanOptions &options,
                                    bool batchInvariant) {
  SplitRule rule{.policy = options.splitPolicy, .splits = options.splits};
  rule.splitKeys = options.splitKeys ? options.splitKeys
                   : facts.splitKeys ? facts.splitKeys
                                     : kDefaultSplitKeys;
  if (rule.policy == SplitPolicy::Auto) {
    if (batchInvariant || facts.splitKeys > 0) {
      rule.policy = SplitPolicy::ByLength;
    } else if (facts.fixedSplits > 0) {
      rule.policy = SplitPolicy::Fixed;
      rule.splits = facts.fixedSplits;
    }
  }
  if (rule.policy == SplitPolicy::Fixed && batchInvariant)
    return invalidArgument("a fixed number of splits is asked of a batch-invariant plan; "
                           "allowed are splits by length or none");
  if (rule.policy == SplitPolicy::Fixed && rule.splits == 0)
    return invalidArgument("0 splits are asked for; at least 1 is allowed");
  return rule;
}

int64_t splitLength(const SplitRule &rule, int64_t tileKeys) {
  return (int64_t{rule.splitKeys} + tileKeys - 1) / tileKeys * tileKeys;
}

} // namespace llmopt::runtime

#include "runtime/executor/KeptKeys.h"

#include "runtime/bundle/BoundsEval.h"

using namespace llmopt::runtime;

namespace bundle = llmopt::bundle;

namespace {

/// "a window of 64 keys and a sink of 4", and the mask that says so.
std::string keptBy(const kv::GroupSpec &group) {
  if (group.kind == kv::GroupKind::Chunked)
    return fmt::format("chunks of {0} positions; write mask(causal and chunked<{0}>)", group.chunk);
  if (group.sink)
    return fmt::format("a window of {0} keys and a sink of {1}; write mask(causal and (sink<{1}> "
                       "or window<{0}>))",
                       group.window, group.sink);
  return fmt::format("a window of {0} keys; write mask(causal and window<{0}>)", group.window);
}

} // namespace

Status llmopt::runtime::checkKeptKeys(const bundle::AttentionFacts &facts,
                                      const ScalarValues &scalars, const kv::GroupSpec &group,
                                      uint32_t queries, uint32_t longest) {
  if (group.keepsAll())
    return {};
  bundle::KeySet may;
  for (uint64_t oldest = 0; oldest + queries <= longest; ++oldest) {
    int64_t first = facts.topLeft ? 0 : int64_t(oldest);
    bundle::evaluate(facts.may,
                     {.queryLo = first,
                      .queryHi = first + queries - 1,
                      .queryLen = queries,
                      .keyLen = int64_t(oldest) + queries,
                      .scalars = scalars.values,
                      .perHeadMin = scalars.perHeadMin,
                      .perHeadMax = scalars.perHeadMax},
                     may);
    if (std::optional<int64_t> key = may.firstVisible(group.sink, int64_t(group.firstKey(oldest))))
      return invalidArgument("its mask may see key {} from position {}, which the group has given "
                             "back by then: it keeps {}, or let the group keep all keys",
                             *key, oldest, keptBy(group));
  }
  return {};
}

// Mistakes that the tests must notice. A test build (LLMOPT_PLAN_MUTANTS) can switch one on at run
// time and then expects that a check fails; in any other build the hooks are constants and cost
// nothing.
#pragma once

#include <cstdint>

namespace llmopt::runtime {

enum class PlanMutant : uint8_t {
  None,
  KeysOverlap,       ///< the second part of a tile begins a key tile early
  KeysMissing,       ///< the last part of a tile ends a key tile early
  HeadRepeated,      ///< the items of a tile have one head twice
  MergeDropped,      ///< the last row of a tile that was cut is not merged
  MergeTooShort,     ///< a merge leaves out the last partial
  PartialsShared,    ///< two tiles that were cut write the same partials
  LastItemForgotten, ///< the last worker ends an item early
  RowPositionsStay,  ///< positions are those of a first chunk
  SharedKeysTwice,   ///< a row's own keys begin a key tile before the shared ones end
  SharedKeysMissing, ///< they begin a key tile behind
  SharedRowLeftOut,  ///< a shared item ends a row early
  SharedNotSeen,     ///< keys are shared whatever the mask hides
  SlotsOfTupleStay,  ///< heads that go together write the first one's partials
  CutThroughOneHead, ///< of heads that go together, the later ones are cut elsewhere
  Count,
};

#ifdef LLMOPT_PLAN_MUTANTS
extern PlanMutant activePlanMutant;
inline bool mutant(PlanMutant which) { return activePlanMutant == which; }
#else
constexpr bool mutant(PlanMutant) { return false; }
#endif

} // namespace llmopt::runtime

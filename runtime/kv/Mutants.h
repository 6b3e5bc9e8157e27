// Mistakes that the tests must notice. A test build (LLMOPT_KV_MUTANTS) can switch
// one on at run time and then expects that a check fails; in any other build the
// hooks are constants and cost nothing.
#pragma once

#include <cstdint>

namespace llmopt::runtime::kv {

enum class Mutant : uint8_t {
  None,
  LeakedReference,    ///< finish forgets a page
  DoubleFree,         ///< finish releases a page twice
  EarlyHash,          ///< pages are hashed when reserved
  RollbackForgotten,  ///< rejected drafts still count in the bound
  UnpinnedHit,        ///< hit pages stay evictable
  LateFree,           ///< pending pages are never freed
  EarlyFree,          ///< pages of unfinished rows are freed at once
  WindowOffByOne,     ///< a window's page goes one token too soon
  WindowByBound,      ///< released by speculative length
  SinkReleased,       ///< the sink's pages go with the others
  SharedWrite,        ///< no copy before the write behind a fork
  LostCopy,           ///< the copy is not told to the device
  CopiedSourceFreed,  ///< the source of a copy may be reused at once
  HashDecides,        ///< hits are not compared with the tokens
  ParentIgnored,      ///< hits are not compared with the parent
  KeyIgnored,         ///< adapter, salt, ... are not part of the key
  MediaIgnored,       ///< media are not part of the key
  WindowHitBeforeCap, ///< a window's pages counted before the cap at n - 1
  WholePromptHit,     ///< a wholly cached prompt runs nothing
  HeadsFirst,         ///< evicts the head of a prefix before its tail
  StaleEntry,         ///< an evicted page stays findable
  RefusedPin,         ///< a refused admission keeps its pins
  ForgottenDelta,     ///< a new page is not told to the device
  SwapUnordered,      ///< device pages are free before the copy out is done
  LoadUnordered,      ///< the step does not wait for the copy in
  TransferUnpinned,   ///< abort frees pages that the peer still writes
  LateNoteCounts,     ///< a note for a transfer that is over acts on the next one
  ResetKeeps,         ///< running sequences insert after a reset
  UnsettledHashed,    ///< a tree's branch is hashed before it is in place
  SteadyTokensLost,   ///< who is steady no more has forgotten its tokens since
  SteadyPastItsPages, ///< steady beyond the last page
  Count,
};

#ifdef LLMOPT_KV_MUTANTS
extern Mutant activeMutant;
inline bool mutant(Mutant which) { return activeMutant == which; }
#else
constexpr bool mutant(Mutant) { return false; }
#endif

} // namespace llmopt::runtime::kv

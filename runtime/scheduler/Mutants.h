// Mistakes that the tests must notice. A test build (LLMOPT_SCHEDULER_MUTANTS) can switch one
// on at run time and then expects that a check fails; in any other build the hooks are
// constants and cost nothing.
#pragma once

#include <cstdint>

namespace llmopt::runtime {

enum class SchedulerMutant : uint8_t {
  None,
  StopIgnored,         ///< tokens behind a stop are given out
  EndedRowsCount,      ///< rows of requests that have ended give tokens
  FailedRowsCount,     ///< a failed row does not end its request
  StagingRingOfOne,    ///< the next step is written over the bytes of the one in flight
  DraftSlotsForgotten, ///< no slots for the drafts of a row
  RejectedDraftsCount, ///< all drafts count as computed
  BeyondTheAnswer,     ///< rows that can yield no token any more
  StaleToken,          ///< behind a row in flight, the last known token instead of its result
  OldDrafts,           ///< drafts of a step that the device has forgotten
  BudgetExceeded,      ///< a chunk is not cut to the budget
  PreemptedInFlight,   ///< pages are taken while rows are in flight
  GeneratedForgotten,  ///< what is begun anew loses its answer
  PositionRestarts,    ///< random numbers begin anew after a preemption
  WardPreempted,       ///< the ward may be the victim
  AgedPassed,          ///< others are admitted while an aged one waits
  AdaptersUnlimited,   ///< more adapters than a step may have
  AdaptersShare,       ///< an adapter is not part of the cache's key
  FilterIgnored,       ///< a token is sampled before its mask is there
  FilterRunsAhead,     ///< a second row while a filter has not seen the first's token
  DeadlineForgotten,   ///< an overdue request runs on
  PagesKept,           ///< an ended request keeps its pages
  QueueKept,           ///< an aborted waiter stays in the queue
  SwapCountKept,       ///< who returns from host memory still counts as swapped
  ForksForgotten,      ///< samples wait for one that has ended
  ForkedLate,          ///< samples share the answer of the first
  LateNoteCounts,      ///< a note for a transfer that is over acts on whoever receives now
  SentUnpinned,        ///< pages that a peer reads are given to others
  FinishUnheard,       ///< nobody is told of an end by length
  SteadyTooLong,       ///< a row is steady where it needs a page, or ends the answer
  SteadyRowsForgotten, ///< who is steady no more has forgotten its rows in flight
  Count,
};

#ifdef LLMOPT_SCHEDULER_MUTANTS
extern SchedulerMutant activeSchedulerMutant;
inline bool mutant(SchedulerMutant which) { return activeSchedulerMutant == which; }
#else
constexpr bool mutant(SchedulerMutant) { return false; }
#endif

} // namespace llmopt::runtime

// The scheduler: which tokens of which requests run in the next step.
//
// A deterministic state machine over a clock that is passed in: the same calls with the
// same times give the same steps, byte for byte. It runs nothing itself:
//
//   submit(request) ...            queue, or refuse
//   schedule(now) -> StepInput     bytes for the executor; up to D steps are in flight
//   complete(result, now)          in the order of the steps: tokens, ends, pages
//
// A step (docs/design/scheduler.md has the reasons, and the bound on waiting):
// 1. each running request that decodes gets its token, with its drafts;
// 2. running prefills go on, oldest first, with what is left of the token budget;
// 3. where pages lack for these, the victim rule preempts until they fit;
// 4. waiting requests are admitted in the policy's order with the rest of the budget, if
//    their whole known length would fit beside what runs.
//
// Ageing. A request that is unfinished `ageSteps` steps after it came is aged. Aged ones
// stand above all priorities, oldest first. The *ward* is the first unfinished request in
// that order: it is never preempted, and while an aged one waits, nobody else is admitted.
//
// Victim. Of the running requests but the ward: those preempted less than twice first, of
// these the lowest class, of these the one with the least computed tokens. Its pages are
// copied to host memory if that is cheaper than computing them again, else dropped.
//
// Second level. Where the block manager has one (ManagerOptions::demoteBelow), each completed step
// starts copies to host memory of the cached pages that would be evicted next.
//
// Nothing is allocated in schedule and complete, but for copies to and from host memory. Not
// thread-safe: one thread, the engine's, calls it.
#pragma once

#include "runtime/kv/BlockManager.h"
#include "runtime/metrics/Metrics.h"
#include "runtime/scheduler/Policy.h"
#include "runtime/scheduler/Request.h"
#include "runtime/scheduler/RequestTable.h"
#include "runtime/scheduler/RunningRows.h"
#include "runtime/scheduler/StepResult.h"
#include "runtime/scheduler/StepWriter.h"
#include "runtime/scheduler/TokenMemory.h"
#include "runtime/scheduler/WaitQueue.h"

#include <array>
#include <memory>
#include <vector>

namespace llmopt::runtime {

struct SchedulerOptions {
  uint32_t tokenBudget = 2048; ///< query tokens a step
  uint32_t maxRunning = 256;   ///< requests with pages
  uint32_t maxWaiting = 4096;  ///< more are refused
  uint32_t maxLength = 32768;  ///< prompt and answer
  uint32_t stepsInFlight = 1;  ///< D
  uint32_t chunkTokens = 0;    ///< of one prefill in one step at most; 0: the budget
  uint32_t maxAdapters = 0;    ///< distinct ones among the running; 0: no limit
  uint32_t ageSteps = 1000;    ///< A
  uint32_t lookahead = 8;      ///< waiters tried in a step when the first does not fit
  uint32_t matchesPerStep = 8; ///< waiters looked up again in a step, for policies that ask
  /// For each running request, slots that admissions leave alone. With 0, who was just
  /// admitted is preempted at once: of ServeGen's 5,000 requests on 20,000 pages of 16, 24 % of
  /// the computed tokens are then computed again, with 16 7 %, with 64 1.3 %, with 512 none
  /// (and the mean time to the first token is 45 % longer).
  uint32_t growthTokens = 64;
  PolicyKind policy = PolicyKind::Fcfs;
  /// Cached pages whose copy to host memory a step may start, at most.
  uint32_t demotePages = 64;
  /// Parents of the drafts that the device makes after each token (a chain: -1, 0, 1, ...);
  /// empty: none.
  std::vector<int16_t> deviceDrafts;
  uint32_t hostDrafts = 0;     ///< most drafts that `draftSource` may propose
  bool hostDraftTrees = false; ///< they may branch; else a proposal ends before the first that does
  DraftSource *draftSource = nullptr;
  KvConnector *connector = nullptr; ///< for RequestParams::remoteTokens and forPeer

  uint32_t maxDraft() const {
    uint32_t device = uint32_t(deviceDrafts.size());
    return draftSource && hostDrafts > device ? hostDrafts : device;
  }
  /// Whether drafts may be trees: the executor has to know (ExecutorOptions::draftTrees).
  bool draftTrees() const;
};

class Scheduler {
public:
  /// `manager` and `listener` outlive the scheduler. InvalidArgument where an option is out
  /// of bounds, or the manager's (sequences, steps in flight, drafts, length) are smaller.
  static StatusOr<std::unique_ptr<Scheduler>>
  create(const SchedulerOptions &options, kv::BlockManager &manager, RequestListener &listener);
  ~Scheduler();

  /// Queues a request. InvalidArgument (empty prompt, too long, a value out of bounds) and
  /// ResourceExhausted (larger than the pool can ever hold; queue full) refuse it, and
  /// metrics().rejected says which; others are not affected.
  StatusOr<RequestHandle> submit(const RequestParams &params, int64_t nowNs);
  /// Queues samples.size() requests with one prompt, which is computed once where there is
  /// room for all of them: the others are forks of the first's pages. Sample i is a request of
  /// its own, with seed samplingSeed + i. All or none; more than `maxRunning` or `maxWaiting` are
  /// InvalidArgument.
  Status submit(const RequestParams &params, std::span<RequestHandle> samples, int64_t nowNs);
  /// Ends a request, whatever its state. False when it has ended already.
  bool abort(RequestHandle request, int64_t nowNs);
  /// Takes the pages of a running request, as a lack of pages would; it goes on later. False
  /// when it does not run.
  bool preempt(RequestHandle request);
  /// Its filter's answer is there. False when it has ended.
  bool filterReady(RequestHandle request);

  /// The peer has ended and the first `tokens` tokens of the transfer are there; the request
  /// computes the rest. Of one that nobody wants any more the pages are given back. False for a
  /// note that comes late: the transfer was over.
  bool transferDone(kv::TransferId transfer, uint32_t tokens);
  /// The peer has ended, or can write no more, and nothing of it counts.
  bool transferFailed(kv::TransferId transfer) { return transferDone(transfer, 0); }

  /// The next step's bytes, valid until D further steps are made; empty when D are in
  /// flight or there is nothing to run.
  std::span<const uint8_t> schedule(int64_t nowNs);
  /// Takes the result of the oldest step in flight. Internal when it is of another step or
  /// breaks the contract, and the scheduler is then unchanged; or when the block manager
  /// refuses what it had reserved.
  Status complete(const StepResult &result, int64_t nowNs);

  /// The device's memory is gone, with it pages, cache and steps in flight. Unfinished
  /// requests begin anew from their tokens, or end with DeviceFailure.
  void deviceLost(bool requeue, int64_t nowNs);

  /// The weights have changed: nothing that was computed before is hit any more. Requests that run
  /// go on with the pages that they have, which nobody else will hit.
  void resetCache();
  /// What a router in front wants to know of the prefix cache (CacheOptions::events), oldest
  /// first; false when there is nothing new.
  bool nextCacheEvent(kv::CacheEvent &event) { return blocks.popEvent(event); }
  /// Events that were overwritten since the last call; the cache's blocks are then to be read anew
  /// (PrefixCache::forEachBlock).
  uint64_t lostCacheEvents() { return blocks.lostEvents(); }

  /// All block tables, for a receiver that missed a version. Allocates.
  std::vector<uint64_t> snapshot() const;

  uint32_t stepsInFlight() const { return uint32_t(flightCount); }
  uint32_t running() const { return runningRows.size(); }
  uint32_t waiting() const { return queue.size() + blockedWaiters + waitingForks; }
  bool idle() const { return !running() && !waiting() && !flightCount; }
  bool alive(RequestHandle handle) const {
    return handle.slot < requests.size() && requests[handle.slot].generation == handle.generation &&
           requests[handle.slot].state != RequestState::Unused;
  }
  /// The request that is never preempted; slot UINT32_MAX when there is none.
  RequestHandle ward() const;
  const Request &request(uint32_t slot) const { return requests[slot]; }
  std::span<const uint32_t> runningRequests() const { return runningRows.requests(); }
  const ServingMetrics &metrics() const { return counts; }
  ServingMetrics &metrics() { return counts; }
  /// The same with what the block manager counts, and the pages of each layer group. Allocates.
  ServingMetrics allMetrics() const;
  const SchedulerOptions &options() const { return config; }
  const kv::BlockManager &manager() const { return blocks; }

  /// States, queues and the block manager's sequences agree. O(requests and pages).
  Status check() const;

private:
  /// A row of the next step that does not follow from the one before by counting.
  struct PlannedRow {
    uint32_t slot = 0;
    uint32_t tokens = 0;                  ///< query tokens: a chunk, or 1 and drafts
    uint32_t firstDraft = Request::kNone; ///< in draftTokens: proposed on the host
    uint16_t drafts = 0;
    bool samples : 1 = false;
    bool decode : 1 = false; ///< one token in, one out
  };
  struct Flight {
    uint64_t step = 0;
    std::span<const step::Row> rows; ///< in its bytes
    /// Rows that are looked at one by one, ascending; the requests of all others are steady.
    std::vector<uint32_t> single;
    void addSingle(uint32_t row);
  };
  /// A row without slots: of the plan, or (`row` is kNone) of a steady request that needs a page.
  struct Unreserved {
    uint32_t request = 0, row = Request::kNone, tableSlot = 0;
    bool inPlan() const { return row != Request::kNone; }
  };

  Scheduler(const SchedulerOptions &options, kv::BlockManager &manager, RequestListener &listener);

  void updateGauges();
  /// Into the second cache, which has room.
  static void fetchAll(const void *from, size_t bytes) {
    constexpr size_t kLine = 64;
    for (size_t at = 0; at < bytes; at += kLine)
      __builtin_prefetch(static_cast<const char *>(from) + at, 0, 2);
  }
  static void fetchTokens(const Request &request, uint32_t begin, uint32_t count) {
    fetchAll(request.tokens().data() + begin, count * sizeof(kv::Token));
  }

  // Requests.cpp
  Status refuse(RejectReason reason, Status status);
  Status validate(const RequestParams &params, size_t samples, int64_t nowNs);
  Status validateMedia(const RequestParams &params);
  uint32_t addRequest(const RequestParams &params, int64_t nowNs);
  Request *find(RequestHandle handle) { return alive(handle) ? &requests[handle.slot] : nullptr; }
  RequestHandle handleOf(uint32_t slot) const { return {slot, requests[slot].generation}; }
  void link(uint32_t slot);
  void unlink(uint32_t slot);
  uint64_t keyOf(const Request &request) const;
  void enqueue(uint32_t slot);
  void offer(uint32_t slot);
  void dequeue(uint32_t slot);
  void forgetPages(Request &request);
  void leaveRunning(uint32_t slot);
  void endRequest(uint32_t slot, FinishReason reason, int64_t nowNs);
  void endOverdue(int64_t nowNs);
  bool aged(const Request &request) const {
    return launched - request.submitStep >= config.ageSteps;
  }
  uint32_t wardSlot() const;
  uint32_t agedWaiter() const; ///< the oldest waiter, if it is aged

  // PlanRows.cpp
  void planRunning();
  void planRow(uint32_t slot);
  uint32_t draftsFor(uint32_t slot, uint32_t budget, uint32_t &firstDraft);
  uint32_t goodDrafts(uint32_t first, uint32_t count) const;
  void reserveRows();
  void closeGaps();

  // Steady.cpp
  bool beginSteady(uint32_t position);
  bool goOnSteady(uint32_t position);
  void completeEnd(const step::Row &row);
  void endSteady(uint32_t slot) {
    if (requests[slot].steady)
      endSteadyAt(runningRows.positionOf(slot));
  }
  void endSteadyAt(uint32_t position);
  const step::Row &newestRow(uint32_t position) const {
    return newestRows[runningRows.row(position)];
  }
  void fetchDue() const;
  void fetchEnd(const step::Row &row) const;
  static constexpr size_t kEndsAhead = 8; ///< rows: as many as the first cache loads at a time
  uint32_t nextBase(uint32_t position) const;
  void completeSteady(const Flight &flight, size_t begin, size_t end, const StepResult &result,
                      int64_t nowNs);

  // Samples.cpp
  void addFork(uint32_t leader, uint32_t slot);
  void removeFork(uint32_t slot);
  void queueForks(uint32_t leader);
  void passForks(uint32_t leader);
  bool forkSamples(uint32_t leader);

  // Transfers.cpp
  bool tryReceive(uint32_t slot);
  void stopReceiving(Request &request);
  std::span<const TransferPage> pagesOf(kv::SequenceId sequence, uint32_t begin, uint32_t end);
  void offerPages(uint32_t slot, FinishReason reason);

  // Preempt.cpp
  kv::Demand mostDemand(uint32_t tokens, uint32_t rows) const;
  void makeRoom();
  kv::Demand plannedDemand() const;
  bool onItsWay(const kv::Demand &demand) const;
  uint32_t victim() const;
  void preempt(uint32_t slot);
  bool swapIsCheaper(const Request &request) const;
  void finishPreemption(uint32_t slot);

  // Admit.cpp
  void fetchWaiters() const;
  void admitWaiting(int64_t nowNs);
  void refreshMatches();
  kv::Demand wholeDemand(kv::Demand asked, uint32_t length) const;
  uint32_t growthPages(uint32_t group) const;
  kv::Demand outstanding() const;
  kv::Demand demandOfForks(uint32_t forks) const;
  kv::Demand restOf(const Request &request) const;
  bool adapterFits(uint32_t adapter) const;
  bool tryAdmit(uint32_t slot, int64_t nowNs);
  bool tryReturn(uint32_t slot);
  void recordStart(Request &request, int64_t nowNs);
  void startRunning(uint32_t slot);
  void keepForOldest();

  // WriteRows.cpp
  std::span<const uint8_t> launch();
  void writeRows(Flight &flight);
  void writeRow(const PlannedRow &planned, Flight &flight);
  template <bool kBehind>
  void writeSteady(uint32_t begin, uint32_t end, StepWriter::Decodes &decodes);
  void writeDecode(uint32_t position, Flight &flight, StepWriter::Decodes &decodes);
  void writeDrafts(const Request &request, const PlannedRow &planned);

  // Complete.cpp
  Status checkResult(const Flight &flight, const StepResult &result, bool &failures) const;
  kv::Reply completeRow(const step::Row &row, const RowResult &result, const StepResult &step,
                        int64_t nowNs);
  FinishReason cutAnswer(const Request &request, std::span<const kv::Token> &tokens) const;
  void giveTokens(uint32_t slot, std::span<const kv::Token> tokens, int64_t nowNs);
  void recordGap(uint64_t ns, uint64_t times) {
    if (!times)
      return;
    if (ns != gapNs)
      recordGaps();
    gapNs = ns;
    gapCount += times;
  }
  void recordGaps();
  void recordFinish(const Request &request, FinishReason reason, int64_t nowNs);

  SchedulerOptions config;
  kv::BlockManager &blocks;
  RequestListener &listener;
  std::unique_ptr<Policy> policy;
  ServingMetrics counts;

  std::vector<Request, kv::LargePages<Request>> requests;
  NewestTokens newestTokens;
  std::vector<uint32_t> freeSlots;
  TokenMemory tokenMemory;
  RunningRows runningRows;
  WaitQueue queue;                                  ///< waiting, in the policy's order
  IndexedHeap ages;                                 ///< the same in the order of arrival, ...
  bool byArrival = false;                           ///< ... unless the queue has it
  IndexedHeap deadlines;                            ///< of all that have one
  std::array<uint32_t, kPriorities> oldest, newest; ///< unfinished, of each class
  uint64_t arrivals = 0, launched = 0;
  uint32_t admitted = 0; ///< in the newest step
  uint32_t refreshAt = 0, swappedCount = 0, blockedWaiters = 0;
  uint32_t waitingForks = 0;  ///< of all leaders
  uint32_t reservedForks = 0; ///< of running leaders: places among the running are theirs
  int64_t stepNs = 0;         ///< of the step that is being made
  uint32_t mostDrafts = 0;    ///< of a row
  int64_t completedNs = 0;    ///< when the last step completed: steady requests got a token then
  bool gaps = false;          ///< the plan has rows without tokens
  bool demotes = false;       ///< there is a second level of the cache
  // Times between tokens that are yet to be recorded: most rows of a step have the same.
  uint64_t gapNs = 0, gapCount = 0;
  uint32_t gaugeGroup = 0; ///< whose pages the gauges show: the first that keeps all

  StepWriter writer;
  std::vector<PlannedRow> plan;   ///< without the rows of steady requests
  size_t plannedInOrder = 0;      ///< the first ones, which stand among those of steady requests
  std::vector<uint32_t> prefills; ///< running, in the order of admission
  std::vector<Unreserved> unreserved;
  std::vector<uint32_t> growing; ///< table slots of steady ones that are reserved together
  uint32_t budgetLeft = 0;
  kv::Demand promised;         ///< what running requests will want, while waiters are admitted
  std::vector<uint32_t> tried; ///< waiters that did not fit in this step
  std::vector<uint32_t> preempting;
  std::vector<uint32_t> receivers;         ///< who is receiving
  std::vector<TransferPage> transferPages; ///< of the transfer that the connector is told of
  std::vector<kv::Token> draftTokens;
  std::vector<int16_t> draftParents;

  std::vector<Flight> flights; ///< ring of D
  size_t flightHead = 0, flightCount = 0;
  uint64_t newestStep = 0;
  const step::Row *newestRows = nullptr; ///< of it, in its bytes
};

} // namespace llmopt::runtime

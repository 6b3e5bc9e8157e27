// The KV block manager: which page holds which tokens of which sequence, for every
// layer group, out of one byte budget; and the prefix cache over the same pages.
//
// One thread calls it; it decides nothing (whom to run, whom to preempt) and
// touches no page content. Same calls, same answers, same page ids.
//
// A step:
//
//   openStep()                             at most maxStepsInFlight unfinished
//     admit(prompt, n) / reserve(seq, n)   slots of this step's rows
//     fork, finish, preempt, swap ...      in any order
//   closeStep()                            tables for the step; it may now be launched
//   ... later, in the order of the steps:
//   commit(seq, step, tokens)              for each of its rows that is still wanted
//   completeStep(step)
//
// Everything but reserve, admit, and closeStep may be called with or without an
// open step. Up to D = maxStepsInFlight steps are unfinished (closed, not
// completed); results of earlier ones may be committed while a step is open.
//
// Orders that hold (docs/design/kv.md has the reasons):
//
// - Reserved before used. `reserve(seq, n)` counts the row's new tokens AND its
//   drafts. Behind a row that is unfinished the true length is unknown: slots are
//   reserved up to the upper bound (all accepted), so every position that the
//   device may reach has a page. Nothing was changed when it answers a lack.
// - Appended, never moved. An entry of a block table changes only from no page to
//   a page, from a page to none (released by the mask), and, before the first write
//   behind a fork or a partial hit, from a shared page to its copy.
// - Lengths roll back, pages do not. `commit` with fewer tokens than reserved
//   lowers the bound; the pages stay named and serve the next tokens.
// - Committed at completion. Tokens count, pages are hashed and pages are released
//   by `commit` only, hence never before the step that wrote them has run.
// - Released by the oldest query. A window's pages go by committed length, which is
//   the position of the oldest query of any unfinished or future step, never by the
//   speculative one.
// - Freed when no step can touch it. Pages of a sequence that ends while steps with
//   its rows are unfinished are pending until the last of those completes. Pending
//   pages are a temporary lack.
// - Never hit before computed: a request cannot hit what another one of the same
//   step is about to write.
#pragma once

#include "runtime/kv/Admission.h"
#include "runtime/kv/ManagerState.h"
#include "runtime/kv/Mutants.h"
#include "runtime/kv/PageMover.h"
#include "runtime/kv/Pool.h"
#include "runtime/kv/PrefixCache.h"
#include "runtime/kv/Prompt.h"
#include "runtime/kv/Reply.h"
#include "runtime/kv/StepTables.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace llmopt::runtime::kv {

class BlockManager {
public:
  /// Allocates all it will ever need. `mover` may be null: then there is no swap
  /// and no second level.
  static StatusOr<std::unique_ptr<BlockManager>> create(const ManagerOptions &options,
                                                        PageMover *mover = nullptr);
  ~BlockManager();

  // ---- Steps

  /// TooManySteps, or WrongStep when one is open already.
  Reply openStep();
  StepId currentStep() const { return open; } ///< the open step, or 0
  /// The step may be launched from now on. WrongStep (an empty result with
  /// step 0) when none is open.
  const StepTables &closeStep();
  /// Drops the open step: its rows count as never reserved, their pages stay with
  /// the sequences. Copies and deltas go over to the next step.
  Reply cancelStep();
  /// After the commits of its rows; also for a step that failed (then without
  /// commits: end the sequences that had rows in it). Steps complete in order.
  Reply completeStep(StepId step);
  StepId completedStep() const { return completed; }

  // ---- Rows

  /// What a request would hit now. Changes nothing but the prompt's memory of it.
  Match match(Prompt &prompt);
  /// Looks up, pins and reserves in one: the hit pages and slots for at most
  /// `newTokens` tokens behind the hit, all or nothing. A row of the open step.
  /// At least one token is left to run, however much is cached.
  Admission admit(Prompt &prompt, uint32_t newTokens);
  /// As `admit`, with slots that a peer fills up to the prompt's token `end` instead of a row;
  /// see reserveTransfer. Uses whole pages of the cache only. Needs no open step.
  /// InvalidArgument when as much is cached.
  Admission admitTransfer(Prompt &prompt, uint32_t end, TransferId &transfer);
  /// Slots for one more row: `tokens` (new and drafts) in the open step.
  Reply reserve(SequenceId sequence, uint32_t tokens);
  /// The row's tokens whose KV is valid now: of a chunk all; of a verify row the
  /// input token and the accepted drafts; none for a failed or discarded row. The
  /// last sampled token is not among them: nothing has computed its KV yet.
  /// `unsettled` of them (a tree's accepted branch that the sequence's next row
  /// still has to move to its linear slots) are hashed only with the next commit.
  Reply commit(SequenceId sequence, StepId step, std::span<const Token> tokens,
               uint32_t unsettled = 0);
  // ---- Steady sequences: most rows of most steps
  //
  // A steady sequence has a row of one token in each unfinished step and gets one in each step
  // that is closed, and each of them yields its token. Nobody reserves or commits these: lengths
  // follow from the steps. Until `endSteady` all that would change it answers UnknownSequence.

  /// After closeStep. The length up to which rows may begin so: from there on a row would take a
  /// page, end a block or let a page go, and `endSteady` has to come before the step with it. 0
  /// where it cannot be, with nothing changed: the newest row would be beyond already, or the
  /// unfinished rows are others.
  uint32_t beginSteady(SequenceId sequence);
  /// Rows of unfinished steps are like any others again; those of completed ones have yielded
  /// `tokens`. In an open step it has none. Where a row yields something else, or nothing: before
  /// the step with it is completed.
  void endSteady(SequenceId sequence, std::span<const Token> tokens);

  // A steady sequence goes on beyond that length, named by its table slot, while no step is
  // unfinished but the one that is being completed:

  /// A row that begins there needs `reserveSteady` before.
  uint32_t steadyCapacity(uint32_t slot) const {
    return sequences[slot].capacity + mutant(Mutant::SteadyPastItsPages);
  }
  /// The same when `reserveSteady` has been asked for a page, at least.
  uint32_t steadyCapacityBehind(uint32_t slot) const {
    uint32_t more = groups() == 1 ? config.groups[0].pageSize : 1;
    return std::min(steadyCapacity(slot) + more, config.maxTokens);
  }
  /// A row that begins there needs `commitSteady` when it completes.
  uint32_t steadyPlainEnd(uint32_t slot) const { return sequences[slot].plainEnd; }
  /// As `reserve` of one token. UnknownSequence where it is not steady.
  Reply reserveSteady(uint32_t slot);
  /// The same of several at once, which costs a fraction. False where each has to be asked for
  /// itself: one is not steady, is at its longest or needs no page, not all of them fit, or there
  /// are several layer groups. Then nothing has changed.
  bool reserveSteady(std::span<const uint32_t> slots);
  Demand demandOfSteady(uint32_t slot) const;
  /// As `commit`, with the tokens of the row of the step that is being completed and of all steps
  /// before that nobody was told of.
  void commitSteady(uint32_t slot, std::span<const Token> tokens);
  /// Between steps: the tokens of all steps that nobody was told of.
  void keepSteady(uint32_t slot, std::span<const Token> tokens);

  /// Begins to load what a row looks at that needs a page, of a sequence of `tokens` tokens.
  void fetchRow(uint32_t slot, uint32_t tokens) const {
    __builtin_prefetch(&sequences[slot], 1);
    __builtin_prefetch(&tables[slot * groups()], 1);
    __builtin_prefetch(frames(slot, 0) + tokens / config.groups[0].pageSize, 1);
  }
  /// What `fetchCommit` looks at.
  void fetchSequence(uint32_t slot) const { __builtin_prefetch(&sequences[slot], 1); }
  /// What the first commits that end a block look at, whosever they are.
  void fetchSpares() const { prefix->fetchSpares(); }
  /// What a commit looks at that ends a block; the sequence is near.
  void fetchCommit(uint32_t slot) const {
    const Sequence &s = sequences[slot];
    if (s.node == kNoNode)
      return;
    prefix->fetchNode(s.node);
    __builtin_prefetch(&tables[slot * groups()], 1);
    __builtin_prefetch(frames(slot, 0) + s.blocks);
    pages->fetch(s.lastPage);
  }

  // ---- Sequences

  /// A second sequence with the same committed tokens. Full pages are shared, the
  /// last partial one is copied before the first write. InFlight while the parent
  /// has unfinished rows, or a copy that brings its content has not run.
  Reply fork(SequenceId parent, SequenceId &child);
  /// Ends a sequence: finished, aborted or preempted for recompute. A row that it
  /// has in the open step is taken back; unfinished ones keep its pages pending.
  /// What was hashed stays in the cache.
  Reply finish(SequenceId sequence);

  // ---- Swap

  /// To host memory; the device pages are free when the copy is done. A row in the
  /// open step is taken back. InFlight while unfinished steps have rows of it, a branch of a
  /// tree is not in place, or a copy that brings its content has not run.
  Reply swapOut(SequenceId sequence);
  /// Back, into new pages (or into cached ones that still have the content); the
  /// next closed step waits for the copy.
  Reply swapIn(SequenceId sequence);

  // ---- Transfer: pages that another machine writes or reads

  /// Slots for the next `tokens` tokens of a sequence that has no unfinished row.
  /// Nobody may write yet; `endTransfer` gives all back.
  Reply reserveTransfer(SequenceId sequence, uint32_t tokens, TransferId &transfer);
  /// Pins all pages of the sequence for a reader (`tokens` of the transfer is 0).
  Reply sendTransfer(SequenceId sequence, TransferId &transfer);
  /// The peer may access the pages: they stay pinned until it is known to have ended.
  Reply startTransfer(TransferId transfer);
  /// The peer has ended and all is there: the tokens are committed.
  Reply completeTransfer(TransferId transfer, std::span<const Token> tokens);
  /// Our side gives up. Pages of a started transfer stay pinned until
  /// `endTransfer`; `finish` of the sequence implies it.
  Reply abortTransfer(TransferId transfer);
  /// The peer is known to have ended without success (a late note), or can access
  /// no more (connection torn down). For a transfer that is over already the answer is
  /// UnknownSequence, and nothing changes.
  Reply endTransfer(TransferId transfer);

  // ---- Room

  /// Whether `tokens` tokens could ever be held by one sequence with rows of up to
  /// `rowTokens`: Ok, TooLong or PermanentLack.
  Reply fits(uint64_t tokens, uint32_t rowTokens) const;
  /// Pages that `admit` or `reserve` would take from what is free or evictable.
  Demand demandOf(Prompt &prompt, uint32_t newTokens);
  /// As much or more, without a look at each page: as if nobody held one of the hit.
  Demand mostDemandOf(Prompt &prompt, uint32_t newTokens);
  Demand demandOf(SequenceId sequence, uint32_t tokens) const;
  /// Whether both could be had at once, beside what is set aside.
  bool holds(const Demand &demand) const;
  /// Pages that admit, reserve, fork and swapIn leave alone from now on: they are
  /// kept for the oldest waiter. Replaces what was set aside before; an empty
  /// demand lifts it.
  void setAside(const Demand &demand);

  // ---- What is where

  bool alive(SequenceId sequence) const;
  uint32_t committedTokens(SequenceId sequence) const;
  /// Upper bound: committed tokens and all slots of unfinished rows.
  uint32_t boundTokens(SequenceId sequence) const;
  uint32_t unfinishedRows(SequenceId sequence) const;
  bool swappedOut(SequenceId sequence) const;
  /// Pages that the sequence's table names in a group, by position; kNoPage where
  /// released.
  uint32_t tableSize(SequenceId sequence, uint32_t group) const;
  PageId pageAt(SequenceId sequence, uint32_t group, uint32_t index) const;
  /// Pages that nobody else holds: what preempting the sequence would bring.
  Demand ownPages(SequenceId sequence) const;
  /// All tables, for a receiver that missed a version; while no step is open. Allocates.
  void snapshot(std::vector<TableDelta> &deltas, std::vector<PageId> &pages,
                uint64_t &version) const;

  const Pool &pool() const { return *pages; }
  const PrefixCache &cache() const { return *prefix; }
  const ManagerOptions &options() const { return config; }
  Counters counters() const;
  uint32_t blockSize() const { return block; }

  // ---- Upkeep

  /// Looks for copies that have ended. `completeStep` does it too.
  void poll();
  /// Starts copies to host memory of pages near the end of the eviction order, while
  /// fewer than `options.demoteBelow` pages are free, or will be when the copies under way have
  /// ended, and the cost model favours a copy. At most `most` pages.
  uint32_t demote(uint32_t most);
  /// Forgets the prefix cache (the weights changed). Sequences that run stay, and
  /// insert nothing any more.
  void resetCache();
  /// The device's memory is gone: drops all sequences, pages, transfers and the
  /// cache; handles become unknown; unfinished steps count as completed.
  void dropAll();
  /// Events for routers, oldest first; false when there is none.
  bool popEvent(CacheEvent &event);
  uint64_t lostEvents();

  /// Walks everything and says the first broken invariant: references equal owners,
  /// each page in one state, states add up, tree and tables agree. O(pages).
  Status check() const;

private:
  struct Copy {
    uint32_t slot; ///< of the sequence that gets it
    uint32_t group;
    Frame from, to;
  };
  struct Pin {
    Frame frame;
    PageState before;
  };
  struct Load {
    uint32_t group, page;
    Frame host;
    NodeId node;
    bool partial;
  };

  BlockManager(const ManagerOptions &options, PageMover *mover);
  void build(const PoolLayout &device, const PoolLayout *host);
  void connectPools();
  void clearSequences();

  // Tables.
  uint32_t groups() const { return groupCount; }
  Sequence *find(SequenceId id) {
    const Sequence *s = std::as_const(*this).find(id);
    return s && !s->steady ? const_cast<Sequence *>(s) : nullptr;
  }
  const Sequence *find(SequenceId id) const {
    if (id.slot >= sequences.size())
      return nullptr;
    const Sequence &s = sequences[id.slot];
    return s.generation == id.generation && s.phase != Phase::None ? &s : nullptr;
  }
  Table &table(uint32_t slot, uint32_t group) { return tables[slot * groups() + group]; }
  const Table &table(uint32_t slot, uint32_t group) const {
    return tables[slot * groups() + group];
  }
  Frame *frames(uint32_t slot, uint32_t group) {
    return entries[group].data() + size_t{slot} * columns[group];
  }
  const Frame *frames(uint32_t slot, uint32_t group) const {
    return entries[group].data() + size_t{slot} * columns[group];
  }
  uint32_t sinkPages(uint32_t group) const { return sinks[group]; }
  bool holdsPage(uint32_t slot, uint32_t group, uint32_t page) const {
    const Table &t = table(slot, group);
    return page < t.size && (page >= t.first || page < sinkPages(group));
  }
  /// visit(page index, frame) for each page that a table names, from tail to head.
  template <typename Visit> void forEachPageOf(uint32_t slot, uint32_t g, Visit visit) const {
    const Table &t = table(slot, g);
    for (uint32_t page = t.size; page > 0; --page)
      if (holdsPage(slot, g, page - 1))
        visit(page - 1, frames(slot, g)[page - 1]);
  }
  /// visit(group, page index, frame).
  template <typename Visit> void forEachPage(uint32_t slot, Visit visit) const {
    for (uint32_t g = 0; g < groups(); ++g)
      forEachPageOf(slot, g, [&](uint32_t page, Frame f) { visit(g, page, f); });
  }
  uint32_t newSlot();
  void freeSlot(uint32_t slot, StepId lastStep);
  void markDirty(uint32_t slot);
  void emitTables(uint32_t slot);
  void emitEntries(uint32_t slot, uint32_t group, uint32_t begin, uint32_t end, bool clear);

  // Rows.
  uint32_t place(StepId step) const { return step & (ring - 1); }
  size_t rowPlace(uint32_t slot, StepId step) const {
    return size_t{place(step)} * config.maxSequences + slot;
  }
  uint32_t &row(uint32_t slot, StepId step) { return rowTokens[rowPlace(slot, step)]; }
  uint32_t row(uint32_t slot, StepId step) const { return rowTokens[rowPlace(slot, step)]; }
  StepId lastStepOf(uint32_t slot) const;
  uint32_t committedOf(const Sequence &s) const {
    return s.committed + (s.steady ? completed - s.steadyFrom : 0);
  }
  uint32_t boundOf(const Sequence &s) const {
    return s.steady ? committedOf(s) + (closed - completed) : s.bound;
  }
  void addRow(uint32_t slot, uint32_t tokens);
  void takeBackRow(uint32_t slot);
  void discardRows(StepId step);
  Demand growth(uint32_t slot, uint32_t tokens) const;
  Reply grow(uint32_t slot, uint32_t tokens);
  bool tailIsShared(uint32_t slot, uint32_t group) const;
  void copyTail(uint32_t slot);
  void addCopy(uint32_t slot, uint32_t group, Frame from, Frame to);
  void appendPages(uint32_t slot, uint32_t tokens);
  void updateCapacity(uint32_t slot);
  Demand heldAt(uint64_t tokens, uint64_t queries) const;
  bool fitsAlone(const Demand &demand) const;
  Reply lackFor(const Demand &needed);

  // Admission.
  template <typename Visit> void forEachHitPage(const PrefixCache::Hit &hit, Visit visit) const;
  PrefixCache::Hit lookup(Prompt &prompt, bool partial);
  Match describeHit(const Prompt &prompt, const PrefixCache::Hit &hit) const;
  Demand newPagesFor(const PrefixCache::Hit &hit, uint32_t tokens) const;
  bool surelyLacks(const Prompt &prompt, const PrefixCache::Hit &hit, Demand demand) const;
  bool surelyFits(const PrefixCache::Hit &hit, Demand demand) const;
  void takeWholeHit(uint32_t slot, const Prompt &prompt, const PrefixCache::Hit &hit);
  bool tryPin(Prompt &prompt, const PrefixCache::Hit &hit, Demand &demand);
  void pinHit(const Prompt &prompt, const PrefixCache::Hit &hit, Demand &demand);
  void undoPins();
  Admission place(Prompt &prompt, uint32_t newTokens, uint32_t end, bool partial);
  void startInserting(uint32_t slot, Prompt &prompt, const PrefixCache::Hit &hit);
  void takeHit(uint32_t slot, const PrefixCache::Hit &hit);
  void loadPages(uint32_t slot);
  void copyHitTail(uint32_t slot, const PrefixCache::Hit &hit);

  // Commit and end.
  void commitTokens(uint32_t slot, std::span<const Token> tokens, uint32_t unsettled);
  bool commitBlock(uint32_t slot, std::span<const Token> tokens);
  void insertTokens(uint32_t slot, uint32_t had, std::span<const Token> tokens);
  bool insertBlock(uint32_t slot, const Token *tokens);
  bool insertBlocks(uint32_t slot, const Token *tokens, uint32_t count);
  void attachBlock(uint32_t slot, uint32_t index, NodeId node);
  void adoptDuplicates(uint32_t slot);
  void stopInserting(uint32_t slot);
  /// Position of the oldest query of any unfinished or future step, which is the committed
  /// length; pages that the next row still moves tokens into stay, too.
  static uint32_t oldestQuery(const Sequence &s) {
    if (mutant(Mutant::WindowByBound))
      return s.bound;
    return s.committed - s.unsettled + mutant(Mutant::WindowOffByOne);
  }
  void releaseUnseen(uint32_t slot);
  void updateRelease(uint32_t slot);
  uint32_t plainEndOf(const Sequence &s) const;
  void releasePages(uint32_t slot, StepId last);

  // Swap and second level.
  CopyJob &newJob(CopyJob::Kind kind, SequenceId sequence);
  void addItem(CopyJob &job, const CopyJob::Item &item);
  void startJob(CopyJob &job);
  void finishJob(CopyJob &job);
  void exchangeTier(CopyJob::Kind kind, const CopyJob::Item &item);
  bool contentIsComing(uint32_t slot) const;
  void dropEmptyPages(uint32_t slot);
  void dropHostPages(uint32_t slot);
  Frame cachedAt(uint32_t group, uint32_t page, NodeId node) const;
  template <typename Visit> void forEachSwappedPage(uint32_t slot, Visit visit) const;

  // Transfer.
  Transfer *find(TransferId id);
  Reply newTransfer(SequenceId sequence, TransferId &id, Transfer *&result);
  void pinPages(Transfer &transfer, uint32_t begin, uint32_t end);
  void closeTransfer(Transfer &transfer);
  void abandonTransfer(uint32_t slot);

  Status checkOwners() const;
  Status checkStates() const;
  Status checkSequences() const;

  ManagerOptions config;
  uint32_t groupCount;
  PageMover *mover;
  Counters count;
  StepId open = 0, closed = 0, completed = 0;
  std::unique_ptr<Pool> pages, hostPages;
  std::unique_ptr<PrefixCache> prefix;

  uint32_t ring = 2; ///< unfinished steps and two more, a power of two
  uint32_t block = 1, tailSize = 0;
  std::vector<uint32_t> columns, sinks;
  std::vector<Sequence> sequences;
  std::vector<Table> tables;
  std::vector<LazyArray<Frame>> entries; ///< for each group
  std::vector<uint32_t> rowTokens;       ///< reserved, of each step's place and each slot
  std::vector<uint32_t> rowsOfStep;
  LazyArray<Token> tails; ///< committed tokens behind the last inserted block
  std::vector<std::vector<std::string>> media;
  std::vector<uint32_t> freeSlots, dirtySlots;
  std::vector<std::vector<uint32_t>> slotsAfterStep; ///< of ended sequences
  Demand aside;

  std::vector<Pin> pins;
  std::vector<Frame> tailPins; ///< sources of copies, among the pins
  std::vector<Frame> grown;    ///< pages of rows that are reserved together
  std::vector<Load> loads;
  std::vector<Copy> copies;
  std::vector<EventId> waits;
  std::vector<FreedPage> freed;
  StepTables tablesOut;
  std::vector<TableDelta> deltasOut;
  std::vector<PageId> pagesOut;
  std::vector<PageCopy> copiesOut;
  std::vector<EventId> waitsOut;
  std::vector<FreedPage> freedOut;
  uint64_t version = 0;

  std::vector<CopyJob> jobs;
  std::vector<Transfer> transfers;
};

} // namespace llmopt::runtime::kv

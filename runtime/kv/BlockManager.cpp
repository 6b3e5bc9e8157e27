// Construction, steps, and what is where.
#include "runtime/kv/BlockManager.h"

#include "runtime/base/Checked.h"
#include "runtime/kv/Mutants.h"

#include <algorithm>
#include <bit>

namespace llmopt::runtime::kv {

#ifdef LLMOPT_KV_MUTANTS
Mutant activeMutant = Mutant::None;
#endif

namespace {

/// References to a page are counted in 16 bits: of sequences, jobs and transfers.
constexpr uint32_t kMostSequences = 32768, kMostTransfers = 4096, kMostSteps = 16;

} // namespace

Status validate(const ManagerOptions &options) {
  LLMOPT_RETURN_IF_ERROR(validate(options.groups));
  if (options.maxSequences == 0 || options.maxSequences > kMostSequences)
    return invalidArgument("{} sequences; allowed are 1 to {}", options.maxSequences,
                           kMostSequences);
  if (options.maxTokens == 0 || options.maxTokens > INT32_MAX / 2)
    return invalidArgument("sequences of {} tokens; allowed are 1 to {}", options.maxTokens,
                           INT32_MAX / 2);
  if (options.maxStepsInFlight == 0 || options.maxStepsInFlight > kMostSteps)
    return invalidArgument("{} steps in flight; allowed are 1 to {}", options.maxStepsInFlight,
                           kMostSteps);
  if (options.maxDraft > options.maxTokens)
    return invalidArgument("{} drafts a row; allowed are 0 to {}, the longest sequence",
                           options.maxDraft, options.maxTokens);
  if (options.maxTransfers > kMostTransfers)
    return invalidArgument("{} transfers; allowed are 0 to {}", options.maxTransfers,
                           kMostTransfers);
  if (options.cache.hashBits == 0 || options.cache.hashBits > 64)
    return invalidArgument("hashes of {} bits; allowed are 1 to 64", options.cache.hashBits);
  return {};
}

uint64_t ManagerOptions::bytesForPages(const std::vector<GroupSpec> &groups, uint64_t pages) {
  for (const GroupSpec &group : groups)
    if (group.keepsAll())
      return productOrMost(pages, group.pageBytes());
  return groups.empty() ? 0 : productOrMost(pages, groups[0].pageBytes());
}

Status checkPages(uint64_t pages, std::string_view what) {
  if (pages < 1 || pages > kMostPages)
    return invalidArgument("{} {}pages; 1 to {} are allowed", pages, what, kMostPages);
  return {};
}

uint32_t ManagerOptions::leadGroup() const {
  for (uint32_t g = 0; g < groups.size(); ++g)
    if (groups[g].keepsAll())
      return g;
  return 0;
}

uint32_t ManagerOptions::demoteBelowFor(uint32_t stepTokens) const {
  if (!hostBytes || !cache.enabled || groups.empty())
    return 0;
  const GroupSpec &lead = groups[leadGroup()];
  uint64_t wanted = 2 * lead.pagesFor(stepTokens), most = budgetBytes / lead.pageBytes() / 8;
  return static_cast<uint32_t>(std::max<uint64_t>(1, std::min(wanted, most)));
}

StatusOr<std::unique_ptr<BlockManager>> BlockManager::create(const ManagerOptions &options,
                                                             PageMover *mover) {
  LLMOPT_RETURN_IF_ERROR(validate(options));
  StatusOr<PoolLayout> device = layOut(options.groups, options.budgetBytes);
  if (!device)
    return device.status();
  std::unique_ptr<BlockManager> manager(new BlockManager(options, mover));
  std::optional<PoolLayout> host;
  if (mover && options.hostBytes > 0) {
    StatusOr<PoolLayout> layout = layOut(options.groups, options.hostBytes);
    if (!layout)
      return layout.status().withContext("host memory");
    host = *layout;
  }
  manager->build(*device, host ? &*host : nullptr);
  return manager;
}

BlockManager::BlockManager(const ManagerOptions &options, PageMover *mover)
    : config(options), groupCount(static_cast<uint32_t>(options.groups.size())), mover(mover),
      ring(std::bit_ceil(options.maxStepsInFlight + 2)),
      block(static_cast<uint32_t>(kv::blockSize(options.groups))),
      tailSize(block + options.maxDraft + 1) {}

BlockManager::~BlockManager() = default;

void BlockManager::build(const PoolLayout &device, const PoolLayout *host) {
  pages = std::make_unique<Pool>(device, ring);
  if (host) {
    hostPages = std::make_unique<Pool>(*host, 1);
    hostPages->setHost();
  }
  prefix =
      std::make_unique<PrefixCache>(config.cache, *pages, hostPages.get(), config.maxSequences);
  connectPools();
  size_t slots = config.maxSequences, perSlot = 0;
  for (const GroupSpec &group : config.groups) {
    columns.push_back(static_cast<uint32_t>(group.pagesFor(config.maxTokens)));
    sinks.push_back(
        static_cast<uint32_t>(mutant(Mutant::SinkReleased) ? 0 : group.pagesFor(group.sink)));
    entries.emplace_back(slots * columns.back());
    perSlot += columns.back();
  }
  if (prefix->enabled())
    tails = LazyArray<Token>(slots * tailSize);
  transfers.resize(config.maxTransfers);
  clearSequences();
  // Room for the busiest step.
  pins.reserve(perSlot);
  tailPins.reserve(groups());
  grown.reserve(slots);
  loads.reserve(hostPages ? perSlot : 0);
  copies.reserve(slots * groups());
  copiesOut.reserve(slots * groups());
  deltasOut.reserve(slots * groups() * 3);
  pagesOut.reserve(perSlot + slots * groups() * 8);
  if (config.reportFrees) {
    freed.reserve(device.frames());
    freedOut.reserve(device.frames());
  }
}

void BlockManager::connectPools() {
  pages->setCache(prefix.get());
  pages->freedPages = config.reportFrees ? &freed : nullptr;
  if (hostPages)
    hostPages->setCache(prefix.get());
}

/// No sequence, no row, no job: as at the start.
void BlockManager::clearSequences() {
  uint32_t slots = config.maxSequences;
  sequences.assign(slots, {});
  tables.assign(size_t{slots} * groups(), {});
  rowTokens.assign(size_t{slots} * ring, 0);
  rowsOfStep.assign(ring, 0);
  media.assign(slots, {});
  slotsAfterStep.assign(ring, {});
  for (std::vector<uint32_t> &list : slotsAfterStep)
    list.reserve(slots);
  freeSlots.clear();
  for (uint32_t slot = slots; slot-- > 0;)
    freeSlots.push_back(slot);
  dirtySlots.clear();
  dirtySlots.reserve(slots);
  jobs.clear();
  copies.clear();
  waits.clear();
  freed.clear();
  aside = {};
}

// ---- Steps

Reply BlockManager::openStep() {
  if (open)
    return Reply::WrongStep;
  if (closed - completed >= config.maxStepsInFlight)
    return Reply::TooManySteps;
  open = closed + 1;
  return Reply::Ok;
}

const StepTables &BlockManager::closeStep() {
  tablesOut = {};
  if (!open)
    return tablesOut;
  deltasOut.clear();
  pagesOut.clear();
  copiesOut.clear();
  for (uint32_t slot : dirtySlots) {
    sequences[slot].dirty = false;
    if (sequences[slot].phase == Phase::Running)
      emitTables(slot);
  }
  dirtySlots.clear();
  for (const Copy &copy : copies)
    if (!mutant(Mutant::LostCopy))
      copiesOut.push_back({static_cast<uint16_t>(copy.group),
                           pages->layout().pageOf(copy.group, copy.from),
                           pages->layout().pageOf(copy.group, copy.to)});
  count.copies += copies.size();
  copies.clear();
  waitsOut.clear();
  if (!mutant(Mutant::LoadUnordered))
    std::swap(waits, waitsOut);
  waits.clear();
  freedOut.clear();
  for (const FreedPage &page : freed)
    if (pages->isFree(page.group, page.page))
      freedOut.push_back(page);
  freed.clear();
  tablesOut = {.step = open,
               .baseVersion = version,
               .version = version + 1,
               .deltas = deltasOut,
               .pages = pagesOut,
               .copies = copiesOut,
               .waits = waitsOut,
               .freed = freedOut};
  ++version;
  closed = open;
  open = 0;
  return tablesOut;
}

void BlockManager::emitEntries(uint32_t slot, uint32_t group, uint32_t begin, uint32_t end,
                               bool clear) {
  if (begin >= end && !clear)
    return;
  deltasOut.push_back({.tableSlot = slot,
                       .index = begin,
                       .first = static_cast<uint32_t>(pagesOut.size()),
                       .count = end > begin ? end - begin : 0,
                       .group = static_cast<uint16_t>(group),
                       .clear = clear});
  const Frame *entry = frames(slot, group);
  if (pages->layout().equalPages && begin >= table(slot, group).first) { // a page is its frame
    if (begin + 1 == end) // mostly: a row that decodes has got a page
      pagesOut.push_back(static_cast<PageId>(entry[begin]));
    else if (begin < end) // of the same width, so this is a copy of bytes
      pagesOut.insert(pagesOut.end(), reinterpret_cast<const PageId *>(entry) + begin,
                      reinterpret_cast<const PageId *>(entry) + end);
    return;
  }
  for (uint32_t i = begin; i < end; ++i)
    pagesOut.push_back(holdsPage(slot, group, i) ? pages->layout().pageOf(group, entry[i])
                                                 : kNoPage);
}

/// What the device does not know yet of the slot's tables.
void BlockManager::emitTables(uint32_t slot) {
  Sequence &s = sequences[slot];
  if (mutant(Mutant::ForgottenDelta) && !s.fresh)
    return;
  for (uint32_t g = 0; g < groups(); ++g) {
    Table &t = table(slot, g);
    if (s.fresh) {
      uint32_t sinkEnd = std::min({sinkPages(g), t.first, t.size});
      emitEntries(slot, g, 0, sinkEnd, true);
      emitEntries(slot, g, std::max(t.first, sinkEnd), t.size, false);
    } else {
      uint32_t gone = std::max(t.sentFirst, sinkPages(g));
      emitEntries(slot, g, gone, std::min(t.first, t.sentSize), false);
      if (t.replaced < t.sentSize)
        emitEntries(slot, g, t.replaced, t.replaced + 1, false);
      emitEntries(slot, g, t.sentSize, t.size, false);
    }
    t.sentSize = t.size;
    t.sentFirst = t.first;
    t.replaced = UINT32_MAX;
  }
  s.fresh = false;
}

void BlockManager::snapshot(std::vector<TableDelta> &deltas, std::vector<PageId> &ids,
                            uint64_t &at) const {
  deltas.clear();
  ids.clear();
  at = version;
  for (uint32_t slot = 0; slot < sequences.size(); ++slot)
    for (uint32_t g = 0; g < groups() && sequences[slot].phase == Phase::Running; ++g) {
      const Table &t = table(slot, g);
      deltas.push_back({.tableSlot = slot,
                        .first = static_cast<uint32_t>(ids.size()),
                        .count = t.sentSize,
                        .group = static_cast<uint16_t>(g),
                        .clear = true});
      for (uint32_t i = 0; i < t.sentSize; ++i)
        ids.push_back(holdsPage(slot, g, i) ? pages->layout().pageOf(g, frames(slot, g)[i])
                                            : kNoPage);
    }
}

/// The open step's row of the slot was never launched.
void BlockManager::takeBackRow(uint32_t slot) {
  uint32_t &tokens = row(slot, open);
  if (!open || tokens == 0)
    return;
  sequences[slot].bound -= tokens;
  --sequences[slot].rows;
  --rowsOfStep[place(open)];
  tokens = 0;
}

Reply BlockManager::cancelStep() {
  if (!open)
    return Reply::WrongStep;
  for (uint32_t slot = 0; slot < sequences.size() && rowsOfStep[place(open)] > 0; ++slot)
    takeBackRow(slot);
  open = 0;
  return Reply::Ok;
}

Reply BlockManager::completeStep(StepId step) {
  if (step != completed + 1 || step > closed)
    return Reply::WrongStep;
  if (rowsOfStep[place(step)] > 0)
    discardRows(step);
  completed = step;
  pages->completeStep(step);
  std::vector<uint32_t> &slots = slotsAfterStep[place(step)];
  freeSlots.insert(freeSlots.end(), slots.rbegin(), slots.rend());
  slots.clear();
  poll();
  return Reply::Ok;
}

/// Rows that nobody committed computed nothing that counts.
void BlockManager::discardRows(StepId step) {
  for (uint32_t slot = 0; slot < sequences.size(); ++slot)
    if (uint32_t &tokens = row(slot, step); tokens > 0) {
      sequences[slot].bound -= tokens;
      --sequences[slot].rows;
      --rowsOfStep[place(step)];
      tokens = 0;
    }
}

/// The last unfinished step with a row of the slot, or 0.
StepId BlockManager::lastStepOf(uint32_t slot) const {
  if (sequences[slot].rows == 0)
    return 0;
  for (StepId step = open ? open : closed; step > completed; --step)
    if (row(slot, step) > 0)
      return step;
  return 0;
}

// ---- What is where

bool BlockManager::alive(SequenceId id) const { return find(id) != nullptr; }

uint32_t BlockManager::committedTokens(SequenceId id) const {
  const Sequence *s = find(id);
  return s ? committedOf(*s) : 0;
}

uint32_t BlockManager::boundTokens(SequenceId id) const {
  const Sequence *s = find(id);
  return s ? boundOf(*s) : 0;
}

uint32_t BlockManager::unfinishedRows(SequenceId id) const {
  const Sequence *s = find(id);
  return s ? (s->steady ? closed - completed : s->rows) : 0;
}

bool BlockManager::swappedOut(SequenceId id) const {
  const Sequence *s = find(id);
  return s && s->phase != Phase::Running;
}

uint32_t BlockManager::tableSize(SequenceId id, uint32_t group) const {
  return find(id) && group < groups() ? table(id.slot, group).size : 0;
}

PageId BlockManager::pageAt(SequenceId id, uint32_t group, uint32_t index) const {
  const Sequence *s = find(id);
  if (!s || s->phase != Phase::Running || group >= groups() || !holdsPage(id.slot, group, index))
    return kNoPage;
  return pages->layout().pageOf(group, frames(id.slot, group)[index]);
}

Demand BlockManager::ownPages(SequenceId id) const {
  Demand own;
  if (const Sequence *s = find(id); s && s->phase == Phase::Running)
    forEachPage(id.slot,
                [&](uint32_t g, uint32_t, Frame f) { own.take[g] += pages->refs(f) == 1; });
  return own;
}

bool BlockManager::popEvent(CacheEvent &event) { return prefix->events().pop(event); }

uint64_t BlockManager::lostEvents() { return prefix->events().lost(); }

Counters BlockManager::counters() const {
  Counters result = count;
  result.allocated = pages->taken();
  result.evicted = pages->evicted();
  result.evictedAfterHit = pages->evictedAfterHit();
  return result;
}

} // namespace llmopt::runtime::kv

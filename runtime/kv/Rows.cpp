// Slots for the rows of a step: growing the tables, and the copy before the first
// write into a page that others hold too.
#include "runtime/kv/BlockManager.h"
#include "runtime/kv/Mutants.h"

#include <algorithm>

namespace llmopt::runtime::kv {

Reply BlockManager::reserve(SequenceId id, uint32_t tokens) {
  if (!open)
    return Reply::WrongStep;
  Sequence *s = find(id);
  if (!s)
    return Reply::UnknownSequence;
  if (s->phase != Phase::Running)
    return Reply::SwappedOut;
  if (s->transfer != kNoSlot)
    return Reply::InFlight;
  if (row(id.slot, open) > 0)
    return Reply::WrongRow;
  if (tokens == 0)
    return Reply::InvalidArgument;
  if (tokens > config.maxTokens - s->bound)
    return Reply::TooLong;
  if (s->bound + tokens > s->capacity || s->sharedTail)
    if (Reply reply = grow(id.slot, tokens); reply != Reply::Ok)
      return reply;
  addRow(id.slot, tokens);
  return Reply::Ok;
}

void BlockManager::addRow(uint32_t slot, uint32_t tokens) {
  sequences[slot].bound += tokens;
  ++sequences[slot].rows;
  ++rowsOfStep[place(open)];
  row(slot, open) = tokens;
}

/// Pages for slots [bound, bound + tokens) beyond those that the tables have.
Demand BlockManager::growth(uint32_t slot, uint32_t tokens) const {
  Demand demand;
  for (uint32_t g = 0; g < groups(); ++g) {
    uint64_t wanted = config.groups[g].pagesFor(uint64_t{boundOf(sequences[slot])} + tokens);
    uint32_t size = table(slot, g).size;
    demand.take[g] = wanted > size ? static_cast<uint32_t>(wanted) - size : 0;
  }
  return demand;
}

/// Whether the slot's partly filled page of a group must not be written: others hold
/// it, or the prefix cache names it.
bool BlockManager::tailIsShared(uint32_t slot, uint32_t group) const {
  const Sequence &s = sequences[slot];
  const GroupSpec &spec = config.groups[group];
  if (!s.sharedTail || s.committed % spec.pageSize == 0 || mutant(Mutant::SharedWrite))
    return false;
  Frame f = frames(slot, group)[s.committed / spec.pageSize];
  return pages->refs(f) > 1 || pages->node(f) != kNoNode;
}

Reply BlockManager::grow(uint32_t slot, uint32_t tokens) {
  Sequence &s = sequences[slot];
  Demand demand = growth(slot, tokens);
  for (uint32_t g = 0; g < groups(); ++g)
    demand.take[g] += tailIsShared(slot, g);
  Demand all = demand;
  all += aside;
  if (!pages->feasible(all))
    return lackFor(heldAt(uint64_t{boundOf(s)} + tokens, tokens));
  pages->prepare(demand);
  copyTail(slot);
  appendPages(slot, boundOf(s) + tokens);
  return Reply::Ok;
}

/// Gives the slot copies of its own of partly filled pages, for it to write into.
void BlockManager::copyTail(uint32_t slot) {
  Sequence &s = sequences[slot];
  for (uint32_t g = 0; g < groups(); ++g) {
    if (!tailIsShared(slot, g))
      continue;
    uint32_t index = s.committed / config.groups[g].pageSize;
    Frame &entry = frames(slot, g)[index], from = entry;
    entry = pages->take(g);
    addCopy(slot, g, from, entry);
    pages->dropRef(from, mutant(Mutant::CopiedSourceFreed) ? 0 : open);
    table(slot, g).replaced = index;
    markDirty(slot);
  }
  s.sharedTail = false;
}

void BlockManager::addCopy(uint32_t slot, uint32_t group, Frame from, Frame to) {
  copies.push_back({slot, group, from, to});
}

/// Tables with a page for each of `tokens` tokens; the pages are there.
void BlockManager::appendPages(uint32_t slot, uint32_t tokens) {
  for (uint32_t g = 0; g < groups(); ++g) {
    Table &t = table(slot, g);
    uint32_t wanted = static_cast<uint32_t>(config.groups[g].pagesFor(tokens));
    Frame *entry = frames(slot, g);
    if (wanted <= t.size)
      continue;
    markDirty(slot);
    pages->take(g, {entry + t.size, wanted - t.size});
    t.size = wanted;
    if (g == 0)
      sequences[slot].lastPage = entry[wanted - 1];
  }
  updateCapacity(slot);
}

void BlockManager::updateCapacity(uint32_t slot) {
  uint64_t capacity = config.maxTokens;
  for (uint32_t g = 0; g < groups(); ++g)
    capacity = std::min(capacity, uint64_t{table(slot, g).size} * config.groups[g].pageSize);
  sequences[slot].capacity = static_cast<uint32_t>(capacity);
}

void BlockManager::markDirty(uint32_t slot) {
  if (sequences[slot].dirty)
    return;
  sequences[slot].dirty = true;
  dirtySlots.push_back(slot);
}

// ---- Steady sequences

uint32_t BlockManager::beginSteady(SequenceId id) {
  Sequence *s = find(id);
  uint32_t unfinished = closed - completed;
  // As many rows as unfinished steps, and as many tokens as rows: one of one token in each.
  if (!s || open || s->phase != Phase::Running || s->transfer != kNoSlot || s->sharedTail ||
      s->unsettled || !unfinished || s->rows != unfinished || s->bound - s->committed != unfinished)
    return 0;
  uint32_t end = std::min(s->capacity + mutant(Mutant::SteadyPastItsPages), s->plainEnd);
  if (s->bound > end)
    return 0;
  for (StepId step = completed + 1; step <= closed; ++step) {
    row(id.slot, step) = 0;
    --rowsOfStep[place(step)];
  }
  s->rows = 0;
  s->steady = true;
  s->steadyFrom = completed;
  return end;
}

void BlockManager::endSteady(SequenceId id, std::span<const Token> tokens) {
  Sequence &s = sequences[id.slot];
  assert(s.generation == id.generation);
  keepSteady(id.slot, tokens);
  s.rows = closed - completed;
  s.bound = s.committed + s.rows;
  s.steady = false;
  for (StepId step = completed + 1; step <= closed; ++step) {
    row(id.slot, step) = 1;
    ++rowsOfStep[place(step)];
  }
}

void BlockManager::keepSteady(uint32_t slot, std::span<const Token> tokens) {
  Sequence &s = sequences[slot];
  assert(s.steady && tokens.size() == completed - s.steadyFrom &&
         "a steady sequence yields a token a step");
  if (s.node != kNoNode && !mutant(Mutant::SteadyTokensLost))
    std::copy(tokens.begin(), tokens.end(),
              tails.data() + size_t{slot} * tailSize + s.committed - s.blocks * block);
  s.committed += static_cast<uint32_t>(tokens.size());
  s.steadyFrom = completed;
}

Reply BlockManager::reserveSteady(uint32_t slot) {
  Sequence &s = sequences[slot];
  if (!open || !s.steady)
    return open ? Reply::UnknownSequence : Reply::WrongStep;
  if (boundOf(s) == config.maxTokens)
    return Reply::TooLong;
  return boundOf(s) == s.capacity ? grow(slot, 1) : Reply::Ok;
}

bool BlockManager::reserveSteady(std::span<const uint32_t> slots) {
  if (!open || groups() > 1)
    return false;
  for (uint32_t slot : slots) {
    const Sequence &s = sequences[slot];
    if (!s.steady || boundOf(s) != s.capacity || s.capacity == config.maxTokens)
      return false;
  }
  Demand demand;
  demand.take[0] = static_cast<uint32_t>(slots.size());
  Demand all = demand;
  all += aside;
  if (!pages->feasible(all))
    return false;
  pages->prepare(demand);
  grown.resize(slots.size());
  pages->take(0, grown);
  for (size_t i = 0; i < slots.size(); ++i) {
    Table &t = table(slots[i], 0);
    frames(slots[i], 0)[t.size++] = sequences[slots[i]].lastPage = grown[i];
    updateCapacity(slots[i]);
    markDirty(slots[i]);
  }
  return true;
}

Demand BlockManager::demandOfSteady(uint32_t slot) const {
  return sequences[slot].steady ? growth(slot, 1) : Demand();
}

void BlockManager::commitSteady(uint32_t slot, std::span<const Token> tokens) {
  Sequence &s = sequences[slot];
  assert(s.steady && closed == completed + 1 && tokens.size() == closed - s.steadyFrom &&
         "a steady sequence yields a token a step");
  s.steadyFrom = closed;
  if (!commitBlock(slot, tokens))
    commitTokens(slot, tokens, 0);
}

// ---- Room

/// Pages that a sequence of `tokens` tokens needs while its last `queries` run.
Demand BlockManager::heldAt(uint64_t tokens, uint64_t queries) const {
  Demand held;
  for (uint32_t g = 0; g < groups(); ++g)
    held.take[g] = static_cast<uint32_t>(config.groups[g].pagesHeld(tokens, queries));
  return held;
}

bool BlockManager::fitsAlone(const Demand &demand) const {
  const PoolLayout &layout = pages->layout();
  uint64_t wanted = 0;
  for (uint32_t g = 0; g < groups(); ++g)
    wanted += (uint64_t{demand.take[g]} + layout.pagesPerSlab[g] - 1) / layout.pagesPerSlab[g];
  return wanted <= layout.slabs;
}

/// `needed`: all pages that the sequence would hold if it were alone.
Reply BlockManager::lackFor(const Demand &needed) {
  if (!fitsAlone(needed)) {
    ++count.permanentLacks;
    return Reply::PermanentLack;
  }
  ++count.temporaryLacks;
  return Reply::TemporaryLack;
}

Reply BlockManager::fits(uint64_t tokens, uint32_t rowTokens) const {
  if (tokens > config.maxTokens)
    return Reply::TooLong;
  // The worst length on the way: windows need most where the row lies across the most
  // pages; one more than the period of page and chunk shows all places.
  uint64_t period = 1;
  for (const GroupSpec &group : config.groups)
    period = std::max<uint64_t>({period, group.pageSize, group.chunk});
  Demand worst;
  for (uint64_t at = tokens - std::min(tokens, period); at <= tokens; ++at)
    for (uint32_t g = 0; g < groups(); ++g)
      worst.take[g] =
          std::max(worst.take[g], static_cast<uint32_t>(config.groups[g].pagesHeld(at, rowTokens)));
  return fitsAlone(worst) ? Reply::Ok : Reply::PermanentLack;
}

Demand BlockManager::demandOf(SequenceId id, uint32_t tokens) const {
  const Sequence *s = find(id);
  if (!s)
    return {};
  Demand demand = growth(id.slot, tokens);
  for (uint32_t g = 0; g < groups(); ++g)
    demand.take[g] += s->phase == Phase::Running && tailIsShared(id.slot, g);
  return demand;
}

bool BlockManager::holds(const Demand &demand) const {
  Demand all = demand;
  all += aside;
  return pages->feasible(all);
}

void BlockManager::setAside(const Demand &demand) { aside = demand; }

} // namespace llmopt::runtime::kv

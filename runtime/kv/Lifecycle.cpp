// Forks, ends, and the loss of everything.
#include "runtime/kv/BlockManager.h"
#include "runtime/kv/Mutants.h"

#include <algorithm>

namespace llmopt::runtime::kv {

Reply BlockManager::fork(SequenceId parentId, SequenceId &child) {
  Sequence *parent = find(parentId);
  if (!parent)
    return Reply::UnknownSequence;
  if (parent->phase != Phase::Running)
    return Reply::SwappedOut;
  if (parent->rows > 0 || parent->unsettled > 0 || parent->transfer != kNoSlot ||
      contentIsComing(parentId.slot))
    return Reply::InFlight;
  if (freeSlots.empty())
    return Reply::NoTableSlot;
  uint32_t slot = newSlot();
  Sequence &s = sequences[slot];
  s.committed = s.bound = parent->committed;
  s.blocks = parent->blocks;
  s.node = parent->node;
  s.duplicates = parent->duplicates;
  s.sharedTail = parent->sharedTail = true;
  if ((s.media = parent->media))
    media[slot] = media[parentId.slot];
  if (s.node != kNoNode) {
    prefix->hold(s.node);
    std::copy_n(tails.data() + size_t{parentId.slot} * tailSize, s.committed - s.blocks * block,
                tails.data() + size_t{slot} * tailSize);
  }
  for (uint32_t g = 0; g < groups(); ++g) {
    const Table &from = table(parentId.slot, g);
    Table &t = table(slot, g);
    t.size = static_cast<uint32_t>(config.groups[g].pagesFor(s.committed));
    t.first = std::min(from.first, t.size);
    for (uint32_t page = 0; page < t.size; ++page)
      if (holdsPage(slot, g, page)) {
        frames(slot, g)[page] = frames(parentId.slot, g)[page];
        pages->addRef(frames(slot, g)[page]);
      }
  }
  updateCapacity(slot);
  updateRelease(slot);
  child = {slot, s.generation};
  ++count.forks;
  return Reply::Ok;
}

Reply BlockManager::finish(SequenceId id) {
  Sequence *s = find(id);
  if (!s)
    return Reply::UnknownSequence;
  takeBackRow(id.slot);
  StepId last = lastStepOf(id.slot);
  if (s->transfer != kNoSlot)
    abandonTransfer(s->transfer);
  if (s->phase == Phase::Running)
    releasePages(id.slot, last);
  else if (s->phase == Phase::Swapped)
    dropHostPages(id.slot);
  stopInserting(id.slot);
  freeSlot(id.slot, last);
  return Reply::Ok;
}

void BlockManager::releasePages(uint32_t slot, StepId last) {
  std::erase_if(copies, [slot](const Copy &copy) { return copy.slot == slot; });
  adoptDuplicates(slot);
  bool leak = mutant(Mutant::LeakedReference), twice = mutant(Mutant::DoubleFree);
  for (uint32_t g = 0; g < groups(); ++g) {
    const Frame *entry = frames(slot, g);
    const Table &t = table(slot, g);
    uint32_t first = std::min(t.first, t.size), sinkEnd = std::min(sinkPages(g), first);
    auto release = [&](uint32_t begin, uint32_t end) { // from tail to head
      if (std::exchange(leak, false) && begin < end)
        --end;
      pages->dropRefs({entry + begin, entry + end}, last);
      for (uint32_t page = begin; twice && page < end; ++page)
        if (pages->refs(entry[page]) > 0) {
          pages->dropRef(entry[page], last);
          twice = false;
        }
    };
    release(std::max(first, sinkEnd), t.size);
    release(0, sinkEnd);
  }
}

/// The slot's device tables may be read until `last` has completed.
void BlockManager::freeSlot(uint32_t slot, StepId last) {
  Sequence &s = sequences[slot];
  for (StepId step = completed + 1; s.rows > 0 && step <= closed; ++step)
    if (uint32_t &tokens = row(slot, step); tokens > 0) {
      --rowsOfStep[place(step)];
      --s.rows;
      tokens = 0;
    }
  s.phase = Phase::None;
  ++s.generation;
  if (s.media)
    media[slot].clear();
  s.media = false;
  if (last > completed)
    slotsAfterStep[place(last)].push_back(slot);
  else
    freeSlots.push_back(slot);
}

void BlockManager::resetCache() {
  if (mutant(Mutant::ResetKeeps))
    return;
  for (uint32_t slot = 0; slot < sequences.size(); ++slot)
    if (sequences[slot].phase != Phase::None)
      stopInserting(slot);
  for (CopyJob &job : jobs)
    for (CopyJob::Item &item : job.items)
      item.node = kNoNode;
  prefix->reset();
}

void BlockManager::dropAll() {
  resetCache();
  std::vector<uint32_t> generations;
  for (const Sequence &s : sequences)
    generations.push_back(s.generation + (s.phase != Phase::None));
  for (Transfer &transfer : transfers) {
    uint32_t generation = transfer.generation + 1;
    transfer = {};
    transfer.generation = generation;
  }
  // The cache stays the same object: what prompts remember of it must stay outdated.
  *pages = Pool(pages->layout(), ring);
  if (hostPages) {
    *hostPages = Pool(hostPages->layout(), 1);
    hostPages->setHost();
  }
  connectPools();
  clearSequences();
  for (uint32_t slot = 0; slot < sequences.size(); ++slot)
    sequences[slot].generation = generations[slot];
  open = 0;
  completed = closed;
  pages->completeStep(completed);
}

} // namespace llmopt::runtime::kv

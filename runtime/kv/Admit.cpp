// Admission: look-up, pinning and the first slots in one, all or nothing.
#include "runtime/kv/BlockManager.h"
#include "runtime/kv/Mutants.h"

#include <algorithm>

namespace llmopt::runtime::kv {

namespace {

Admission refused(Reply reply) {
  Admission admission;
  admission.reply = reply;
  return admission;
}

} // namespace

/// Calls visit(group, page, partial) for each page that the hit brings, in the order
/// of the tables; `partial` is the page that is used up to its middle.
template <typename Visit>
void BlockManager::forEachHitPage(const PrefixCache::Hit &hit, Visit visit) const {
  for (uint32_t g = 0; g < groups() && hit.tokens > 0; ++g) {
    const GroupSpec &group = config.groups[g];
    uint32_t whole = hit.tokens / group.pageSize;
    uint32_t first = static_cast<uint32_t>(group.firstKey(hit.tokens) / group.pageSize);
    for (uint32_t page = 0; page < std::min({sinkPages(g), first, whole}); ++page)
      visit(g, page, false);
    for (uint32_t page = first; page < whole; ++page)
      visit(g, page, false);
    if (hit.tokens % group.pageSize)
      visit(g, whole, true);
  }
}

/// Loads from host memory where that is cheaper than to compute again.
PrefixCache::Hit BlockManager::lookup(Prompt &prompt, bool partial) {
  PrefixCache::Hit hit = prefix->lookup(prompt, {.host = true, .partial = partial});
  if (!hostPages || hit.tokens == 0 || hostPages->count(PageState::Cached) == 0)
    return hit;
  uint64_t bytes = 0;
  forEachHitPage(hit, [&](uint32_t g, uint32_t page, bool) {
    if (prefix->pageOf(prompt, hit, g, page).onHost())
      bytes += config.groups[g].pageBytes();
  });
  if (bytes == 0)
    return hit;
  PrefixCache::Hit near = prefix->lookup(prompt, {.host = false, .partial = partial});
  if (config.costs.copy(bytes) < config.costs.recompute(hit.tokens - near.tokens, near.tokens))
    return hit;
  return near;
}

Match BlockManager::match(Prompt &prompt) {
  PrefixCache::Hit hit = lookup(prompt, true);
  return describeHit(prompt, hit);
}

Match BlockManager::describeHit(const Prompt &prompt, const PrefixCache::Hit &hit) const {
  Match match{.tokens = hit.tokens, .blocksFound = hit.chain};
  if (hit.tail != kNoNode)
    match.partialTokens = hit.tokens - hit.blocks * block;
  if (hostPages)
    forEachHitPage(hit, [&](uint32_t g, uint32_t page, bool) {
      match.hostPages += prefix->pageOf(prompt, hit, g, page).onHost();
    });
  return match;
}

/// Pages to take for the hit's partial page and for `tokens` tokens behind it. Pages
/// to load come on top.
Demand BlockManager::newPagesFor(const PrefixCache::Hit &hit, uint32_t tokens) const {
  Demand demand;
  for (uint32_t g = 0; g < groups(); ++g) {
    const GroupSpec &group = config.groups[g];
    demand.take[g] = static_cast<uint32_t>(group.pagesFor(uint64_t{hit.tokens} + tokens)) -
                     hit.tokens / group.pageSize;
  }
  return demand;
}

/// Holds the pages of the hit, so that no page taken from now on is one of them.
void BlockManager::pinHit(const Prompt &prompt, const PrefixCache::Hit &hit, Demand &demand) {
  pins.clear();
  tailPins.clear();
  loads.clear();
  forEachHitPage(hit, [&](uint32_t g, uint32_t page, bool partial) {
    PageRef ref = prefix->pageOf(prompt, hit, g, page);
    if (mutant(Mutant::WindowHitBeforeCap) && ref.empty())
      ref = PageRef::device(0);
    if (ref.onHost()) {
      uint32_t index = prefix->blockOf(g, page);
      loads.push_back({g, page, ref.frame(),
                       index < hit.blocks ? prefix->nodeOf(prompt, index) : hit.tail, partial});
      demand.take[g] += !partial; // a partial page has been counted as new
      return;
    }
    pins.push_back({ref.frame(), pages->tryRef(ref.frame())});
    if (partial)
      tailPins.push_back(ref.frame());
  });
}

void BlockManager::undoPins() {
  if (mutant(Mutant::RefusedPin))
    return;
  for (size_t i = pins.size(); i-- > 0;)
    pages->undoRef(pins[i].frame, pins[i].before);
}

/// A quick no to one who was refused before: since then at most `revived` of the
/// pages that he would have to hold besides can have been taken by others.
bool BlockManager::surelyLacks(const Prompt &prompt, const PrefixCache::Hit &hit,
                               Demand demand) const {
  demand += aside;
  if (!pages->feasible(demand))
    return true;
  if (!pages->layout().equalPages || prompt.refusedTokens != hit.tokens)
    return false;
  uint64_t others = pages->revived() - prompt.revivedThen;
  demand.take[0] +=
      prompt.cachedPins > others ? static_cast<uint32_t>(prompt.cachedPins - others) : 0;
  return !pages->feasible(demand);
}

/// Whether there is room even if nobody holds any page of the hit: then none has to be pinned
/// before it is known. Of one group with a page a block, which is what most models have.
bool BlockManager::surelyFits(const PrefixCache::Hit &hit, Demand demand) const {
  if (prefix->slotsPerNode() != 1 || !config.groups[0].keepsAll() || hostPages ||
      mutant(Mutant::UnpinnedHit))
    return false;
  demand += aside;
  demand.take[0] += hit.blocks + 1;
  return pages->feasible(demand);
}

/// Pins and takes the pages of a hit, where it surely fits.
void BlockManager::takeWholeHit(uint32_t slot, const Prompt &prompt, const PrefixCache::Hit &hit) {
  loads.clear();
  tailPins.clear();
  std::span<Frame> whole(frames(slot, 0), hit.blocks);
  prefix->framesOf(prompt, whole);
  pages->addHits(whole);
  if (hit.tail != kNoNode) {
    tailPins.push_back(prefix->pageAt(hit.tail, 0).frame());
    pages->addHit(tailPins.back());
  }
  table(slot, 0).size = hit.blocks;
}

/// Pins the hit if all pages can be had. Otherwise nothing has changed.
bool BlockManager::tryPin(Prompt &prompt, const PrefixCache::Hit &hit, Demand &demand) {
  if (surelyLacks(prompt, hit, demand))
    return false;
  pinHit(prompt, hit, demand);
  Demand all = demand;
  all += aside;
  if (pages->feasible(all))
    return true;
  undoPins();
  prompt.refusedTokens = hit.tokens;
  prompt.revivedThen = pages->revived();
  prompt.cachedPins = 0;
  for (const Pin &pin : pins)
    prompt.cachedPins += pin.before == PageState::Cached;
  return false;
}

/// A sequence with the pages of a hit and for `newTokens` tokens behind it, of the first `end`
/// of the prompt; all or nothing.
Admission BlockManager::place(Prompt &prompt, uint32_t newTokens, uint32_t end, bool partial) {
  Admission result;
  if (prompt.size() > config.maxTokens)
    return refused(Reply::TooLong);
  if (freeSlots.empty())
    return refused(Reply::NoTableSlot);
  PrefixCache::Hit hit = lookup(prompt, partial);
  auto tokensBehind = [&] { return std::min(newTokens, end - std::min(end, hit.tokens)); };
  Demand demand = newPagesFor(hit, tokensBehind());
  bool surely = surelyFits(hit, demand);
  bool pinned = surely || tryPin(prompt, hit, demand);
  if (!pinned && hit.tail != kNoNode) {
    // The source of a copy is one page more than the request would need alone.
    hit = lookup(prompt, false);
    demand = newPagesFor(hit, tokensBehind());
    pinned = tryPin(prompt, hit, demand);
  }
  if (!pinned)
    return refused(lackFor(heldAt(uint64_t{hit.tokens} + tokensBehind(), tokensBehind())));

  result.hit = describeHit(prompt, hit);
  result.newTokens = tokensBehind();
  uint32_t slot = newSlot();
  result.sequence = {slot, sequences[slot].generation};
  startInserting(slot, prompt, hit);
  pages->prepare(demand);
  if (surely)
    takeWholeHit(slot, prompt, hit);
  else
    takeHit(slot, hit);
  loadPages(slot);
  copyHitTail(slot, hit);
  appendPages(slot, hit.tokens + result.newTokens);
  updateRelease(slot);
  ++count.admitted;
  count.queriedTokens += prompt.size();
  count.hitTokens += hit.tokens;
  count.hostHitPages += result.hit.hostPages;
  return result;
}

Admission BlockManager::admit(Prompt &prompt, uint32_t newTokens) {
  if (!open)
    return refused(Reply::WrongStep);
  if (prompt.size() == 0 || newTokens == 0)
    return refused(Reply::InvalidArgument);
  Admission result = place(prompt, newTokens, prompt.size(), /*partial=*/true);
  if (result.reply != Reply::Ok)
    return result;
  uint32_t slot = result.sequence.slot;
  addRow(slot, result.newTokens);
  if (mutant(Mutant::EarlyHash) && sequences[slot].node != kNoNode) {
    uint32_t had = sequences[slot].committed;
    sequences[slot].committed += result.newTokens;
    insertTokens(slot, had, prompt.ids.subspan(had, result.newTokens));
    sequences[slot].committed -= result.newTokens;
  }
  return result;
}

Admission BlockManager::admitTransfer(Prompt &prompt, uint32_t end, TransferId &transferId) {
  if (end == 0 || end > prompt.size() || match(prompt).tokens >= end)
    return refused(Reply::InvalidArgument);
  Transfer *transfer = nullptr;
  if (Reply reply = newTransfer({}, transferId, transfer); reply != Reply::Ok)
    return refused(reply);
  // Whole pages only: the peer writes behind them without waiting for a copy.
  Admission result = place(prompt, end, end, /*partial=*/false);
  if (result.reply != Reply::Ok) {
    closeTransfer(*transfer);
    return result;
  }
  Sequence &s = sequences[result.sequence.slot];
  s.bound += result.newTokens;
  s.transfer = transferId.slot;
  transfer->sequence = result.sequence;
  transfer->tokens = result.newTokens;
  return result;
}

void BlockManager::takeHit(uint32_t slot, const PrefixCache::Hit &hit) {
  for (const Pin &pin : pins) {
    pages->confirmRef(pin.frame, pin.before);
    pages->markHit(pin.frame);
  }
  // The tables in the order in which the pages were pinned; loads follow.
  size_t nextPin = 0, nextLoad = 0;
  forEachHitPage(hit, [&](uint32_t g, uint32_t page, bool partial) {
    if (nextLoad < loads.size() && loads[nextLoad].group == g && loads[nextLoad].page == page) {
      ++nextLoad;
      return;
    }
    Frame f = pins[nextPin++].frame;
    if (!partial)
      frames(slot, g)[page] = f;
  });
  for (uint32_t g = 0; g < groups(); ++g) {
    const GroupSpec &group = config.groups[g];
    Table &t = table(slot, g);
    t.size = hit.tokens / group.pageSize;
    t.first = std::min(t.size, static_cast<uint32_t>(group.firstKey(hit.tokens) / group.pageSize));
  }
  if (mutant(Mutant::UnpinnedHit))
    for (size_t i = 0; i + tailPins.size() < pins.size(); ++i)
      pages->dropRef(pins[i].frame, 0);
}

/// A new page with the content of the hit's partial one, for the first rows to go on.
void BlockManager::copyHitTail(uint32_t slot, const PrefixCache::Hit &hit) {
  size_t next = 0;
  for (uint32_t g = 0; g < groups(); ++g) {
    Table &t = table(slot, g);
    uint32_t pageSize = config.groups[g].pageSize;
    if (hit.tokens % pageSize == 0 || t.size > hit.tokens / pageSize)
      continue; // there is none, or it is being loaded
    Frame from = tailPins[next++], to = pages->take(g);
    frames(slot, g)[t.size++] = to;
    addCopy(slot, g, from, to);
    StepId until = mutant(Mutant::CopiedSourceFreed) ? 0 : open;
    pages->touch(from, until);
    pages->dropRef(from, until);
  }
}

void BlockManager::startInserting(uint32_t slot, Prompt &prompt, const PrefixCache::Hit &hit) {
  Sequence &s = sequences[slot];
  s.committed = s.bound = hit.tokens;
  s.blocks = hit.blocks;
  s.node = kNoNode;
  if ((s.media = !prompt.media.empty()))
    media[slot] = prompt.media;
  if (!prefix->enabled() || prompt.neverInsert)
    return;
  s.node = hit.blocks ? prefix->nodeOf(prompt, hit.blocks - 1) : prefix->rootOf(prompt);
  if (s.node == kNoNode)
    return;
  prefix->hold(s.node);
  std::copy(prompt.ids.begin() + hit.blocks * block, prompt.ids.begin() + hit.tokens,
            tails.data() + size_t{slot} * tailSize);
}

uint32_t BlockManager::newSlot() {
  uint32_t slot = freeSlots.back();
  freeSlots.pop_back();
  uint32_t generation = sequences[slot].generation;
  bool dirty = sequences[slot].dirty;
  sequences[slot] = {
      .generation = generation, .phase = Phase::Running, .dirty = dirty, .fresh = true};
  for (uint32_t g = 0; g < groups(); ++g)
    table(slot, g) = {};
  markDirty(slot);
  return slot;
}

Demand BlockManager::mostDemandOf(Prompt &prompt, uint32_t newTokens) {
  if (prefix->slotsPerNode() != 1 || hostPages)
    return demandOf(prompt, newTokens);
  PrefixCache::Hit hit = lookup(prompt, true);
  Demand demand = newPagesFor(hit, std::min(newTokens, prompt.size() - hit.tokens));
  demand.take[0] += hit.blocks + 1;
  return demand;
}

Demand BlockManager::demandOf(Prompt &prompt, uint32_t newTokens) {
  PrefixCache::Hit hit = lookup(prompt, true);
  Demand demand = newPagesFor(hit, std::min(newTokens, prompt.size() - hit.tokens));
  if (prefix->slotsPerNode() == 1 && config.groups[0].keepsAll() && !hostPages) {
    auto cached = [&](NodeId node) {
      return pages->state(prefix->pageAt(node, 0).frame()) == PageState::Cached;
    };
    for (uint32_t page = 0; page < hit.blocks; ++page)
      demand.take[0] += cached(prefix->nodeOf(prompt, page));
    if (hit.tail != kNoNode)
      demand.take[0] += cached(hit.tail);
    return demand;
  }
  forEachHitPage(hit, [&](uint32_t g, uint32_t page, bool partial) {
    PageRef ref = prefix->pageOf(prompt, hit, g, page);
    if (ref.onHost())
      demand.take[g] += !partial;
    else
      demand.take[g] += pages->state(ref.frame()) == PageState::Cached;
  });
  return demand;
}

} // namespace llmopt::runtime::kv

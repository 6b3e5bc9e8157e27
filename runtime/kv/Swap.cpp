// Pages in host memory: whole sequences that make room for others, and cached pages
// near the end of the eviction order. All copies are jobs under an event of the mover;
// a job owns its frames until the event is done.
#include "runtime/kv/BlockManager.h"
#include "runtime/kv/Mutants.h"

#include <algorithm>

namespace llmopt::runtime::kv {

// ---- Jobs

CopyJob &BlockManager::newJob(CopyJob::Kind kind, SequenceId sequence) {
  auto found = std::ranges::find_if(jobs, [](const CopyJob &job) { return !job.active; });
  CopyJob &job = found != jobs.end() ? *found : jobs.emplace_back();
  job.active = true;
  job.kind = kind;
  job.sequence = sequence;
  job.items.clear();
  return job;
}

/// Adds a pair of frames that the job owns from now on.
void BlockManager::addItem(CopyJob &job, const CopyJob::Item &item) {
  CopyJob::Item added = item;
  if (pages->state(item.device) == PageState::Used) {
    pages->setState(item.device, PageState::Swapping);
    added.marked = true;
  }
  if (item.node != kNoNode)
    prefix->hold(item.node);
  job.items.push_back(added);
}

void BlockManager::startJob(CopyJob &job) {
  std::vector<PageMove> moves;
  moves.reserve(job.items.size());
  for (const CopyJob::Item &item : job.items)
    moves.push_back({item.group, pages->layout().pageOf(item.group, item.device),
                     hostPages->layout().pageOf(item.group, item.host)});
  bool out = job.kind == CopyJob::Kind::SwapOut || job.kind == CopyJob::Kind::Demote;
  job.event = out ? mover->copyOut(moves, closed) : mover->copyIn(moves, closed);
  if (!out)
    waits.push_back(job.event);
  if (out && mutant(Mutant::SwapUnordered))
    finishJob(job);
}

void BlockManager::poll() {
  for (CopyJob &job : jobs)
    if (job.active && mover->done(job.event))
      finishJob(job);
}

void BlockManager::finishJob(CopyJob &job) {
  Sequence *s = find(job.sequence);
  for (const CopyJob::Item &item : job.items) {
    if (item.marked)
      pages->setState(item.device, PageState::Used);
    bool keepsHost = job.kind == CopyJob::Kind::SwapOut && s;
    if (item.node != kNoNode)
      exchangeTier(job.kind, item);
    pages->dropRef(item.device, 0);
    if (!keepsHost)
      hostPages->dropRef(item.host, 0);
    if (item.node != kNoNode)
      prefix->drop(item.node);
  }
  if (job.kind == CopyJob::Kind::SwapOut && s)
    s->phase = Phase::Swapped;
  job.active = false;
  job.items.clear();
}

/// The node names the page where it now is, unless it changed in the meantime.
void BlockManager::exchangeTier(CopyJob::Kind kind, const CopyJob::Item &item) {
  PageRef named = prefix->pageAt(item.node, item.nodeSlot);
  if (kind == CopyJob::Kind::Demote && named == PageRef::device(item.device) &&
      pages->refs(item.device) == 1)
    prefix->exchange(item.node, item.nodeSlot, PageRef::host(item.host));
  if (kind == CopyJob::Kind::Load && named == PageRef::host(item.host) &&
      pages->node(item.device) == kNoNode && !item.partial)
    prefix->exchange(item.node, item.nodeSlot, PageRef::device(item.device));
}

// ---- Whole sequences

/// Whether a copy that has not run yet brings some of the sequence's content.
bool BlockManager::contentIsComing(uint32_t slot) const {
  SequenceId id{slot, sequences[slot].generation};
  return std::ranges::any_of(copies, [&](const Copy &copy) { return copy.slot == slot; }) ||
         std::ranges::any_of(jobs,
                             [&](const CopyJob &job) { return job.active && job.sequence == id; });
}

Reply BlockManager::swapOut(SequenceId id) {
  Sequence *s = find(id);
  if (!s)
    return Reply::UnknownSequence;
  if (s->phase != Phase::Running)
    return Reply::SwappedOut;
  uint32_t openRow = open && row(id.slot, open) > 0 ? 1 : 0;
  if (s->rows > openRow || s->unsettled > 0 || s->transfer != kNoSlot || contentIsComing(id.slot))
    return Reply::InFlight;
  if (!hostPages)
    return Reply::NoHostRoom;
  Demand demand;
  forEachPage(id.slot, [&](uint32_t g, uint32_t page, Frame) {
    demand.take[g] += page < config.groups[g].pagesFor(s->committed);
  });
  if (!hostPages->feasible(demand))
    return Reply::NoHostRoom;
  takeBackRow(id.slot);
  dropEmptyPages(id.slot);
  hostPages->prepare(demand);
  CopyJob &job = newJob(CopyJob::Kind::SwapOut, id);
  forEachPage(id.slot, [&](uint32_t g, uint32_t page, Frame f) {
    Frame to = hostPages->take(g);
    addItem(job, {.device = f, .host = to, .group = static_cast<uint16_t>(g)});
    frames(id.slot, g)[page] = to;
  });
  count.swappedOutPages += job.items.size();
  s->phase = Phase::Leaving;
  s->sharedTail = false;
  startJob(job);
  return Reply::Ok;
}

/// Pages behind the committed tokens: nothing of theirs is worth a copy.
void BlockManager::dropEmptyPages(uint32_t slot) {
  for (uint32_t g = 0; g < groups(); ++g) {
    Table &t = table(slot, g);
    uint32_t wanted = static_cast<uint32_t>(config.groups[g].pagesFor(sequences[slot].committed));
    while (t.size > wanted)
      pages->dropRef(frames(slot, g)[--t.size], 0);
    t.first = std::min(t.first, t.size);
  }
  updateCapacity(slot);
}

/// A page that is still in the cache, in place of the copy in host memory.
Frame BlockManager::cachedAt(uint32_t group, uint32_t page, NodeId node) const {
  if (node == kNoNode)
    return kNoFrame;
  PageRef ref = prefix->pageAt(node, prefix->slotOf(group, page));
  return ref.onDevice() && !ref.empty() ? ref.frame() : kNoFrame;
}

Reply BlockManager::swapIn(SequenceId id) {
  Sequence *s = find(id);
  if (!s)
    return Reply::UnknownSequence;
  if (s->phase == Phase::Running)
    return Reply::NotSwappedOut;
  if (s->phase == Phase::Leaving)
    return Reply::TemporaryLack;
  // What the cache still has is held first, so that taking pages does not evict it.
  Demand demand;
  pins.clear();
  forEachSwappedPage(id.slot, [&](uint32_t g, uint32_t page, NodeId node) {
    Frame f = cachedAt(g, page, node);
    if (f == kNoFrame)
      ++demand.take[g];
    else
      pins.push_back({f, pages->tryRef(f)});
  });
  Demand all = demand;
  all += aside;
  if (!pages->feasible(all)) {
    undoPins();
    return lackFor(heldAt(s->committed, 1));
  }
  for (const Pin &pin : pins)
    pages->confirmRef(pin.frame, pin.before);
  pages->prepare(demand);
  CopyJob &job = newJob(CopyJob::Kind::SwapIn, id);
  size_t nextPin = 0;
  forEachSwappedPage(id.slot, [&](uint32_t g, uint32_t page, NodeId node) {
    Frame &entry = frames(id.slot, g)[page], host = entry;
    if (nextPin < pins.size() && cachedAt(g, page, node) == pins[nextPin].frame) {
      entry = pins[nextPin++].frame;
      hostPages->dropRef(host, 0);
      return;
    }
    entry = pages->take(g);
    pages->addRef(entry);
    addItem(job, {.device = entry, .host = host, .group = static_cast<uint16_t>(g)});
  });
  count.swappedInPages += job.items.size();
  s->phase = Phase::Running;
  s->fresh = s->duplicates = true;
  markDirty(id.slot);
  if (job.items.empty())
    job.active = false;
  else
    startJob(job);
  return Reply::Ok;
}

/// Calls visit(group, page, node or kNoNode) from the tail to the head; the node is
/// that of a block that went through the cache.
template <typename Visit> void BlockManager::forEachSwappedPage(uint32_t slot, Visit visit) const {
  const Sequence &s = sequences[slot];
  for (uint32_t g = 0; g < groups(); ++g) {
    NodeId node = s.node;
    uint32_t index = s.blocks;
    forEachPageOf(slot, g, [&](uint32_t page, Frame) {
      uint32_t own = prefix->blockOf(g, page);
      if (s.node == kNoNode || own >= s.blocks) {
        visit(g, page, kNoNode);
        return;
      }
      for (; index > own + 1; --index)
        node = prefix->parentOf(node);
      visit(g, page, node);
    });
  }
}

void BlockManager::dropHostPages(uint32_t slot) {
  forEachPage(slot, [&](uint32_t, uint32_t, Frame f) { hostPages->dropRef(f, 0); });
}

// ---- The cache's second level

/// Pages of a hit that lie in host memory get device pages and a copy job.
void BlockManager::loadPages(uint32_t slot) {
  if (loads.empty())
    return;
  CopyJob &job = newJob(CopyJob::Kind::Load, {slot, sequences[slot].generation});
  for (const Load &load : loads) {
    hostPages->addRef(load.host);
    Frame f = pages->take(load.group);
    pages->addRef(f); // the job's
    addItem(job, {.device = f,
                  .host = load.host,
                  .node = load.node,
                  .group = static_cast<uint16_t>(load.group),
                  .nodeSlot = static_cast<uint8_t>(prefix->slotOf(load.group, load.page)),
                  .partial = load.partial});
    frames(slot, load.group)[load.page] = f;
    if (load.partial)
      ++table(slot, load.group).size;
  }
  startJob(job);
}

uint32_t BlockManager::demote(uint32_t most) {
  if (!hostPages)
    return 0;
  // What is being copied is free soon: without it as much would be copied again in each step that
  // the link needs.
  uint32_t lead = config.leadGroup();
  uint32_t have = pages->freePages(lead) + pages->count(lead, PageState::Swapping);
  if (have >= config.demoteBelow)
    return 0;
  most = std::min(most, config.demoteBelow - have);
  std::vector<Frame> chosen;
  for (bool hit : {false, true})
    for (uint32_t g = 0; g < groups(); ++g) {
      const GroupSpec &group = config.groups[g];
      if (config.costs.copy(group.pageBytes()) >= config.costs.recompute(group.pageSize, 0))
        continue;
      pages->forEachCached(g, hit, [&](Frame f) {
        if (chosen.size() < most)
          chosen.push_back(f);
        return chosen.size() < most;
      });
    }
  CopyJob &job = newJob(CopyJob::Kind::Demote, {});
  for (Frame f : chosen) {
    if (pages->state(f) != PageState::Cached)
      continue; // it went with an older page of its node
    Demand one;
    one.take[pages->group(f)] = 1;
    if (!hostPages->feasible(one))
      break;
    pages->addRef(f);
    uint32_t group = pages->group(f);
    hostPages->prepare(one);
    Frame host = hostPages->take(group);
    addItem(job, {.device = f,
                  .host = host,
                  .node = pages->node(f),
                  .group = static_cast<uint16_t>(group),
                  .nodeSlot = static_cast<uint8_t>(pages->nodeSlot(f))});
  }
  uint32_t started = static_cast<uint32_t>(job.items.size());
  count.demotedPages += started;
  if (started == 0)
    job.active = false;
  else
    startJob(job);
  return started;
}

} // namespace llmopt::runtime::kv

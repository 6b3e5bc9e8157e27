// The invariants. Each is checked against the tables, jobs and transfers themselves,
// not against the counters that it is about.
#include "runtime/kv/BlockManager.h"

#include <algorithm>

namespace llmopt::runtime::kv {

namespace {

template <typename... Args> Status broken(fmt::format_string<Args...> format, Args &&...args) {
  return makeStatus(StatusCode::Internal, format, std::forward<Args>(args)...);
}

/// References of every frame against those that its owners count.
Status compareOwners(const Pool &pool, std::span<const uint32_t> owners, std::string_view where) {
  for (Frame f = 0; f < pool.layout().frames(); ++f)
    if (pool.refs(f) != owners[f])
      return broken("{} frame {} ({}) has {} references and {} owners", where, f,
                    toString(pool.state(f)), pool.refs(f), owners[f]);
  return {};
}

} // namespace

Status BlockManager::checkOwners() const {
  std::vector<uint32_t> device(pages->layout().frames()), host;
  if (hostPages)
    host.resize(hostPages->layout().frames());
  for (uint32_t slot = 0; slot < sequences.size(); ++slot) {
    Phase phase = sequences[slot].phase;
    if (phase == Phase::Running)
      forEachPage(slot, [&](uint32_t, uint32_t, Frame f) { ++device[f]; });
    else if (phase == Phase::Swapped)
      forEachPage(slot, [&](uint32_t, uint32_t, Frame f) { ++host[f]; });
  }
  for (const CopyJob &job : jobs)
    for (const CopyJob::Item &item : job.items) {
      ++device[item.device];
      ++host[item.host];
    }
  for (const Transfer &transfer : transfers)
    for (const Transfer::Item &item : transfer.items)
      ++device[item.frame];
  LLMOPT_RETURN_IF_ERROR(compareOwners(*pages, device, "device"));
  return hostPages ? compareOwners(*hostPages, host, "host") : Status();
}

/// Swapping and Pinned are what exactly the jobs and transfers marked.
Status BlockManager::checkStates() const {
  std::vector<PageState> wanted(pages->layout().frames(), PageState::Used);
  for (const CopyJob &job : jobs)
    for (const CopyJob::Item &item : job.items)
      if (item.marked)
        wanted[item.device] = PageState::Swapping;
  for (const Transfer &transfer : transfers)
    for (const Transfer::Item &item : transfer.items)
      if (item.marked)
        wanted[item.frame] = PageState::Pinned;
  for (Frame f = 0; f < wanted.size(); ++f)
    if (pages->refs(f) > 0 && pages->state(f) != wanted[f])
      return broken("frame {} is {}; its owners make it {}", f, toString(pages->state(f)),
                    toString(wanted[f]));
  return {};
}

Status BlockManager::checkSequences() const {
  std::vector<uint32_t> rows(ring);
  for (uint32_t slot = 0; slot < sequences.size(); ++slot) {
    const Sequence &s = sequences[slot];
    uint32_t own = 0, tokens = 0;
    for (uint32_t i = 0; i < ring; ++i) {
      uint32_t reserved = rowTokens[rowPlace(slot, i)];
      own += reserved > 0;
      tokens += reserved;
      rows[i] += reserved > 0;
    }
    if (s.phase == Phase::None) {
      if (own > 0)
        return broken("ended sequence in slot {} has {} rows", slot, own);
      continue;
    }
    if (own != s.rows)
      return broken("slot {} counts {} unfinished rows and has {}", slot, s.rows, own);
    if (s.transfer != kNoSlot)
      tokens += transfers[s.transfer].tokens;
    uint32_t committed = committedOf(s), bound = boundOf(s);
    if (bound != committed + (s.steady ? closed - completed : tokens))
      return broken("slot {} has {} committed and {} reserved tokens; its bound is {}", slot,
                    committed, tokens, bound);
    if (s.steady && (own > 0 || s.unsettled || s.sharedTail || s.transfer != kNoSlot ||
                     bound > s.capacity || committed > s.plainEnd))
      return broken("slot {} is steady with {} tokens; its pages and blocks end at {} and {}", slot,
                    bound, s.capacity, s.plainEnd);
    if (s.node != kNoNode && s.blocks * block > committed - s.unsettled)
      return broken("slot {} has {} tokens in the cache and {} in place", slot, s.blocks * block,
                    committed - s.unsettled);
    for (uint32_t g = 0; g < groups(); ++g) {
      const GroupSpec &group = config.groups[g];
      const Table &t = table(slot, g);
      uint64_t first = group.firstKey(committed - s.unsettled) / group.pageSize;
      if (t.size < group.pagesFor(bound) || t.first > first)
        return broken("slot {} group {} has pages {} to {}; tokens up to {} may be written and "
                      "keys from page {} on are visible",
                      slot, g, t.first, t.size, bound, first);
      if (std::max(t.first, sinkPages(g)) < std::min<uint64_t>(first, t.size))
        return broken("slot {} group {} still holds page {}; nothing before page {} is visible",
                      slot, g, t.first, first);
    }
  }
  for (uint32_t i = 0; i < ring; ++i)
    if (rows[i] != rowsOfStep[i])
      return broken("step place {} counts {} rows and has {}", i, rowsOfStep[i], rows[i]);
  return {};
}

Status BlockManager::check() const {
  LLMOPT_RETURN_IF_ERROR(checkOwners());
  LLMOPT_RETURN_IF_ERROR(checkStates());
  LLMOPT_RETURN_IF_ERROR(checkSequences());
  LLMOPT_RETURN_IF_ERROR(pages->check());
  if (hostPages)
    LLMOPT_RETURN_IF_ERROR(hostPages->check());
  return prefix->check();
}

// ---- Pools

Status Pool::check() const {
  std::array<std::array<uint32_t, kPageStates>, kMaxGroups> found = {};
  std::vector<uint8_t> linked(frame.size());
  auto walk = [&](uint32_t list, PageState state) -> Status {
    uint32_t before = list;
    for (Frame f = frame[list].next; f != list; before = f, f = frame[f].next) {
      if (f >= shape.frames() || frame[f].prev != before || linked[f]++)
        return broken("the list of {} pages is broken at frame {}", toString(state), f);
      if (this->state(f) != state)
        return broken("frame {} is {} and in the list of {} pages", f, toString(this->state(f)),
                      toString(state));
    }
    return {};
  };
  for (uint32_t g = 0; g < groups(); ++g)
    for (bool hit : {false, true})
      LLMOPT_RETURN_IF_ERROR(walk(cachedList(g, hit), PageState::Cached));
  for (uint32_t i = 0; i < steps; ++i)
    LLMOPT_RETURN_IF_ERROR(walk(shape.frames() + 2 * groups() + i, PageState::Pending));
  for (Frame f = 0; f < shape.frames(); ++f) {
    PageState s = state(f);
    bool held = s == PageState::Used || s == PageState::Swapping || s == PageState::Pinned;
    bool inList = s == PageState::Cached || s == PageState::Pending;
    if (held != (refs(f) > 0))
      return broken("frame {} is {} with {} references", f, toString(s), refs(f));
    if (inList != (linked[f] > 0))
      return broken("frame {} is {} and in {} lists", f, toString(s), linked[f]);
    if ((s == PageState::Free && node(f) != kNoNode) ||
        (s == PageState::Cached && node(f) == kNoNode))
      return broken("frame {} is {} and belongs to node {}", f, toString(s), node(f));
    if (s == PageState::Pending && frame[f].stamp <= completed)
      return broken("frame {} waits for step {}, which is completed", f, frame[f].stamp);
    ++found[s == PageState::Free && shape.equalPages ? 0 : group(f)][static_cast<uint32_t>(s)];
  }
  uint64_t total = 0;
  for (uint32_t g = 0; g < groups(); ++g)
    for (uint32_t s = 0; s < kPageStates; ++s) {
      bool free = s == static_cast<uint32_t>(PageState::Free);
      if (free && !shape.equalPages)
        continue; // checkSlabs counts them
      total += counts[g][s];
      if (counts[g][s] != found[g][s])
        return broken("group {} counts {} pages as {} and has {}", g, counts[g][s],
                      toString(static_cast<PageState>(s)), found[g][s]);
    }
  if (shape.equalPages && total != shape.frames())
    return broken("the states add up to {} of {} pages", total, shape.frames());
  return shape.equalPages ? Status() : checkSlabs();
}

Status Pool::checkSlabs() const {
  std::array<uint32_t, kMaxGroups> free = {}, owned = {}, idle = {}, freeIdle = {}, cachedIdle = {};
  uint32_t without = 0;
  for (uint32_t s = 0; s < shape.slabs; ++s) {
    uint32_t g = slab[s].group, held = 0, cached = 0;
    for (uint32_t i = 0; i < shape.framesPerSlab; ++i) {
      PageState state = this->state(s * shape.framesPerSlab + i);
      cached += state == PageState::Cached;
      held += state != PageState::Cached && state != PageState::Free;
    }
    if (g == kMaxGroups) {
      ++without;
      if (held + cached > 0)
        return broken("slab {} has no group and {} pages in use", s, held + cached);
      continue;
    }
    if (held != slab[s].held || cached != slab[s].cached)
      return broken("slab {} counts {} held and {} cached pages and has {} and {}", s, slab[s].held,
                    slab[s].cached, held, cached);
    ++owned[g];
    free[g] += shape.pagesPerSlab[g] - held - cached;
    if (held == 0 && cached > 0) {
      ++idle[g];
      freeIdle[g] += shape.pagesPerSlab[g] - cached;
      cachedIdle[g] += cached;
    }
    if (slab[s].idle != (held == 0 && cached > 0))
      return broken("slab {} with {} held pages is {}in the list of idle ones", s, held,
                    slab[s].idle ? "" : "not ");
  }
  if (without != unassigned)
    return broken("{} slabs have no group, {} are counted", without, unassigned);
  for (uint32_t g = 0; g < groups(); ++g)
    if (free[g] != count(g, PageState::Free) || owned[g] != slabCount[g] ||
        idle[g] != idleSlabs[g] || freeIdle[g] != idleFree[g] || cachedIdle[g] != idleCached[g])
      return broken("group {} counts {} free pages, {} slabs, {} idle with {} free and {} cached "
                    "pages and has {}, {}, {}, {}, {}",
                    g, count(g, PageState::Free), slabCount[g], idleSlabs[g], idleFree[g],
                    idleCached[g], free[g], owned[g], idle[g], freeIdle[g], cachedIdle[g]);
  return {};
}

// ---- The prefix tree

Status PrefixCache::check() const {
  uint32_t found = 0, inBuckets = 0, withBucket = 0;
  for (NodeId n = 0; n < carved; ++n) {
    if (!nodes[n].live())
      continue;
    ++found;
    uint32_t children = 0;
    for (NodeId child = nodes[n].firstChild; child != kNoNode; child = nodes[child].nextSibling)
      if (!nodes[child].live() || nodes[child].parent != n || ++children > nodes.size())
        return broken("node {} has a child {} that is not its own", n, child);
    if (isRoot(n))
      continue;
    withBucket += nodes[n].inBucket();
    bool alone = nodes[n].prevSibling == kNoNode && nodes[n].nextSibling == kNoNode;
    if (!nodes[n].inBucket() && ((nodes[n].hash & kMedia) != 0) != info[n].media)
      return broken("node {} does not say whether it has media", n);
    if (!alone && !nodes[n].inBucket())
      return broken("node {} has siblings and is in no bucket", n);
    if (!nodes[nodes[n].parent].live())
      return broken("node {} has lost its parent {}", n, nodes[n].parent);
    if (children == 0 && holdsOf(n) == 0 && !named(n))
      return broken("node {} has no page, no child and no holder", n);
    LLMOPT_RETURN_IF_ERROR(checkPages(n));
  }
  if (found != live)
    return broken("the tree counts {} nodes and has {}", live, found);
  for (const Bucket &bucket : buckets) {
    uint32_t length = 0;
    for (NodeId n = bucket.newest(); n != kNoNode; n = nextIn(bucket.newest(), n), ++inBuckets)
      if (!nodes[n].live() || ++length > kMaxChain || &buckets[bucketOf(nodes[n].hash)] != &bucket)
        return broken("a bucket has a node {} that is dead or another's, or more than {}", n,
                      kMaxChain);
    if (length != bucket.size())
      return broken("a bucket counts {} nodes and has {}", bucket.size(), length);
  }
  if (inBuckets != withBucket)
    return broken("{} nodes are in buckets, and {} say so", inBuckets, withBucket);
  return checkNames();
}

/// What a node names knows the node.
Status PrefixCache::checkPages(NodeId n) const {
  for (uint32_t slot = 0; slot < slots; ++slot) {
    PageRef page = pageAt(n, slot);
    if (page.empty())
      continue;
    const Pool &pool = page.onHost() ? *host : device;
    if (pool.node(page.frame()) != n || pool.nodeSlot(page.frame()) != slot)
      return broken("node {} names frame {}, which belongs to node {}", n, page.frame(),
                    pool.node(page.frame()));
  }
  return {};
}

/// A frame that belongs to a node is named by it.
Status PrefixCache::checkNames() const {
  for (const Pool *pool : {&device, host})
    for (Frame f = 0; pool && f < pool->layout().frames(); ++f) {
      NodeId n = pool->node(f);
      PageRef wanted = pool->isHost() ? PageRef::host(f) : PageRef::device(f);
      if (n != kNoNode && (!nodes[n].live() || pageAt(n, pool->nodeSlot(f)) != wanted))
        return broken("frame {} belongs to node {}, which does not name it", f, n);
    }
  return {};
}

} // namespace llmopt::runtime::kv

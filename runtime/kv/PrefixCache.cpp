#include "runtime/kv/PrefixCache.h"

#include "runtime/kv/BlockHash.h"
#include "runtime/kv/Mutants.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace llmopt::runtime::kv {

namespace {

const std::string kText;

} // namespace

PrefixCache::PrefixCache(const CacheOptions &options, Pool &device, Pool *host, uint32_t maxHolds)
    : on(options.enabled), partialHits(options.partialHits), seed(options.seed),
      hashMask(options.hashBits >= 64 ? ~uint64_t{0} : (uint64_t{1} << options.hashBits) - 1),
      keys(blockKeys(options.seed)), device(device), host(host), groups(device.layout().groups),
      ring(options.events) {
  block = static_cast<uint32_t>(kv::blockSize(groups));
  bool keeps = false;
  for (const GroupSpec &group : groups) {
    uint32_t pages = block / group.pageSize;
    slotBase.push_back(slots);
    pagesPerBlock.push_back(pages);
    for (uint32_t i = 0; i < pages && group.keepsAll(); ++i)
      keptSlots.push_back(slots + i);
    keeps = keeps || group.keepsAll();
    slots += pages;
  }
  if (!on)
    return;
  uint64_t pages = uint64_t{device.layout().frames()} + (host ? host->layout().frames() : 0);
  // Where no group keeps its early pages, nodes without a page lead to those with one.
  uint64_t capacity = (keeps ? pages : 4 * pages) + (keeps ? 0 : maxHolds) + 16;
  capacity = std::min(capacity, kMostNodes);
  nodes.resize(capacity);
  info.resize(capacity);
  refs.resize(slots == 1 ? 0 : capacity * slots);
  chained.resize(ring.enabled() ? capacity : 0);
  buckets.resize(capacity * 7 / 8);
  tokenMemory = LargeArray<Token>(capacity * block);
  lastPath.reserve(std::min<uint64_t>(capacity, kLastPath));
}

// ---- Addresses

uint64_t PrefixCache::hashOf(const Token *tokens, const std::string &media) const {
  uint64_t own = hashTokens(tokens, block, seed, keys);
  if (!media.empty())
    own ^= XXH3_64bits_withSeed(media.data(), media.size(), seed + 1);
  return own;
}

/// Whether a node of the right address is the one.
bool PrefixCache::matches(NodeId node, NodeId parent, const Token *tokens,
                          const std::string &media) const {
  if (mutant(Mutant::HashDecides))
    return true;
  if (nodes[node].parent != parent && !mutant(Mutant::ParentIgnored))
    return false;
  if (!equalTokens(tokensOf(node), tokens, block))
    return false;
  if ((!mediaNodes || !info[node].media) && media.empty())
    return true;
  auto own = texts.find(node);
  return mutant(Mutant::MediaIgnored) || (own != texts.end() && own->second == media);
}

/// In the bucket that the address leads to.
NodeId PrefixCache::inBucket(uint32_t hash, NodeId parent, const Token *tokens,
                             const std::string &media) const {
  NodeId newest = buckets[bucketOf(hash)].newest();
  for (NodeId n = newest; n != kNoNode; n = nextIn(newest, n))
    if (nodes[n].hash == hash && matches(n, parent, tokens, media))
      return n;
  return kNoNode;
}

/// An only child is named by its parent, whether it is in a bucket or not; others are in buckets.
NodeId PrefixCache::findChild(NodeId parent, const Token *tokens, const std::string &media) const {
  NodeId first = nodes[parent].firstChild;
  if (first == kNoNode)
    return first;
  if (nodes[first].nextSibling == kNoNode)
    return matches(first, parent, tokens, media) ? first : kNoNode;
  return inBucket(addressOf(parent, hashOf(tokens, media)), parent, tokens, media);
}

// ---- Nodes

NodeId PrefixCache::newNode() {
  NodeId n = takeNode();
  if (n == kNoNode)
    return n;
  ++nodes[n].serial;
  ++live;
  return n;
}

NodeId PrefixCache::takeListed() {
  NodeId n = freeNodes;
  if (n != kNoNode)
    freeNodes = nodes[n].next;
  else if (carved < nodes.size())
    n = carved++;
  return n;
}

/// The older half of the spare nodes goes into the list.
void PrefixCache::listSpares() {
  uint32_t half = spares / 2;
  for (uint32_t i = 0; i < half; ++i) {
    nodes[spare[i]].next = freeNodes;
    freeNodes = spare[i];
  }
  std::copy(spare.begin() + half, spare.begin() + spares, spare.begin());
  spares -= half;
}

const std::string &PrefixCache::keyOf(const Prompt &prompt) {
  static const std::string none;
  return mutant(Mutant::KeyIgnored) ? none : prompt.root;
}

NodeId PrefixCache::findRoot(Prompt &prompt) {
  if (prompt.rootSerial && nodes[prompt.rootNode].serial == prompt.rootSerial)
    return prompt.rootNode;
  const std::string &key = keyOf(prompt);
  if (lastRoot == kNoNode || *lastKey != key) {
    auto found = roots.find(key);
    if (found == roots.end())
      return kNoNode;
    lastRoot = found->second;
    lastKey = &found->first;
  }
  prompt.rootNode = lastRoot;
  prompt.rootSerial = nodes[lastRoot].serial;
  return lastRoot;
}

NodeId PrefixCache::rootOf(Prompt &prompt) {
  if (NodeId root = findRoot(prompt); root != kNoNode)
    return root;
  NodeId n = newNode();
  if (n == kNoNode)
    return n;
  nodes[n] = {.serial = nodes[n].serial, .page = {}};
  if (ring.enabled())
    chained[n] = XXH3_64bits_withSeed(prompt.root.data(), prompt.root.size(), seed) & hashMask;
  texts[n] = keyOf(prompt);
  roots.emplace(texts[n], n);
  prompt.rootNode = n;
  prompt.rootSerial = nodes[n].serial;
  return n;
}

PrefixCache::Inserted PrefixCache::insertText(NodeId parent, const Token *tokens,
                                              std::span<const Frame> pages) {
  uint32_t count = static_cast<uint32_t>(pages.size());
  bool plain = !ring.enabled() && !mutant(Mutant::HashDecides);
  Inserted result{.last = parent, .blocks = 0, .others = false};
  while (result.blocks < count) {
    uint32_t i = result.blocks;
    if (plain && nodes[result.last].firstChild == kNoNode && device.node(pages[i]) == kNoNode) {
      uint32_t made =
          addChain(result.last, tokens + size_t{i} * block, pages.subspan(i), result.last);
      result.blocks += made;
      if (!made)
        break;
      continue;
    }
    NodeId n = childOf(result.last, tokens + size_t{i} * block, kText);
    if (n == kNoNode)
      break;
    result.last = n;
    ++result.blocks;
    if (device.node(pages[i]) == n)
      continue;
    if (!nodes[n].page.empty())
      result.others = true;
    else if (device.node(pages[i]) == kNoNode)
      attach(n, 0, PageRef::device(pages[i]));
  }
  ++changes;
  return result;
}

/// Blocks behind a node without children: nothing of it can be there. Gives how many, which are
/// fewer where a page belongs to a node already or no node is free. `last` becomes the last one.
uint32_t PrefixCache::addChain(NodeId parent, const Token *tokens, std::span<const Frame> pages,
                               NodeId &last) {
  NodeId made[kMostInserted + kAhead]; // no nodes behind them
  uint32_t count = 0;
  for (; count < pages.size() && device.node(pages[count]) == kNoNode; ++count) {
    NodeId n = takeNode();
    if (n == kNoNode)
      break;
    made[count] = n;
  }
  live += count;
  std::fill_n(made + count, kAhead, kNoNode);
  NodeId before = parent;
  Node *const table = nodes.data();
  for (uint32_t i = 0; i < count; ++i, tokens += block) {
    NodeId n = made[i];
    table[n] = {.parent = before,
                .next = made[i + kAhead],
                .firstChild = made[i + 1],
                .serial = table[n].serial + 1,
                .page = PageRef::device(pages[i])};
    device.hash(pages[i], n, 0);
    copyTokens(n, tokens);
    before = n;
  }
  if (count)
    nodes[parent].firstChild = made[0];
  // Those of the chunk before know of these, too.
  NodeId behind = parent;
  for (uint32_t i = kAhead; count >= kAhead && i-- > 0 && behind != kNoNode;
       behind = nodes[behind].parent)
    if (!nodes[behind].inBucket())
      nodes[behind].next = made[i];
  last = before;
  return count;
}

NodeId PrefixCache::addLeaf(NodeId parent, const Token *tokens, Frame page) {
  if (ring.enabled() || mutant(Mutant::HashDecides) || nodes[parent].firstChild != kNoNode ||
      device.node(page) != kNoNode)
    return kNoNode;
  NodeId n = takeNode();
  if (n == kNoNode)
    return n;
  Node &node = nodes[n];
  node = {.hash = 1, .parent = parent, .serial = node.serial + 1, .page = PageRef::device(page)};
  device.hash(page, n, 0);
  copyTokens(n, tokens);
  nodes[parent].firstChild = n;
  letGo(parent);
  ++live;
  ++changes;
  return n;
}

/// The child, made when it is not there.
NodeId PrefixCache::childOf(NodeId parent, const Token *tokens, const std::string &media) {
  NodeId n = findChild(parent, tokens, media);
  return n == kNoNode ? addChild(parent, tokens, media) : n;
}

/// False where the bucket is full.
bool PrefixCache::enterBucket(NodeId n, uint32_t hash) {
  Bucket &bucket = buckets[bucketOf(hash)];
  uint32_t size = bucket.size();
  if (size >= kMaxChain)
    return false;
  info[n].holds = static_cast<uint16_t>(holdsOf(n));
  nodes[n].hash = hash;
  nodes[n].next = size ? std::exchange(nodes[bucket.newest()].next, n) : n;
  bucket.set(n, size + 1);
  return true;
}

void PrefixCache::leaveBucket(NodeId n) {
  Bucket &bucket = buckets[bucketOf(nodes[n].hash)];
  NodeId newest = bucket.newest(), before = newest;
  while (nodes[before].next != n) // of the oldest, which goes first mostly, the newest at once
    before = nodes[before].next;
  nodes[before].next = nodes[n].next;
  bucket.set(newest == n ? before : newest, bucket.size() - 1);
}

/// It is not there yet. Without a page. kNoNode where its bucket has no room, or that of an only
/// child, which has to be found beside it from now on.
NodeId PrefixCache::addChild(NodeId parent, const Token *tokens, const std::string &media) {
  NodeId sibling = nodes[parent].firstChild;
  uint64_t own = sibling != kNoNode || ring.enabled() ? hashOf(tokens, media) : 0;
  if (sibling != kNoNode && !nodes[sibling].inBucket()) {
    auto text = info[sibling].media ? texts.find(sibling) : texts.end();
    uint64_t hash = hashOf(tokensOf(sibling), text == texts.end() ? kText : text->second);
    if (!enterBucket(sibling, addressOf(parent, hash)))
      return kNoNode;
  }
  NodeId n = newNode();
  if (n == kNoNode)
    return n;
  nodes[n] = {.parent = parent, .nextSibling = sibling, .serial = nodes[n].serial, .page = {}};
  if (sibling != kNoNode && !enterBucket(n, addressOf(parent, own))) {
    free(n);
    return kNoNode;
  }
  if (sibling != kNoNode)
    nodes[sibling].prevSibling = n;
  nodes[parent].firstChild = n;
  if (ring.enabled())
    chained[n] = chain(chained[parent], own);
  copyTokens(n, tokens);
  for (uint32_t slot = 0; slot < slots; ++slot)
    refAt(n, slot) = {};
  if (!media.empty()) {
    info[n].media = true;
    if (!nodes[n].inBucket())
      nodes[n].hash = kMedia;
    ++mediaNodes;
    texts[n] = media;
  }
  return n;
}

inline void PrefixCache::copyTokens(NodeId node, const Token *tokens) {
  copyBlock(tokenMemory.data() + size_t{node} * block, tokens, block);
}

void PrefixCache::attach(NodeId node, uint32_t slot, PageRef page) {
  ++changes;
  bool before = ring.enabled() && whole(node);
  refAt(node, slot) = page;
  poolOf(page).hash(page.frame(), node, slot);
  if (ring.enabled() && !before && whole(node))
    announce(CacheEvent::Kind::Stored, node);
}

void PrefixCache::exchange(NodeId node, uint32_t slot, PageRef page) {
  ++changes;
  PageRef old = pageAt(node, slot);
  refAt(node, slot) = page;
  poolOf(page).hash(page.frame(), node, slot);
  poolOf(old).unhash(old.frame());
}

/// Whether the node was whole before and is not any more.
bool PrefixCache::clear(NodeId node, uint32_t slot) {
  PageRef &ref = refAt(node, slot), old = ref;
  bool before = whole(node);
  ++changes;
  ref = {};
  poolOf(old).unhash(old.frame());
  return before && !whole(node);
}

void PrefixCache::afterLoss(NodeId node, bool lost) {
  if (lost)
    announce(CacheEvent::Kind::Removed, node);
  uint32_t serial = nodes[node].serial;
  removeIfUnused(node);
  holes += lost && nodes[node].serial == serial;
}

void PrefixCache::detach(NodeId node, uint32_t slot) { afterLoss(node, clear(node, slot)); }

void PrefixCache::drop(NodeId node) {
  letGo(node);
  removeIfUnused(node);
}

bool PrefixCache::named(NodeId node) const {
  if (isRoot(node))
    return false;
  for (uint32_t slot = 0; slot < slots; ++slot)
    if (!pageAt(node, slot).empty())
      return true;
  return false;
}

void PrefixCache::removeIfUnused(NodeId n) {
  while (n != kNoNode && nodes[n].firstChild == kNoNode && holdsOf(n) == 0 && !named(n)) {
    NodeId parent = nodes[n].parent;
    unlink(n);
    n = parent;
  }
}

void PrefixCache::unlink(NodeId n) {
  Node &node = nodes[n];
  if (node.parent == kNoNode) {
    lastRoot = kNoNode;
    roots.erase(texts[n]);
    texts.erase(n);
    free(n);
  } else {
    unlinkChild(n);
  }
}

inline void PrefixCache::unlinkChild(NodeId n) {
  Node &node = nodes[n];
  if (node.inBucket())
    leaveBucket(n);
  if (node.prevSibling != kNoNode)
    nodes[node.prevSibling].nextSibling = node.nextSibling;
  else
    nodes[node.parent].firstChild = node.nextSibling;
  if (node.nextSibling != kNoNode)
    nodes[node.nextSibling].prevSibling = node.prevSibling;
  if (mediaNodes && info[n].media) {
    texts.erase(n);
    info[n].media = false;
    --mediaNodes;
  }
  free(n);
}

// ---- Eviction

void PrefixCache::lost(std::span<const NodeId> gone) {
  for (NodeId n : gone)
    if (nodes[n].inBucket()) // else its parent is near, whose page mostly goes next
      __builtin_prefetch(&buckets[bucketOf(nodes[n].hash)], 1);
  const bool silent = !ring.enabled();
  for (NodeId n : gone) {
    Node &node = nodes[n];
    if (node.hash || node.firstChild != kNoNode || !silent) {
      lose(n);
      continue;
    }
    // Mostly: a leaf that its parent alone knows, which has no other child then.
    Node &above = nodes[node.parent];
    above.firstChild = kNoNode;
    node.page = {};
    free(n);
    if (above.page.empty())
      removeIfUnused(node.parent);
  }
}

void PrefixCache::lose(NodeId n) {
  if (ring.enabled())
    announce(CacheEvent::Kind::Removed, n);
  ++changes;
  nodes[n].page = {};
  if (nodes[n].firstChild != kNoNode || holdsOf(n) > 0) {
    ++holes;
    return;
  }
  NodeId parent = nodes[n].parent;
  unlinkChild(n);
  if (nodes[parent].firstChild == kNoNode && (isRoot(parent) || nodes[parent].page.empty()))
    removeIfUnused(parent);
}

void PrefixCache::evicted(Frame frame, Pool &pool) {
  NodeId n = pool.node(frame);
  uint32_t slot = pool.nodeSlot(frame);
  if (mutant(Mutant::StaleEntry)) {
    pool.unhash(frame);
    return;
  }
  bool kept = groups[pool.group(frame)].keepsAll();
  bool lost = clear(n, slot);
  // The node's other pages are of no use without this one: they go too, if nobody
  // holds them.
  for (uint32_t other = 0; other < slots && kept; ++other)
    if (PageRef page = pageAt(n, other);
        !page.empty() && poolOf(page).state(page.frame()) == PageState::Cached)
      clear(n, other);
  afterLoss(n, lost);
}

void PrefixCache::reset() {
  for (NodeId n = 0; n < carved; ++n) {
    if (!nodes[n].live())
      continue;
    for (uint32_t slot = 0; slot < slots && !isRoot(n); ++slot)
      if (PageRef page = pageAt(n, slot); !page.empty())
        poolOf(page).unhash(page.frame());
    ++nodes[n].serial;
    info[n] = {};
  }
  mediaNodes = 0;
  std::fill(buckets.begin(), buckets.end(), Bucket());
  roots.clear();
  lastRoot = kNoNode;
  texts.clear();
  freeNodes = kNoNode;
  carved = live = spares = 0;
  ++holes;
  ++changes;
  if (ring.enabled())
    ring.push({.kind = CacheEvent::Kind::Cleared});
}

void PrefixCache::announce(CacheEvent::Kind kind, NodeId node) {
  if (ring.enabled())
    ring.push({kind, chained[node], chained[nodes[node].parent]});
}

uint64_t PrefixCache::bytes() const {
  return nodes.size() * (sizeof(Node) + sizeof(Info)) + refs.size() * sizeof(PageRef) +
         buckets.size() * sizeof(Bucket) + chained.size() * sizeof(uint64_t);
}

} // namespace llmopt::runtime::kv

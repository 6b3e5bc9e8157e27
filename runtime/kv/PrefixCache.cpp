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
  refs.resize(capacity * slots);
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
  if (!info[node].media && media.empty())
    return true;
  auto own = texts.find(node);
  return mutant(Mutant::MediaIgnored) || (own != texts.end() && own->second == media);
}

/// `length` becomes the number of nodes that were looked at.
NodeId PrefixCache::find(uint64_t hash, NodeId parent, const Token *tokens,
                         const std::string &media, uint32_t &length) const {
  length = 0;
  NodeId newest = buckets[bucketOf(hash)].newest();
  for (NodeId n = newest; n != kNoNode; n = nextIn(newest, n), ++length)
    if (nodes[n].hash == hash && matches(n, parent, tokens, media))
      return n;
  return kNoNode;
}

// ---- Nodes

NodeId PrefixCache::newNode() {
  NodeId n = freeNodes;
  if (n != kNoNode) {
    freeNodes = nodes[n].next;
  } else if (carved < nodes.size())
    n = carved++;
  else
    return kNoNode;
  info[n] = {.live = true};
  ++live;
  return n;
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
  nodes[n].parent = nodes[n].firstChild = kNoNode;
  nodes[n].hash = XXH3_64bits_withSeed(prompt.root.data(), prompt.root.size(), seed) & hashMask;
  texts[n] = keyOf(prompt);
  roots.emplace(texts[n], n);
  prompt.rootNode = n;
  prompt.rootSerial = nodes[n].serial;
  return n;
}

/// Begins to load what insertion looks at: where the children will most likely lie, and the nodes
/// that they come after in their buckets.
void PrefixCache::fetchPlaces(std::span<const uint32_t> bucket) const {
  NodeId next = freeNodes;
  for (size_t i = 0; i < bucket.size() && next != kNoNode; ++i, next = nodes[next].next) {
    fetchNode(next);
    __builtin_prefetch(tokensOf(next), 1);
  }
  for (uint32_t at : bucket)
    if (NodeId newest = buckets[at].newest(); newest != kNoNode)
      __builtin_prefetch(&nodes[newest], 1);
}

PrefixCache::Inserted PrefixCache::insertText(NodeId parent, const Token *tokens,
                                              std::span<const Frame> pages) {
  uint64_t hash[kMostInserted];
  uint32_t bucket[kMostInserted];
  uint32_t count = static_cast<uint32_t>(pages.size());
  uint64_t before = nodes[parent].hash;
  for (uint32_t i = 0; i < count; ++i) {
    before = hash[i] = chain(before, hashTokens(tokens + size_t{i} * block, block, seed, keys));
    bucket[i] = bucketOf(before);
    __builtin_prefetch(&buckets[bucket[i]], 1);
    device.fetch(pages[i]);
  }
  fetchPlaces({bucket, count});
  bool plain = !ring.enabled() && !mutant(Mutant::HashDecides) && !mutant(Mutant::ParentIgnored);
  Inserted result{.last = parent, .blocks = 0, .others = false};
  for (; result.blocks < count; ++result.blocks, tokens += block) {
    uint32_t i = result.blocks;
    // A parent without children has not this one: the bucket's nodes need not be looked at.
    Bucket &in = buckets[bucket[i]];
    bool fresh = plain && nodes[result.last].firstChild == kNoNode && in.size() < kMaxChain;
    NodeId n = fresh ? addChild(hash[i], in, result.last, tokens)
                     : childAt(hash[i], result.last, tokens, kText);
    if (n == kNoNode)
      break;
    result.last = n;
    if (fresh && device.node(pages[i]) == kNoNode) {
      refs[n] = PageRef::device(pages[i]);
      device.hash(pages[i], n, 0);
    } else if (device.node(pages[i]) == n) {
      continue;
    } else if (!refs[n].empty()) {
      result.others = true;
    } else if (device.node(pages[i]) == kNoNode) {
      attach(n, 0, PageRef::device(pages[i]));
    }
  }
  ++changes;
  return result;
}

NodeId PrefixCache::childOf(NodeId parent, const Token *tokens, const std::string &media) {
  return childAt(chain(nodes[parent].hash, hashOf(tokens, media)), parent, tokens, media);
}

NodeId PrefixCache::childAt(uint64_t hash, NodeId parent, const Token *tokens,
                            const std::string &media) {
  Bucket &bucket = buckets[bucketOf(hash)];
  uint32_t length = bucket.size();
  NodeId n = kNoNode;
  // A parent without children has not this one: the bucket's nodes need not be looked at.
  if (nodes[parent].firstChild != kNoNode || length >= kMaxChain || mutant(Mutant::HashDecides) ||
      mutant(Mutant::ParentIgnored))
    n = find(hash, parent, tokens, media, length);
  if (n != kNoNode || length >= kMaxChain)
    return n;
  n = addChild(hash, bucket, parent, tokens);
  if (n != kNoNode && !media.empty()) {
    info[n].media = true;
    texts[n] = media;
  }
  return n;
}

/// It is not there yet, and its bucket has room. Without a page.
inline NodeId PrefixCache::addChild(uint64_t hash, Bucket &bucket, NodeId parent,
                                    const Token *tokens) {
  NodeId n = newNode();
  if (n == kNoNode)
    return n;
  Node &node = nodes[n], &above = nodes[parent];
  node.hash = hash;
  node.parent = parent;
  node.next = bucket.size() ? std::exchange(nodes[bucket.newest()].next, n) : n;
  bucket.set(n, bucket.size() + 1);
  node.firstChild = node.prevSibling = kNoNode;
  node.nextSibling = above.firstChild;
  if (above.firstChild != kNoNode)
    nodes[above.firstChild].prevSibling = n;
  above.firstChild = n;
  Token *own = tokenMemory.data() + size_t{n} * block;
  if (block == kCommonBlock)
    std::memcpy(own, tokens, kCommonBlock * sizeof(Token));
  else
    std::memcpy(own, tokens, block * sizeof(Token));
  for (uint32_t slot = 0; slot < slots; ++slot)
    refs[size_t{n} * slots + slot] = {};
  return n;
}

void PrefixCache::attach(NodeId node, uint32_t slot, PageRef page) {
  ++changes;
  bool before = ring.enabled() && whole(node);
  refs[size_t{node} * slots + slot] = page;
  poolOf(page).hash(page.frame(), node, slot);
  if (ring.enabled() && !before && whole(node))
    announce(CacheEvent::Kind::Stored, node);
}

void PrefixCache::exchange(NodeId node, uint32_t slot, PageRef page) {
  ++changes;
  PageRef old = pageAt(node, slot);
  refs[size_t{node} * slots + slot] = page;
  poolOf(page).hash(page.frame(), node, slot);
  poolOf(old).unhash(old.frame());
}

/// Whether the node was whole before and is not any more.
bool PrefixCache::clear(NodeId node, uint32_t slot) {
  PageRef &ref = refs[size_t{node} * slots + slot], old = ref;
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
  --info[node].holds;
  removeIfUnused(node);
}

bool PrefixCache::named(NodeId node) const {
  if (isRoot(node))
    return false;
  for (uint32_t slot = 0; slot < slots; ++slot)
    if (!refs[size_t{node} * slots + slot].empty())
      return true;
  return false;
}

void PrefixCache::removeIfUnused(NodeId n) {
  while (n != kNoNode && nodes[n].firstChild == kNoNode && info[n].holds == 0 && !named(n)) {
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
    freeNode(n);
  } else {
    unlinkChild(n);
  }
}

inline void PrefixCache::unlinkChild(NodeId n) {
  Node &node = nodes[n];
  Bucket &bucket = buckets[bucketOf(node.hash)];
  NodeId newest = bucket.newest(), before = newest;
  while (nodes[before].next != n) // of the oldest, which goes first mostly, the newest at once
    before = nodes[before].next;
  nodes[before].next = node.next;
  bucket.set(newest == n ? before : newest, bucket.size() - 1);
  if (node.prevSibling != kNoNode)
    nodes[node.prevSibling].nextSibling = node.nextSibling;
  else
    nodes[node.parent].firstChild = node.nextSibling;
  if (node.nextSibling != kNoNode)
    nodes[node.nextSibling].prevSibling = node.prevSibling;
  if (info[n].media)
    texts.erase(n);
  freeNode(n);
}

inline void PrefixCache::freeNode(NodeId n) {
  Node &node = nodes[n];
  ++changes;
  info[n] = {};
  ++node.serial;
  node.next = freeNodes;
  freeNodes = n;
  --live;
}

// ---- Eviction

void PrefixCache::fetchLinks(NodeId n) const {
  __builtin_prefetch(&buckets[bucketOf(nodes[n].hash)], 1);
  if (nodes[n].parent != kNoNode)
    __builtin_prefetch(&nodes[nodes[n].parent], 1);
}

void PrefixCache::lost(NodeId n) {
  if (ring.enabled())
    announce(CacheEvent::Kind::Removed, n);
  ++changes;
  refs[n] = {};
  if (nodes[n].firstChild != kNoNode || info[n].holds > 0) {
    ++holes;
    return;
  }
  NodeId parent = nodes[n].parent;
  unlinkChild(n);
  if (nodes[parent].firstChild == kNoNode && (isRoot(parent) || refs[parent].empty()))
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
    if (!info[n].live)
      continue;
    for (uint32_t slot = 0; slot < slots && !isRoot(n); ++slot)
      if (PageRef page = pageAt(n, slot); !page.empty())
        poolOf(page).unhash(page.frame());
    ++nodes[n].serial;
    info[n] = {};
  }
  std::fill(buckets.begin(), buckets.end(), Bucket());
  roots.clear();
  lastRoot = kNoNode;
  texts.clear();
  freeNodes = kNoNode;
  carved = live = 0;
  ++holes;
  ++changes;
  if (ring.enabled())
    ring.push({.kind = CacheEvent::Kind::Cleared});
}

void PrefixCache::announce(CacheEvent::Kind kind, NodeId node) {
  if (ring.enabled())
    ring.push({kind, nodes[node].hash, nodes[nodes[node].parent].hash});
}

uint64_t PrefixCache::bytes() const {
  return nodes.size() * (sizeof(Node) + sizeof(Info)) + refs.size() * sizeof(PageRef) +
         buckets.size() * sizeof(Bucket);
}

} // namespace llmopt::runtime::kv

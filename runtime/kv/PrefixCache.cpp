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
      device(device), host(host), groups(device.layout().groups), ring(options.events) {
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
  nodes.resize(capacity);
  info.resize(capacity);
  refs.resize(capacity * slots);
  buckets.assign(capacity * 7 / 8, kNoNode);
  tokenMemory = AlignedBuffer(capacity * block * sizeof(Token));
  lastPath.reserve(std::min<uint64_t>(capacity, kLastPath));
}

// ---- Addresses

uint64_t PrefixCache::hashOf(const Token *tokens, const std::string &media) const {
  uint64_t own = hashTokens(tokens, block, seed);
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
  NodeId newest = buckets[bucketOf(hash)];
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
    if (freeNodes != kNoNode) { // the next one that is wanted
      fetchNode(freeNodes);
      __builtin_prefetch(tokensOf(freeNodes), 1);
    }
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

NodeId PrefixCache::findRoot(Prompt &prompt) const {
  if (prompt.rootSerial && nodes[prompt.rootNode].serial == prompt.rootSerial)
    return prompt.rootNode;
  auto found = roots.find(keyOf(prompt));
  if (found == roots.end())
    return kNoNode;
  prompt.rootNode = found->second;
  prompt.rootSerial = nodes[found->second].serial;
  return found->second;
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

void PrefixCache::addressesOf(NodeId parent, const Token *tokens, std::span<uint64_t> hash) const {
  uint64_t before = nodes[parent].hash;
  for (size_t i = 0; i < hash.size(); ++i) {
    before = hash[i] = chain(before, hashTokens(tokens + i * block, block, seed));
    __builtin_prefetch(&buckets[bucketOf(before)], 1);
  }
  __builtin_prefetch(&nodes[parent].firstChild);
  // Where the children will most likely lie, and how long their buckets are.
  NodeId next = freeNodes;
  for (size_t i = 0; i < hash.size() && next != kNoNode; ++i, next = nodes[next].next) {
    fetchNode(next);
    __builtin_prefetch(tokensOf(next), 1);
  }
  for (uint64_t address : hash)
    if (NodeId newest = buckets[bucketOf(address)]; newest != kNoNode) {
      __builtin_prefetch(&info[newest]);
      __builtin_prefetch(&nodes[newest], 1);
    }
}

NodeId PrefixCache::childOf(NodeId parent, const Token *tokens, const std::string &media) {
  return childAt(chain(nodes[parent].hash, hashOf(tokens, media)), parent, tokens, media);
}

NodeId PrefixCache::childAt(uint64_t hash, NodeId parent, const Token *tokens,
                            const std::string &media) {
  NodeId &bucket = buckets[bucketOf(hash)];
  uint32_t length = bucket == kNoNode ? 0 : info[bucket].chained;
  NodeId n = kNoNode;
  // A parent without children has not this one: the bucket's nodes need not be looked at.
  if (nodes[parent].firstChild != kNoNode || length >= kMaxChain || mutant(Mutant::HashDecides) ||
      mutant(Mutant::ParentIgnored))
    n = find(hash, parent, tokens, media, length);
  if (n != kNoNode || length >= kMaxChain)
    return n;
  n = newNode();
  if (n == kNoNode)
    return n;
  Node &node = nodes[n], &above = nodes[parent];
  node.hash = hash;
  node.parent = parent;
  node.next = bucket == kNoNode ? n : std::exchange(nodes[bucket].next, n);
  bucket = n;
  info[n].chained = static_cast<uint8_t>(length + 1);
  node.firstChild = node.prevSibling = kNoNode;
  node.nextSibling = above.firstChild;
  if (above.firstChild != kNoNode)
    nodes[above.firstChild].prevSibling = n;
  above.firstChild = n;
  uint8_t *own = tokenMemory.data() + size_t{n} * block * sizeof(Token);
  if (block == kCommonBlock)
    std::memcpy(own, tokens, kCommonBlock * sizeof(Token));
  else
    std::memcpy(own, tokens, block * sizeof(Token));
  for (uint32_t slot = 0; slot < slots; ++slot)
    refs[size_t{n} * slots + slot] = {};
  if (!media.empty()) {
    info[n].media = true;
    texts[n] = media;
  }
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
    roots.erase(texts[n]);
    texts.erase(n);
  } else {
    NodeId &newest = buckets[bucketOf(node.hash)], before = newest;
    while (nodes[before].next != n) // of the oldest, which goes first mostly, the newest at once
      before = nodes[before].next;
    nodes[before].next = node.next;
    if (newest == n)
      newest = before == n ? kNoNode : before;
    if (node.prevSibling != kNoNode)
      nodes[node.prevSibling].nextSibling = node.nextSibling;
    else
      nodes[node.parent].firstChild = node.nextSibling;
    if (node.nextSibling != kNoNode)
      nodes[node.nextSibling].prevSibling = node.prevSibling;
  }
  if (info[n].media)
    texts.erase(n);
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
  unlink(n);
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
  std::fill(buckets.begin(), buckets.end(), kNoNode);
  roots.clear();
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
         buckets.size() * sizeof(NodeId);
}

} // namespace llmopt::runtime::kv

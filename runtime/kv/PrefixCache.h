// Finds pages whose content a new request can use.
//
// A tree: a node is one block of tokens behind its parent's; a root is a cache key
// (model, adapter, salt, ...). A node names, for each layer group, the pages that
// hold its block, as far as they exist: in device memory or in host memory.
//
// Most nodes are the only child of their parent, which names them: then its tokens (and
// media) are compared and nothing is hashed, neither to insert, nor to find, nor to evict.
// Children of one parent are found by a hash of their tokens and the parent. The hash is only
// an address; what decides is that the parent is the node just found and that all tokens (and
// media) are equal, so that colliding hashes serve nothing wrong. A bucket has at most kMaxChain
// nodes; one more is not inserted, which bounds a lookup whatever the tokens are.
//
// A node lives while it names a page, has children or is held by a sequence.
// Nodes without a page of a group that needs it are holes: a hit ends before them.
//
// Thirty-six bytes a node beside the tokens, three and a half of buckets; where a block has several
// pages, four more for each. Eight more with events.
#pragma once

#include "runtime/kv/Events.h"
#include "runtime/kv/Mutants.h"
#include "runtime/kv/Pool.h"
#include "runtime/kv/Prompt.h"

#include <array>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace llmopt::runtime::kv {

using NodeId = uint32_t;

/// What a slot of a node names: nothing, a device frame, or a host frame.
struct PageRef {
  static constexpr uint32_t kHostBit = uint32_t{1} << 31;
  uint32_t value = UINT32_MAX;

  static PageRef device(Frame f) { return {f}; }
  static PageRef host(Frame f) { return {f | kHostBit}; }
  bool empty() const { return value == UINT32_MAX; }
  bool onHost() const { return !empty() && (value & kHostBit); }
  bool onDevice() const { return !(value & kHostBit); }
  Frame frame() const { return value & ~kHostBit; }
  bool operator==(const PageRef &) const = default;
};

class PrefixCache {
public:
  static constexpr uint32_t kMaxChain = 16;

  using Hit = PrefixHit;

  /// `host` may be null. Allocates for as many nodes as the pools have pages.
  PrefixCache(const CacheOptions &options, Pool &device, Pool *host, uint32_t maxHolds);

  bool enabled() const { return on; }
  uint32_t blockSize() const { return block; }
  uint32_t slotsPerNode() const { return slots; }
  uint32_t slotOf(uint32_t group, uint32_t page) const {
    return slotBase[group] + page % pagesPerBlock[group];
  }
  uint32_t blockOf(uint32_t group, uint32_t page) const { return page / pagesPerBlock[group]; }

  // ---- Lookup

  struct Use {
    bool host = true;    ///< pages in host memory count
    bool partial = true; ///< a page may be used up to its middle
  };
  /// The longest usable prefix. Changes nothing but the prompt's memory of its path.
  Hit lookup(Prompt &prompt, Use use);
  /// What the hit names for a page of a group, counted from the sequence's start.
  PageRef pageOf(const Prompt &prompt, const Hit &hit, uint32_t group, uint32_t page) const {
    if (slots == 1) // one group, a page a block
      return nodes[page < hit.blocks ? prompt.path[page].node : hit.tail].page;
    uint32_t index = blockOf(group, page);
    NodeId node = index < hit.blocks ? prompt.path[index].node : hit.tail;
    return pageAt(node, slotOf(group, page));
  }
  /// What the first blocks of the prompt's path name, of nodes with one page on the device.
  void framesOf(const Prompt &prompt, std::span<Frame> frames) const {
    const Node *table = nodes.data();
    for (size_t i = 0; i < frames.size(); ++i)
      frames[i] = table[prompt.path[i].node].page.frame();
  }
  NodeId nodeOf(const Prompt &prompt, uint32_t index) const { return prompt.path[index].node; }

  // ---- Insertion

  /// The key's root, made when it is not there; kNoNode when no node is free.
  NodeId rootOf(Prompt &prompt);
  /// The child with these tokens, made when it is not there; kNoNode when no node is
  /// free or its bucket is full. `media` is empty for text.
  NodeId childOf(NodeId parent, const Token *tokens, const std::string &media);
  /// Blocks of text one behind the other, the first behind `parent`: for each the child, as
  /// childOf, and its page, where the node has none. Of nodes with one page; at most kMostInserted.
  struct Inserted {
    NodeId last;     ///< the newest child, or the parent
    uint32_t blocks; ///< fewer where the next one could not be inserted
    bool others;     ///< some nodes have pages from others
  };
  static constexpr uint32_t kMostInserted = 64;
  Inserted insertText(NodeId parent, const Token *tokens, std::span<const Frame> pages);
  /// The same of one block, which is held instead of its parent. kNoNode, with nothing changed,
  /// where the parent has children or something else has to be looked at.
  NodeId addLeaf(NodeId parent, const Token *tokens, Frame page);
  PageRef pageAt(NodeId node, uint32_t slot) const {
    return slots == 1 ? nodes[node].page : refs[size_t{node} * slots + slot];
  }
  /// The slot must be empty.
  void attach(NodeId node, uint32_t slot, PageRef page);
  /// Empties a slot; the page stays with its owners, or is free when it has none.
  void detach(NodeId node, uint32_t slot);
  /// Puts another page into a slot that has one; the old one is detached.
  void exchange(NodeId node, uint32_t slot, PageRef page);
  /// A held node outlives its pages.
  void hold(NodeId node) {
    if (nodes[node].inBucket()) [[unlikely]]
      ++info[node].holds;
    else
      ++nodes[node].hash;
  }
  void drop(NodeId node);
  /// Holds a child instead of its parent, which lives as long as the child does.
  void holdChild(NodeId child, NodeId parent) {
    hold(child);
    letGo(parent);
  }
  NodeId parentOf(NodeId node) const { return nodes[node].parent; }
  bool isRoot(NodeId node) const { return nodes[node].parent == kNoNode; }

  // ---- Eviction

  /// Called by a pool that gives up a cached page.
  void evicted(Frame frame, Pool &pool);
  /// Whether a node has one page and no other; then a pool that gives it up calls `lost` instead.
  bool isOnlyPage(Frame, const Pool &pool) const {
    return slots == 1 && !keptSlots.empty() && !pool.isHost() && !mutant(Mutant::StaleEntry);
  }
  void lost(NodeId node) { lost({&node, 1}); }
  /// The same of several, the first one first.
  void lost(std::span<const NodeId> gone);
  /// Begins to load what `evicted` will look at.
  void fetchNode(NodeId node) const {
    __builtin_prefetch(&nodes[node], 1);
    if (slots != 1)
      __builtin_prefetch(&refs[size_t{node} * slots], 1);
  }
  /// What the next insertions look at, and of those behind them each begins to load one.
  void fetchSpares() const {
    for (uint32_t i = 1; i <= std::min(kSoon, spares); ++i) {
      __builtin_prefetch(&nodes[spare[spares - i]], 1);
      __builtin_prefetch(tokensOf(spare[spares - i]), 1);
    }
  }
  /// Forgets all nodes. Nobody may hold one any more.
  void reset();

  EventRing &events() { return ring; }
  /// Calls visit(hash, parentHash) for each block that can be hit, of a cache with events.
  template <typename Visit> void forEachBlock(Visit visit) const {
    for (NodeId n = 0; n < carved && ring.enabled(); ++n)
      if (nodes[n].live() && !isRoot(n) && whole(n))
        visit(chained[n], chained[nodes[n].parent]);
  }
  uint32_t liveNodes() const { return live; }
  uint32_t capacity() const { return static_cast<uint32_t>(nodes.size()); }
  /// Bytes of bookkeeping; the tokens are apart.
  uint64_t bytes() const;
  uint64_t tokenBytes() const { return tokenMemory.size() * sizeof(Token); }
  Status check() const;

private:
  static constexpr uint32_t kInBucket = uint32_t{1} << 31, kMedia = uint32_t{1} << 30;
  struct Node {
    /// Where its bucket is. Of one that is in none, as an only child may be: how many hold it, and
    /// kMedia. 0 says at once that nothing but parent, child and page are to be looked at.
    uint32_t hash = 0;
    NodeId parent = kNoNode;
    /// In its bucket, a ring: behind the oldest a newer one, behind the newest the oldest. Or in
    /// the list of free nodes. Else a guess for prefetching: kAhead blocks further.
    NodeId next = kNoNode;
    NodeId firstChild = kNoNode, nextSibling = kNoNode, prevSibling = kNoNode;
    uint32_t serial = 0; ///< odd while it lives; another one each time the node is used anew
    PageRef page;        ///< where a block has one page; else see `refs`
    bool inBucket() const { return hash & kInBucket; }
    bool live() const { return serial & 1; }
  };
  static_assert(sizeof(Node) == 32);
  struct Info {         // of a node that does not live, as at the start
    uint16_t holds = 0; ///< while it is in a bucket
    bool media = false;
  };
  static_assert(sizeof(Info) == 4);
  /// The newest of its nodes, and how many there are, in one word.
  class Bucket {
  public:
    NodeId newest() const { return value ? value >> kBits : kNoNode; }
    uint32_t size() const { return value & ((1u << kBits) - 1); }
    void set(NodeId newest, uint32_t size) { value = size ? newest << kBits | size : 0; }
    static constexpr uint32_t kBits = 5; ///< of the size
    static_assert(kMaxChain < 1u << kBits);

  private:
    uint32_t value = 0;
  };
  static constexpr uint64_t kMostNodes = (uint64_t{1} << (32 - Bucket::kBits)) - 1;

  /// Blocks of a path that are fetched ahead.
  static constexpr uint32_t kAhead = 8;
  static constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;
  uint64_t chain(uint64_t parent, uint64_t own) const {
    uint64_t mixed = ((parent << 23 | parent >> 41) ^ own) * kGolden;
    return (mixed ^ mixed >> 32) & hashMask;
  }
  uint64_t hashOf(const Token *tokens, const std::string &media) const;
  /// Of a child, from its own hash.
  uint32_t addressOf(NodeId parent, uint64_t own) const {
    uint64_t mixed = (own ^ parent * kGolden) * kGolden;
    return static_cast<uint32_t>((mixed >> 32 & hashMask) | kInBucket);
  }
  uint32_t bucketOf(uint32_t hash) const {
    return static_cast<uint32_t>(uint64_t{hash * static_cast<uint32_t>(kGolden)} * buckets.size() >>
                                 32);
  }
  /// Visits a bucket's nodes, beginning with the newest.
  NodeId nextIn(NodeId newest, NodeId n) const {
    NodeId next = nodes[n].next;
    return next == newest ? kNoNode : next;
  }
  const Token *tokensOf(NodeId node) const { return tokenMemory.data() + size_t{node} * block; }
  bool matches(NodeId node, NodeId parent, const Token *tokens, const std::string &media) const;
  NodeId inBucket(uint32_t hash, NodeId parent, const Token *tokens,
                  const std::string &media) const;
  NodeId findChild(NodeId parent, const Token *tokens, const std::string &media) const;
  uint32_t holdsOf(NodeId node) const {
    return nodes[node].inBucket() ? info[node].holds : nodes[node].hash & ~kMedia;
  }
  void letGo(NodeId node) {
    if (nodes[node].inBucket()) [[unlikely]]
      --info[node].holds;
    else
      --nodes[node].hash;
  }
  bool enterBucket(NodeId node, uint32_t hash);
  void leaveBucket(NodeId node);
  NodeId addChild(NodeId parent, const Token *tokens, const std::string &media);
  uint32_t addChain(NodeId parent, const Token *tokens, std::span<const Frame> pages, NodeId &last);
  void copyTokens(NodeId node, const Token *tokens);
  static const std::string &keyOf(const Prompt &prompt);
  NodeId findRoot(Prompt &prompt);
  uint32_t livingBlocks(const std::vector<Prompt::Seen> &path) const;
  uint32_t rememberedBlocks(const Prompt &prompt) const;
  uint32_t lastBlocks();
  Hit search(Prompt &prompt, Use use);
  void follow(Prompt &prompt, NodeId root);
  void followLast(Prompt &prompt, NodeId &at, uint32_t blocks);
  void followTree(Prompt &prompt, NodeId at, uint32_t blocks);
  void chooseTail(const Prompt &prompt, NodeId root, Hit &hit) const;
  uint32_t commonTokens(const Prompt &prompt, NodeId child, uint32_t begin) const;
  uint32_t lastMissing(const Prompt &prompt, const Hit &hit, bool useHost) const;
  bool whole(NodeId node) const {
    if (slots == 1)
      return keptSlots.empty() || !nodes[node].page.empty();
    for (uint32_t slot : keptSlots)
      if (refs[size_t{node} * slots + slot].empty())
        return false;
    return true;
  }
  bool named(NodeId node) const;
  bool clear(NodeId node, uint32_t slot);
  void afterLoss(NodeId node, bool lost);
  PageRef &refAt(NodeId node, uint32_t slot) {
    return slots == 1 ? nodes[node].page : refs[size_t{node} * slots + slot];
  }
  NodeId newNode();
  /// The node that was freed last, or one that was never used; kNoNode when there is none. Begins
  /// to load one that is taken soon.
  NodeId takeNode() {
    if (!spares) [[unlikely]]
      return takeListed();
    // The node itself was looked at when it was freed.
    __builtin_prefetch(tokensOf(spare[(spares - 1 - kSoon) % spare.size()]), 1);
    return spare[--spares];
  }
  NodeId takeListed();
  void listSpares();
  void removeIfUnused(NodeId node);
  void unlink(NodeId node);
  void unlinkChild(NodeId node);
  void lose(NodeId node);
  /// Nobody holds it, nobody knows it any more.
  void free(NodeId n) {
    Node &node = nodes[n];
    ++changes;
    ++node.serial;
    if (spares == spare.size()) [[unlikely]]
      listSpares();
    spare[spares++] = n;
    --live;
  }
  void announce(CacheEvent::Kind kind, NodeId node);
  Status checkPages(NodeId node) const;
  Status checkNames() const;
  Pool &poolOf(PageRef page) { return page.onHost() ? *host : device; }

  bool on, partialHits;
  uint64_t seed, hashMask;
  std::array<uint64_t, 8> keys; ///< see BlockHash.h
  Pool &device;
  Pool *host;
  uint32_t block = 1, slots = 0;
  std::vector<GroupSpec> groups;
  std::vector<uint32_t> slotBase, pagesPerBlock;
  std::vector<uint32_t> keptSlots; ///< of groups that keep all
  std::vector<Node, LargePages<Node>> nodes;
  std::vector<Info, LargePages<Info>> info;
  std::vector<PageRef, LargePages<PageRef>> refs; ///< of blocks with several pages
  std::vector<Bucket, LargePages<Bucket>> buckets;
  LargeArray<Token> tokenMemory;
  std::vector<uint64_t> chained; ///< with events: hash of a node's tokens and all before them
  uint32_t carved = 0, live = 0, mediaNodes = 0;
  /// Free nodes: those that were freed last, the newest at the end, and a list of all before them.
  /// A list alone would have to be loaded node by node.
  std::array<NodeId, 512> spare;
  uint32_t spares = 0;
  NodeId freeNodes = kNoNode;
  static constexpr uint32_t kSoon = 8;
  /// Times that a node lost a page and lived on: what is remembered of a path may be
  /// wrong then.
  uint64_t holes = 0;
  uint64_t changes = 1; ///< of what a lookup may find
  /// The path of text that was found last: prompts that begin alike are compared with it, and
  /// hash nothing until they part from it.
  std::vector<Prompt::Seen> lastPath;
  uint64_t lastHoles = 0;                   ///< the count of holes when all of it could be hit
  static constexpr size_t kLastPath = 4096; ///< its longest
  std::unordered_map<std::string, NodeId> roots;
  NodeId lastRoot = kNoNode; ///< that was found last, as long as it lives
  const std::string *lastKey = nullptr;
  std::unordered_map<NodeId, std::string> texts; ///< of a root its key, of others their media
  EventRing ring;
};

} // namespace llmopt::runtime::kv

// Finding the longest usable prefix.
#include "runtime/kv/BlockHash.h"
#include "runtime/kv/Mutants.h"
#include "runtime/kv/PrefixCache.h"

#include <algorithm>

namespace llmopt::runtime::kv {

namespace {

/// Children that are compared for a hit up to the middle of a page.
constexpr uint32_t kMostTails = 8;

const std::string kText;

const std::string &mediaAt(const std::vector<std::string> &media, uint32_t block) {
  return media.empty() ? kText : media[block];
}

} // namespace

/// Blocks of a path that are still there. Nodes have their ancestors as long as they live, so the
/// living ones are a prefix of it.
uint32_t PrefixCache::livingBlocks(const std::vector<Prompt::Seen> &path) const {
  auto alive = [&](const Prompt::Seen &seen) { return nodes[seen.node].serial == seen.serial; };
  if (path.empty() || alive(path.back()))
    return static_cast<uint32_t>(path.size());
  return static_cast<uint32_t>(std::partition_point(path.begin(), path.end(), alive) -
                               path.begin());
}

uint32_t PrefixCache::rememberedBlocks(const Prompt &prompt) const {
  uint32_t count = livingBlocks(prompt.path);
  if (prompt.holes != holes)
    for (uint32_t i = 0; i < count; ++i)
      if (!whole(prompt.path[i].node))
        return i;
  return count;
}

/// Blocks of the path that was found last that can still be hit.
uint32_t PrefixCache::lastBlocks() {
  uint32_t count = livingBlocks(lastPath);
  if (lastHoles == holes)
    return count;
  for (uint32_t i = 0; i < count; ++i)
    if (!whole(lastPath[i].node))
      return i;
  // What is gone does not come back.
  lastPath.resize(count);
  lastHoles = holes;
  return count;
}

/// Appends nodes of the path that was found last, as far as the prompt has the same blocks of
/// text. Each of them is behind the one before as long as it lives, so only tokens are compared.
void PrefixCache::followLast(Prompt &prompt, NodeId &at, uint32_t blocks) {
  if (mutant(Mutant::HashDecides) || mutant(Mutant::ParentIgnored) || mutant(Mutant::MediaIgnored))
    return;
  uint32_t begin = static_cast<uint32_t>(prompt.path.size()), end = std::min(lastBlocks(), blocks);
  if (begin >= end || nodes[lastPath[begin].node].parent != at)
    return;
  uint32_t i = begin;
  for (const Token *own = prompt.ids.data() + size_t{begin} * block; i < end; ++i, own += block) {
    if (i + kAhead < end)
      __builtin_prefetch(tokensOf(lastPath[i + kAhead].node));
    if (!equalTokens(tokensOf(lastPath[i].node), own, block))
      break;
  }
  if (i == begin)
    return;
  prompt.path.insert(prompt.path.end(), lastPath.begin() + begin, lastPath.begin() + i);
  at = lastPath[i - 1].node;
}

/// Appends nodes from the tree, up to `blocks` in all.
void PrefixCache::followTree(Prompt &prompt, NodeId at, uint32_t blocks) {
  uint32_t i = static_cast<uint32_t>(prompt.path.size());
  const Token *own = prompt.ids.data() + size_t{i} * block;
  for (; i < blocks; ++i, own += block) {
    NodeId n = findChild(at, own, mediaAt(prompt.media, i));
    if (n == kNoNode || !whole(n))
      return;
    // What comes later on this way, by a guess.
    if (NodeId later = nodes[n].next; later < carved && !nodes[n].inBucket()) {
      __builtin_prefetch(&nodes[later]);
      __builtin_prefetch(tokensOf(later));
    }
    prompt.path.push_back({n, nodes[n].serial});
    at = n;
  }
}

void PrefixCache::follow(Prompt &prompt, NodeId root) {
  prompt.path.resize(rememberedBlocks(prompt));
  prompt.holes = holes;
  NodeId at = prompt.path.empty() ? root : prompt.path.back().node;
  uint32_t blocks = prompt.size() / block;
  if (prompt.media.empty())
    followLast(prompt, at, blocks);
  size_t known = prompt.path.size();
  followTree(prompt, at, blocks);
  if (prompt.path.size() > known && prompt.media.empty()) {
    lastPath.assign(prompt.path.begin(), prompt.path.begin() + static_cast<long>(std::min<size_t>(
                                                                   prompt.path.size(), kLastPath)));
    lastHoles = holes;
  }
}

uint32_t PrefixCache::commonTokens(const Prompt &prompt, NodeId child, uint32_t begin) const {
  uint32_t most = std::min(block, prompt.size() - 1 - begin), same = 0;
  while (same < most && tokensOf(child)[same] == prompt.ids[begin + same])
    ++same;
  return same;
}

/// Behind whole blocks, the child that shares the most tokens, among the newest few.
void PrefixCache::chooseTail(const Prompt &prompt, NodeId root, Hit &hit) const {
  uint32_t begin = hit.blocks * block, looked = 0;
  if (!mediaAt(prompt.media, std::min<uint32_t>(hit.blocks, prompt.size() / block)).empty())
    return;
  NodeId at = hit.blocks ? prompt.path[hit.blocks - 1].node : root;
  for (NodeId child = nodes[at].firstChild; child != kNoNode && looked < kMostTails;
       child = nodes[child].nextSibling, ++looked) {
    if (mediaNodes && info[child].media)
      continue;
    uint32_t same = commonTokens(prompt, child, begin);
    if (same > hit.tokens - begin) {
      hit.tokens = begin + same;
      hit.tail = child;
    }
  }
}

/// The highest block of which a needed page is missing, or kNoNode: window groups need
/// what the query at hit.tokens sees, the tail has to have all pages of the others.
uint32_t PrefixCache::lastMissing(const Prompt &prompt, const Hit &hit, bool useHost) const {
  uint32_t worst = kNoNode, end = hit.tokens;
  auto usable = [&](uint32_t group, uint32_t page) {
    PageRef ref = pageOf(prompt, hit, group, page);
    return !ref.empty() && (useHost || ref.onDevice());
  };
  auto note = [&](uint32_t found) { worst = worst == kNoNode ? found : std::max(worst, found); };
  for (uint32_t g = 0; g < groups.size(); ++g) {
    const GroupSpec &group = groups[g];
    uint64_t sees = mutant(Mutant::WindowHitBeforeCap) ? hit.chain * block : end;
    uint32_t first = static_cast<uint32_t>(group.firstKey(sees) / group.pageSize);
    // Whole blocks of the path have the pages of groups that keep all, maybe on the host.
    if (group.keepsAll() && useHost)
      first = hit.blocks * pagesPerBlock[g];
    for (uint32_t page = static_cast<uint32_t>(group.pagesFor(end)); page > first; --page)
      if (!usable(g, page - 1)) {
        note(blockOf(g, page - 1));
        break;
      }
    uint32_t sinks = static_cast<uint32_t>(group.pagesFor(std::min(group.sink, end)));
    for (uint32_t page = std::min(sinks, first); page > 0; --page)
      if (!usable(g, page - 1)) {
        note(blockOf(g, page - 1));
        break;
      }
  }
  return worst;
}

PrefixCache::Hit PrefixCache::lookup(Prompt &prompt, Use use) {
  Prompt::Answer &answer = prompt.answers[(use.host ? 2 : 0) + (use.partial ? 1 : 0)];
  if (answer.changes != changes) // admission asks for the same several times
    answer = {search(prompt, use), changes};
  return answer.hit;
}

PrefixCache::Hit PrefixCache::search(Prompt &prompt, Use use) {
  Hit hit;
  bool partial = use.partial && partialHits;
  NodeId root = on && !prompt.bypassHits && prompt.size() > 1 ? findRoot(prompt) : kNoNode;
  if (root == kNoNode) {
    prompt.path.clear();
    return hit;
  }
  follow(prompt, root);
  hit.chain = hit.blocks = static_cast<uint32_t>(prompt.path.size());
  hit.tokens = hit.blocks * block;
  if (hit.tokens == prompt.size() && !mutant(Mutant::WholePromptHit)) {
    // One token has to run: the last page is used up to the token before it.
    --hit.blocks;
    hit.tail = prompt.path.back().node;
    hit.tokens = partial ? prompt.size() - 1 : hit.blocks * block;
  } else if (partial && hit.tokens < prompt.size() - 1) {
    chooseTail(prompt, root, hit);
  }
  for (uint32_t missing; (missing = lastMissing(prompt, hit, use.host)) != kNoNode;) {
    hit.blocks = std::min(missing, hit.blocks);
    hit.tokens = hit.blocks * block;
    hit.tail = kNoNode;
  }
  if (hit.tokens <= hit.blocks * block)
    hit.tail = kNoNode;
  return hit;
}

} // namespace llmopt::runtime::kv

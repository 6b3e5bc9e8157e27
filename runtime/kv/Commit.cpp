// What a completed row changes: lengths, hashed pages, and pages behind the window.
#include "runtime/kv/BlockManager.h"
#include "runtime/kv/Mutants.h"

#include <algorithm>
#include <cstring>

namespace llmopt::runtime::kv {

namespace {

const std::string kText;

} // namespace

Reply BlockManager::commit(SequenceId id, StepId step, std::span<const Token> tokens,
                           uint32_t unsettled) {
  Sequence *s = find(id);
  if (!s)
    return Reply::UnknownSequence;
  if (step != completed + 1 || step > closed)
    return Reply::WrongStep;
  uint32_t &reserved = row(id.slot, step);
  if (reserved == 0)
    return Reply::WrongRow;
  if (tokens.size() > reserved || unsettled > tokens.size() || unsettled > config.maxDraft)
    return Reply::InvalidArgument;
  if (!mutant(Mutant::RollbackForgotten))
    s->bound -= reserved - static_cast<uint32_t>(tokens.size());
  --s->rows;
  --rowsOfStep[place(step)];
  reserved = 0;
  commitTokens(id.slot, tokens, unsettled);
  return Reply::Ok;
}

void BlockManager::commitTokens(uint32_t slot, std::span<const Token> tokens, uint32_t unsettled) {
  Sequence &s = sequences[slot];
  uint32_t had = s.committed;
  s.committed += static_cast<uint32_t>(tokens.size());
  s.unsettled = mutant(Mutant::UnsettledHashed) ? 0 : unsettled;
  if (s.node != kNoNode)
    insertTokens(slot, had, tokens);
  if (oldestQuery(s) >= s.releaseAt)
    releaseUnseen(slot);
  s.plainEnd = plainEndOf(s);
}

/// commitTokens of what ends a block, where it is text behind which nobody else has gone on: nearly
/// all that steady sequences commit. False where it is something else, with nothing changed.
bool BlockManager::commitBlock(uint32_t slot, std::span<const Token> tokens) {
  Sequence &s = sequences[slot];
  const Table &t = table(slot, 0);
  uint32_t have = s.committed - s.blocks * block;
  if (have + tokens.size() != block || s.node == kNoNode || s.media || s.unsettled ||
      prefix->slotsPerNode() != 1 || s.blocks < t.first || s.blocks >= t.size)
    return false;
  const Token *whole = tokens.data();
  if (have) {
    Token *tail = tails.data() + size_t{slot} * tailSize;
    std::copy(tokens.begin(), tokens.end(), tail + have);
    whole = tail;
  }
  NodeId node = prefix->addLeaf(s.node, whole, frames(slot, 0)[s.blocks]);
  if (node == kNoNode)
    return false;
  s.node = node;
  ++s.blocks;
  s.committed += static_cast<uint32_t>(tokens.size());
  if (oldestQuery(s) >= s.releaseAt)
    releaseUnseen(slot);
  s.plainEnd = plainEndOf(s);
  return true;
}

/// Between two commits that are more than a count nothing else changes what it follows from, or
/// only so that it could be higher.
uint32_t BlockManager::plainEndOf(const Sequence &s) const {
  if (s.unsettled)
    return 0;
  uint32_t blockEnd = s.node == kNoNode ? UINT32_MAX : (s.blocks + 1) * block - 1;
  uint32_t ahead = oldestQuery(s) - s.committed + 1;
  return std::min(blockEnd, s.releaseAt - std::min(s.releaseAt, ahead));
}

/// Blocks that are whole and in place go into the cache; the rest waits in the
/// slot's tail.
void BlockManager::insertTokens(uint32_t slot, uint32_t had, std::span<const Token> tokens) {
  Sequence &s = sequences[slot];
  Token *tail = tails.data() + size_t{slot} * tailSize;
  size_t used = 0;
  if (mutant(Mutant::EarlyHash) && had < s.blocks * block) {
    used = std::min<size_t>(tokens.size(), s.blocks * block - had);
    had += static_cast<uint32_t>(used);
  }
  uint32_t have = had - s.blocks * block, settled = s.committed - s.unsettled;
  if (have + tokens.size() < block) { // a decode row, mostly
    for (size_t i = used; i < tokens.size(); ++i)
      tail[have++] = tokens[i];
    return;
  }
  auto mayInsert = [&] { return (s.blocks + 1) * block <= settled; };
  while (true) {
    size_t left = tokens.size() - used;
    if (have == 0 && left >= block && mayInsert()) {
      uint32_t count = static_cast<uint32_t>(std::min<size_t>(
          {left / block, settled / block - s.blocks, size_t{PrefixCache::kMostInserted}}));
      if (!insertBlocks(slot, tokens.data() + used, count))
        return;
      used += size_t{count} * block;
      continue;
    }
    uint32_t room = have < block ? block - have : tailSize - have;
    uint32_t take = static_cast<uint32_t>(std::min<size_t>(left, room));
    std::copy_n(tokens.data() + used, take, tail + have);
    have += take;
    used += take;
    while (have >= block && mayInsert()) {
      if (!insertBlock(slot, tail))
        return;
      have -= block;
      std::memmove(tail, tail + block, have * sizeof(Token));
    }
    if (used == tokens.size())
      return;
  }
}

bool BlockManager::insertBlock(uint32_t slot, const Token *tokens) {
  return insertBlocks(slot, tokens, 1);
}

/// At most PrefixCache::kMostInserted. False when nothing more can be inserted for this sequence.
bool BlockManager::insertBlocks(uint32_t slot, const Token *tokens, uint32_t count) {
  Sequence &s = sequences[slot];
  // The sequence holds the last node: a child keeps those before it, and nothing is evicted here.
  NodeId last = s.node;
  uint32_t i = 0;
  if (const Table &t = table(slot, 0); prefix->slotsPerNode() == 1 && !s.media &&
                                       s.blocks >= t.first && s.blocks + count <= t.size) {
    PrefixCache::Inserted made =
        prefix->insertText(last, tokens, {frames(slot, 0) + s.blocks, count});
    last = made.last;
    i = made.blocks;
    s.blocks += i;
    s.duplicates = s.duplicates || made.others;
  } else {
    for (; i < count; ++i, tokens += block) {
      const std::string &own =
          s.media && s.blocks < media[slot].size() ? media[slot][s.blocks] : kText;
      NodeId node = prefix->childOf(last, tokens, own);
      if (node == kNoNode)
        break;
      last = node;
      attachBlock(slot, s.blocks, node);
      ++s.blocks;
    }
  }
  if (last != s.node)
    prefix->holdChild(last, s.node);
  s.node = last;
  if (i < count)
    stopInserting(slot);
  return i == count;
}

/// The pages of a block become the node's, where it has none yet.
void BlockManager::attachBlock(uint32_t slot, uint32_t index, NodeId node) {
  auto attach = [&](uint32_t nodeSlot, Frame f) {
    if (pages->node(f) == node)
      return;
    if (!prefix->pageAt(node, nodeSlot).empty())
      sequences[slot].duplicates = true;
    else if (pages->node(f) == kNoNode)
      prefix->attach(node, nodeSlot, PageRef::device(f));
  };
  if (prefix->slotsPerNode() == 1) { // one group, a page a block
    if (holdsPage(slot, 0, index))
      attach(0, frames(slot, 0)[index]);
    return;
  }
  for (uint32_t g = 0; g < groups(); ++g) {
    uint32_t each = block / config.groups[g].pageSize;
    for (uint32_t page = index * each; page < (index + 1) * each; ++page) {
      if (holdsPage(slot, g, page))
        attach(prefix->slotOf(g, page), frames(slot, g)[page]);
    }
  }
}

void BlockManager::stopInserting(uint32_t slot) {
  Sequence &s = sequences[slot];
  if (s.node != kNoNode)
    prefix->drop(s.node);
  s.node = kNoNode;
}

/// At the end of a sequence: where the page that was there first has been evicted, the
/// sequence's own takes its place in the cache.
void BlockManager::adoptDuplicates(uint32_t slot) {
  Sequence &s = sequences[slot];
  if (!s.duplicates || s.node == kNoNode)
    return;
  NodeId node = s.node;
  for (uint32_t index = s.blocks; index-- > 0; node = prefix->parentOf(node))
    attachBlock(slot, index, node);
}

// ---- Windows

/// Pages that no query at or behind the oldest may see, the tail first.
void BlockManager::releaseUnseen(uint32_t slot) {
  Sequence &s = sequences[slot];
  uint32_t oldest = oldestQuery(s);
  for (uint32_t g = 0; g < groups(); ++g) {
    const GroupSpec &group = config.groups[g];
    if (group.keepsAll())
      continue;
    Table &t = table(slot, g);
    uint32_t first =
        std::min(t.size, static_cast<uint32_t>(group.firstKey(oldest) / group.pageSize));
    if (first <= t.first)
      continue;
    for (uint32_t page = first; page > std::max(t.first, sinkPages(g)); --page)
      pages->dropRef(frames(slot, g)[page - 1], 0);
    t.first = first;
    markDirty(slot);
  }
  updateRelease(slot);
}

void BlockManager::updateRelease(uint32_t slot) {
  uint64_t next = UINT32_MAX;
  for (uint32_t g = 0; g < groups(); ++g) {
    const GroupSpec &group = config.groups[g];
    uint64_t page = std::max(table(slot, g).first, sinkPages(g));
    uint64_t end = (page + 1) * group.pageSize;
    if (group.kind == GroupKind::Window)
      next = std::min(next, end + group.window - 1);
    else if (group.kind == GroupKind::Chunked)
      next = std::min(next, (end + group.chunk - 1) / group.chunk * group.chunk);
  }
  sequences[slot].releaseAt = static_cast<uint32_t>(std::min<uint64_t>(next, UINT32_MAX));
}

} // namespace llmopt::runtime::kv

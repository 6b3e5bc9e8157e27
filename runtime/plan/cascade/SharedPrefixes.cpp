#include "runtime/plan/cascade/SharedPrefixes.h"

#include <algorithm>

namespace llmopt::runtime {

SharedPrefixes::SharedPrefixes(uint32_t slots, uint32_t columns, uint32_t pageSize)
    : slots(slots), columns(columns), pageSize(pageSize), nodes(size_t{slots} * 2), list(slots) {
  for (uint32_t n = 2 * slots; n > slots; --n)
    freeNodes.push_back(n - 1);
}

uint32_t SharedPrefixes::anySlotBelow(uint32_t node) const {
  while (!isLeaf(node))
    node = nodes[node].firstChild;
  return node;
}

void SharedPrefixes::attach(uint32_t node, uint32_t parent) {
  Node &own = nodes[node];
  uint32_t &first = firstChildOf(parent);
  own.parent = parent;
  own.previous = kNoPrefix;
  own.next = first;
  if (first != kNoPrefix)
    nodes[first].previous = node;
  first = node;
  if (!isLeaf(node))
    list[node - slots].parent = parent == kRoot ? kNoPrefix : parent - slots;
}

void SharedPrefixes::detach(uint32_t node) {
  Node &own = nodes[node];
  if (own.previous != kNoPrefix)
    nodes[own.previous].next = own.next;
  else
    firstChildOf(own.parent) = own.next;
  if (own.next != kNoPrefix)
    nodes[own.next].previous = own.previous;
  own.parent = kNoPrefix;
}

/// Takes a leaf out; a node with one child left goes too. Returns the nearest node that stays.
uint32_t SharedPrefixes::leave(uint32_t slot) {
  uint32_t parent = nodes[slot].parent;
  if (parent == kNoPrefix)
    return kRoot;
  detach(slot);
  if (parent == kRoot)
    return kRoot;
  uint32_t only = nodes[parent].firstChild;
  if (nodes[only].next != kNoPrefix)
    return parent;
  uint32_t above = nodes[parent].parent;
  detach(only);
  detach(parent);
  attach(only, above);
  nodes[parent] = {};
  list[parent - slots] = {};
  freeNodes.push_back(parent);
  return above;
}

/// A new node above `child`, which ends inside of it.
uint32_t SharedPrefixes::split(uint32_t child, uint32_t end) {
  uint32_t node = freeNodes.back(), above = nodes[child].parent;
  freeNodes.pop_back();
  detach(child);
  nodes[node].end = end;
  list[node - slots].keyEnd = end * pageSize;
  attach(node, above);
  attach(child, node);
  return node;
}

/// Finds a leaf's place below `at`, whose pages it begins with.
void SharedPrefixes::enter(uint32_t slot, uint32_t at, std::span<const int32_t> tables) {
  const int32_t *own = tables.data() + size_t{slot} * columns;
  uint32_t length = nodes[slot].end;
  while (endOf(at) < length) {
    uint32_t begin = endOf(at), child = firstChildOf(at);
    const int32_t *other = nullptr;
    for (; child != kNoPrefix; child = nodes[child].next) {
      ++comparisons;
      other = tables.data() + size_t{anySlotBelow(child)} * columns;
      if (nodes[child].end > begin && other[begin] == own[begin])
        break;
    }
    if (child == kNoPrefix)
      break;
    uint32_t most = std::min(length, nodes[child].end), end = begin + 1;
    while (end < most && other[end] == own[end])
      ++end;
    comparisons += end - begin;
    at = !isLeaf(child) && end == nodes[child].end ? child : split(child, end);
  }
  attach(slot, at);
}

void SharedPrefixes::change(uint32_t slot, uint32_t index, uint32_t count,
                            std::span<const int32_t> tables) {
  Node &leaf = nodes[slot];
  bool present = leaf.parent != kNoPrefix;
  uint32_t had = present ? leaf.end : 0;
  if (index > had)
    return; // behind a gap: nothing there is a prefix
  const int32_t *own = tables.data() + size_t{slot} * columns;
  uint32_t end = index;
  while (end < index + count && own[end] >= 0)
    ++end;
  if (index == had && end == had)
    return;
  // It has parted from all others already.
  if (present && index == had && had > endOf(leaf.parent)) {
    leaf.end = end;
    return;
  }
  uint32_t at = leave(slot);
  while (endOf(at) > index)
    at = nodes[at].parent;
  leaf.end = end;
  if (end > 0)
    enter(slot, at, tables);
}

bool SharedPrefixes::agrees(std::span<const int32_t> tables) const {
  auto common = [&](uint32_t a, uint32_t b) {
    uint32_t most = std::min(nodes[a].end, nodes[b].end), end = 0;
    while (end < most && tables[size_t{a} * columns + end] == tables[size_t{b} * columns + end])
      ++end;
    return end;
  };
  for (uint32_t a = 0; a < slots; ++a) {
    if (nodes[a].parent == kNoPrefix)
      continue;
    uint32_t deepest = 0;
    for (uint32_t b = 0; b < slots; ++b)
      if (b != a && nodes[b].parent != kNoPrefix)
        deepest = std::max(deepest, common(a, b));
    if (deepest != endOf(nodes[a].parent))
      return false;
    for (uint32_t up = nodes[a].parent; up != kRoot; up = nodes[up].parent) {
      const PrefixNode &node = list[up - slots];
      uint32_t above = nodes[up].parent;
      if (node.keyEnd != nodes[up].end * pageSize || nodes[up].end <= endOf(above) ||
          node.parent != (above == kRoot ? kNoPrefix : above - slots))
        return false;
    }
  }
  return true;
}

} // namespace llmopt::runtime

// What a router in front of several servers wants to know: which blocks this
// server's prefix cache holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace llmopt::runtime::kv {

struct CacheEvent {
  enum class Kind : uint8_t {
    Stored,  ///< `block` after `parent` can be hit (all groups' pages that it has)
    Removed, ///< `block` cannot be hit any more
    Cleared, ///< none can
  };
  Kind kind = Kind::Stored;
  uint64_t block = 0;  ///< chained hash, equal on all ranks with the same seed
  uint64_t parent = 0; ///< of the block before; the key's root hash for the first
};

/// A ring of fixed size. A reader that comes too late sees `lost() > 0` and asks
/// for the whole content (`PrefixCache::forEachBlock`).
class EventRing {
public:
  EventRing() = default;
  explicit EventRing(uint32_t capacity) : ring(capacity) {}

  bool enabled() const { return !ring.empty(); }
  void push(const CacheEvent &event) {
    ring[(head + count) % ring.size()] = event;
    if (count < ring.size()) {
      ++count;
    } else {
      head = (head + 1) % ring.size();
      ++dropped;
    }
  }
  /// Takes the oldest event; false when there is none.
  bool pop(CacheEvent &event) {
    if (count == 0)
      return false;
    event = ring[head];
    head = (head + 1) % ring.size();
    --count;
    return true;
  }
  /// Events overwritten since the last call.
  uint64_t lost() {
    uint64_t result = dropped;
    dropped = 0;
    return result;
  }

private:
  std::vector<CacheEvent> ring;
  size_t head = 0, count = 0;
  uint64_t dropped = 0;
};

} // namespace llmopt::runtime::kv

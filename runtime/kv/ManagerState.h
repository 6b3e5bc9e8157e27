// What the block manager keeps for each sequence, copy and transfer.
#pragma once

#include "runtime/base/AlignedBuffer.h"
#include "runtime/kv/Admission.h"
#include "runtime/kv/PoolLayout.h"
#include "runtime/kv/PrefixCache.h"

#include <vector>

namespace llmopt::runtime::kv {

/// Memory whose pages the system gives when they are first touched: large tables of
/// which little is used cost little. Not initialised.
template <typename T> class LazyArray {
public:
  LazyArray() = default;
  explicit LazyArray(size_t size) : memory(size * sizeof(T)) {}
  T *data() { return reinterpret_cast<T *>(memory.data()); }
  const T *data() const { return reinterpret_cast<const T *>(memory.data()); }

private:
  AlignedBuffer memory;
};

enum class Phase : uint8_t {
  None,    ///< the slot is free, or waits for a step of its last sequence
  Running, ///< in device memory
  Leaving, ///< the copy to host memory is under way
  Swapped, ///< in host memory; the tables name host frames
};

inline constexpr uint32_t kNoSlot = UINT32_MAX;

/// A cache line. A step looks at those with a row that is not steady, and lengths of steady ones
/// follow from the steps (BlockManager::committedOf).
struct alignas(64) Sequence {
  uint32_t committed = 0, bound = 0;
  uint32_t capacity = 0;  ///< tokens for which every table has a page, up to the longest length
  uint32_t releaseAt = 0; ///< committed tokens at which the next page may go
  uint32_t plainEnd =
      0;               ///< while less is committed, a token more ends no block and lets no page go
  uint32_t rows = 0;   ///< unfinished
  uint32_t blocks = 0; ///< that `node` and its ancestors stand for
  NodeId node = kNoNode;  ///< held; kNoNode when nothing more is to be inserted
  uint32_t unsettled = 0; ///< committed tokens that are not in place yet
  uint32_t generation = 0;
  uint32_t transfer = kNoSlot; ///< that fills its pages: no rows meanwhile
  StepId steadyFrom = 0;       ///< the completed step when it became steady
  Frame lastPage = 0;          ///< a guess for prefetching: the last one of the first group
  Phase phase = Phase::None;
  bool media = false;      ///< its prompt has some
  bool dirty = false;      ///< in the list of tables to tell the device about
  bool fresh = false;      ///< the device's tables are another sequence's
  bool sharedTail = false; ///< look at the last page before writing
  bool duplicates = false; ///< has pages whose content the cache has from others
  bool steady = false;     ///< lengths and rows above are those of `steadyFrom`
};
static_assert(sizeof(Sequence) == 64);

/// One sequence's table in one group: entries [0, sink pages) and [first, size) name
/// frames.
struct Table {
  uint32_t size = 0, first = 0;
  uint32_t sentSize = 0, sentFirst = 0; ///< as the device knows it
  uint32_t replaced = UINT32_MAX;       ///< an entry that became a copy since
};

/// Copies between device and host under one event. The job owns a reference to each
/// frame of both sides.
struct CopyJob {
  enum class Kind : uint8_t { SwapOut, SwapIn, Load, Demote };
  struct Item {
    Frame device = kNoFrame, host = kNoFrame;
    NodeId node = kNoNode; ///< held, of the cache's pages
    uint16_t group = 0;
    uint8_t nodeSlot = 0;
    bool partial = false; ///< for the sequence alone, not for the node
    bool marked = false;  ///< the device frame is Swapping because of this item
  };
  EventId event = 0;
  SequenceId sequence;
  Kind kind = Kind::SwapOut;
  bool active = false;
  std::vector<Item> items;
};

struct Transfer {
  enum class Phase : uint8_t { None, Reserved, Started, Aborted };
  struct Item {
    Frame frame = kNoFrame;
    bool marked = false; ///< the frame is Pinned because of this transfer
  };
  uint32_t generation = 0;
  Phase phase = Phase::None;
  bool send = false;
  uint32_t tokens = 0;
  SequenceId sequence;
  std::vector<Item> items;
};

} // namespace llmopt::runtime::kv

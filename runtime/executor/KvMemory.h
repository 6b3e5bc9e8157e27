// The device side of the block manager: the bytes of all pages, the block tables that
// kernels read, and host memory for pages that were swapped out.
//
// Page p of a layer group lies at byte p * pageBytes of one range that all groups share
// (kv/PoolLayout.h). Inside, layer after layer, K and then V (LayerKernels.h).
#pragma once

#include "runtime/device/Arguments.h"
#include "runtime/device/Device.h"
#include "runtime/executor/LayerKernels.h"
#include "runtime/executor/StepRows.h"
#include "runtime/kv/Admission.h"
#include "runtime/kv/PageMemory.h"
#include "runtime/kv/PageMover.h"
#include "runtime/kv/PoolLayout.h"
#include "runtime/plan/cascade/SharedPrefixes.h"

#include <span>
#include <vector>

namespace llmopt::runtime {

struct KvMemoryChecks {
  /// Fills memory with NaN before its first use, and pages that become free (needs
  /// ManagerOptions::reportFrees): a read of what nobody wrote shows in the results.
  bool poison = false;
  /// Keeps a hash of each page that goes to host memory and compares when it comes back.
  bool verifySwaps = false;
};

class KvMemory {
public:
  KvMemory() = default;
  /// InvalidArgument where a group's page has another size than its layers need;
  /// ResourceExhausted where the memory is not there.
  static StatusOr<KvMemory> create(Device &device, Stream &stream,
                                   const kv::ManagerOptions &options,
                                   std::span<const LayerGroup> groups,
                                   const KvMemoryChecks &checks);

  /// The table changes of a step or a snapshot (none, where a snapshot held them already),
  /// then its page copies.
  Status apply(const StepInput &input, bool tables, Stream &stream);
  /// Tokens of sequences to other slots of them, in all groups and layers.
  Status moveTokens(std::span<const TokenMove> moves, Stream &stream);
  Status copyOut(std::span<const kv::PageMove> moves, Stream &stream);
  /// DataLoss where a page is not as it was (only with `verifySwaps`).
  Status copyIn(std::span<const kv::PageMove> moves, Stream &stream);

  /// Slot in a pool of a sequence's token; -1 where its table has no page.
  int64_t slotOf(uint32_t group, uint32_t tableSlot, uint32_t position) const;
  /// (table slots, columns), on the device; or all of it in one dimension.
  ArrayRef table(uint32_t group, bool flat) const;
  /// Pages of a layer, by its place in its group, as its kernels see them; where K and V lie in
  /// one pool, `keys` is that pool.
  ArrayRef keys(uint32_t group, uint32_t layer) const;
  ArrayRef values(uint32_t group, uint32_t layer) const;

  /// For those who read or write pages beside the executor.
  kv::PageMemory describe(const DeviceFacts &device) const;

  uint32_t columns(uint32_t group) const { return tables[group].columns; }
  /// Which sequences begin with the same pages.
  const SharedPrefixes &prefixes(uint32_t group) const { return tables[group].prefixes; }
  uint64_t pagesSwapped() const { return swapped; } ///< out and in

private:
  struct Table {
    uint32_t columns = 0;
    std::vector<int32_t> entries; ///< the host's copy
    SharedPrefixes prefixes;
    DeviceMemory memory;
  };

  uint8_t *page(uint32_t group, kv::PageId id) const;
  uint8_t *hostPage(uint32_t group, kv::PageId id);
  Status applyTables(const StepInput &input, Stream &stream);
  ArrayRef pool(uint32_t group, uint32_t layer, bool values) const;
  Status moveToken(uint32_t group, const ArrayRef &array, int64_t from, int64_t to, Stream &stream);

  std::vector<LayerGroup> groups;
  uint32_t tableSlots = 0;
  kv::PoolLayout layout, hostLayout;
  DeviceMemory pages;
  std::vector<uint8_t> host;
  std::vector<Table> tables;
  std::vector<std::vector<uint64_t>> hashes; ///< of each group's host pages
  KvMemoryChecks checks;
  uint64_t swapped = 0;
};

} // namespace llmopt::runtime

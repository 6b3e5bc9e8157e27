// Where the bytes of pages lie: what a connector to other machines registers with its network,
// and how both sides find a page.
//
//   page p of layer group g           base + p * groups[g].pageBytes, so many bytes long
//   in it, layer groups[g].layers[i]  K at i * layerBytes, V at i * layerBytes + keyBytes
//   K of a layer                      (slots, heads, keyDim); headMajor: (heads, slots, keyDim)
//
// All groups share the one range of bytes; whose page it is at a time, the block manager knows.
#pragma once

#include "runtime/base/Status.h"
#include "runtime/kv/StepTables.h"

#include <cstdint>
#include <string>
#include <vector>

namespace llmopt::runtime::kv {

/// Pages of groups that are equal may be copied byte for byte, also between machines.
struct GroupMemory {
  uint64_t pageBytes = 0; ///< of a page, and from each to the next
  std::vector<uint32_t> layers;
  uint64_t layerBytes = 0, keyBytes = 0; ///< of a page's part of a layer; of K in it
  uint32_t slots = 0, heads = 0, keyDim = 0, valueDim = 0;
  std::string type; ///< of an element: "f32", "bf16", ...
  bool headMajor = false;
  bool operator==(const GroupMemory &) const = default;
};

struct PageMemory {
  uint8_t *base = nullptr; ///< an address of the device
  uint64_t bytes = 0;
  bool onHost = true;         ///< host memory; else the device's own
  std::string device = "cpu"; ///< kind: "cpu", "cuda", "sim"
  uint32_t deviceOrdinal = 0; ///< among those of its kind
  std::vector<GroupMemory> groups;

  uint8_t *page(uint32_t group, PageId id) const {
    return base + uint64_t(id) * groups[group].pageBytes;
  }
};

/// Somebody who reads or writes pages beside the executor. Called by the thread that makes, runs
/// or frees the executor; must not call it, or its server, back.
class PageMemoryUser {
public:
  virtual ~PageMemoryUser() = default;
  /// The memory is there, and stays where it is until `detach`. Comes before anything else, and
  /// again after each `detach` of a device that was lost and reopened. What is returned is the
  /// failure of whoever makes or reopens the executor; then no `detach` follows.
  virtual Status attach(const PageMemory &memory) = 0;
  /// The memory goes as soon as this returns: nobody may read or write it any more then, peers
  /// included. Transfers under way are over, with no note about them.
  virtual void detach() = 0;
};

} // namespace llmopt::runtime::kv

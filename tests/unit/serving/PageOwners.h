// Who wrote the pages of a simulated device: with which adapter, and whether others may find them.
#pragma once

#include "runtime/kv/PageMover.h"

#include <cstdint>
#include <map>
#include <span>
#include <utility>

namespace llmopt::test {

struct PageOwner {
  uint32_t adapter = 0;
  char alone = 0; ///< nobody but the samples of this request; 0: who will
};

/// Follows writes and copies in the order in which the device has them. Of a page that it does not
/// know (a peer's) it says nothing.
class PageOwners {
public:
  void write(uint32_t group, int32_t page, PageOwner owner) {
    if (page < 0)
      return;
    device[{group, page}] = owner;
    ++changes[{group, page}];
  }
  /// How often its content has changed.
  uint64_t changesOf(uint32_t group, int32_t page) const {
    auto found = changes.find({group, page});
    return found == changes.end() ? 0 : found->second;
  }
  bool mayRead(uint32_t group, int32_t page, uint32_t adapter, char reader) const {
    auto found = device.find({group, page});
    if (found == device.end())
      return true;
    const PageOwner &owner = found->second;
    return owner.adapter == adapter && (!owner.alone || owner.alone == reader);
  }
  void copy(uint32_t group, int32_t from, int32_t to) {
    move(device, {group, from}, device, {group, to});
    ++changes[{group, to}];
  }
  void copyOut(std::span<const llmopt::runtime::kv::PageMove> moves) {
    for (const auto &one : moves)
      move(device, {one.group, one.device}, host, {one.group, one.host});
  }
  void copyIn(std::span<const llmopt::runtime::kv::PageMove> moves) {
    for (const auto &one : moves) {
      move(host, {one.group, one.host}, device, {one.group, one.device});
      ++changes[{one.group, one.device}];
    }
  }

private:
  using Page = std::pair<uint32_t, int32_t>;
  using Pages = std::map<Page, PageOwner>;

  static void move(const Pages &from, Page source, Pages &to, Page target) {
    if (auto found = from.find(source); found != from.end())
      to[target] = found->second;
    else
      to.erase(target);
  }

  Pages device, host;
  std::map<Page, uint64_t> changes; ///< of the device's pages
};

} // namespace llmopt::test

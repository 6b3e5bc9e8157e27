// Layer groups: layers whose KV pages live and die together, since they have the
// same mask and the same page layout. A model has one or several (Gemma 2: full
// and window); each sequence has one block table for each group.
//
// What a group has to keep follows from its mask's MAY intervals. For the kinds
// here they are, for the query at position t,
//
//   keys [0, sink)  and  [firstKey(t), t]
//
// with firstKey never falling as t grows: a page goes for good when it lies behind
// the sink and before firstKey of the oldest query that is still to run.
#pragma once

#include "runtime/base/Status.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace llmopt::runtime::kv {

/// Most layer groups of one manager.
inline constexpr uint32_t kMaxGroups = 16;

enum class GroupKind : uint8_t {
  /// Every earlier key is visible.
  Full,
  /// The newest `window` keys, the query's own among them; and the first `sink`.
  Window,
  /// Keys of the query's own chunk of `chunk` positions (Llama 4).
  Chunked,
  /// As Full; one tensor of latents instead of K and V (MLA).
  Latent,
  /// One state a sequence instead of pages (Mamba). Known, refused by `validate`.
  Recurrent,
  /// Keys of an encoder, fixed in number. Known, refused by `validate`.
  CrossAttention,
};

std::string_view toString(GroupKind kind);

/// One layer group. A page is an opaque run of bytes: data of all layers of the
/// group and the scale blocks that belong to it. Copy, fork and swap move all of
/// it, so a quantised page never parts from its scales.
struct GroupSpec {
  GroupKind kind = GroupKind::Full;
  uint32_t pageSize = 16;  ///< slots
  uint64_t dataBytes = 0;  ///< of one page on one rank, all layers of the group
  uint64_t scaleBytes = 0; ///< of one page's scale block on one rank
  uint32_t window = 0;     ///< Window: keys, at least 1
  uint32_t sink = 0;       ///< Window: keys that stay visible from the start
  uint32_t chunk = 0;      ///< Chunked: positions, at least 1

  uint64_t pageBytes() const { return dataBytes + scaleBytes; }

  /// First key behind the sink that a query at `position` may see.
  uint64_t firstKey(uint64_t position) const {
    switch (kind) {
    case GroupKind::Window:
      return position + 1 > window ? position + 1 - window : 0;
    case GroupKind::Chunked:
      return position / chunk * chunk;
    default:
      return 0;
    }
  }
  /// Whether every earlier page stays visible.
  bool keepsAll() const { return kind == GroupKind::Full || kind == GroupKind::Latent; }
  /// Pages that keys [0, tokens) cover.
  uint64_t pagesFor(uint64_t tokens) const { return (tokens + pageSize - 1) / pageSize; }
  /// Pages that must be held while queries [tokens - queries, tokens) run.
  uint64_t pagesHeld(uint64_t tokens, uint64_t queries) const;

  bool operator==(const GroupSpec &) const = default;
};

/// InvalidArgument for a wrong number, Unsupported for a kind that is known and
/// not served.
Status validate(std::span<const GroupSpec> groups);

/// Slots of a cache block: the least common multiple of the page sizes.
uint64_t blockSize(std::span<const GroupSpec> groups);

} // namespace llmopt::runtime::kv

#include "runtime/kv/Groups.h"

#include "runtime/base/Checked.h"

#include <algorithm>
#include <numeric>

namespace llmopt::runtime::kv {

namespace {

/// Longest cache block: beyond it a hit would be too coarse to be worth much.
constexpr uint64_t kMaxBlock = 4096;
/// Pages of all groups in one cache block; a page's place in it is kept in a byte.
constexpr uint64_t kMaxPagesPerBlock = 128;

Status validateOne(size_t index, const GroupSpec &group) {
  if (group.kind == GroupKind::Recurrent || group.kind == GroupKind::CrossAttention)
    return makeStatus(StatusCode::Unsupported,
                      "layer group {} is of kind {}, which has no pages; served are full, window, "
                      "chunked and latent groups; keep such state outside the block manager",
                      index, toString(group.kind));
  if (group.pageSize == 0 || group.pageSize > kMaxBlock)
    return invalidArgument("layer group {} has pages of {} slots; allowed are 1 to {}", index,
                           group.pageSize, kMaxBlock);
  constexpr uint64_t kMostBytes = uint64_t{1} << 40;
  uint64_t bytes = sumOrMost(group.dataBytes, group.scaleBytes);
  if (group.dataBytes == 0 || bytes > kMostBytes)
    return invalidArgument("layer group {} has pages of {} bytes; allowed are 1 to 2^40", index,
                           bytes);
  if (group.kind == GroupKind::Window && group.window == 0)
    return invalidArgument("layer group {} has a window of 0 keys; at least 1 is needed, since it "
                           "counts the query's own",
                           index);
  if (group.kind == GroupKind::Chunked && group.chunk == 0)
    return invalidArgument("layer group {} has chunks of 0 positions; at least 1 is needed", index);
  return {};
}

} // namespace

std::string_view toString(GroupKind kind) {
  switch (kind) {
  case GroupKind::Full:
    return "full";
  case GroupKind::Window:
    return "window";
  case GroupKind::Chunked:
    return "chunked";
  case GroupKind::Latent:
    return "latent";
  case GroupKind::Recurrent:
    return "recurrent";
  case GroupKind::CrossAttention:
    return "cross-attention";
  }
  return "unknown";
}

uint64_t GroupSpec::pagesHeld(uint64_t tokens, uint64_t queries) const {
  uint64_t all = pagesFor(tokens);
  if (keepsAll() || tokens == 0)
    return all;
  uint64_t oldest = tokens - std::min(tokens, std::max<uint64_t>(queries, 1));
  uint64_t behind = firstKey(oldest) / pageSize;
  return all - std::min(all, behind) + std::min(pagesFor(sink), behind);
}

uint64_t blockSize(std::span<const GroupSpec> groups) {
  uint64_t size = 1;
  for (const GroupSpec &group : groups) {
    size = std::lcm(size, uint64_t{std::max(group.pageSize, 1u)});
    if (size > kMaxBlock)
      return size;
  }
  return size;
}

Status validate(std::span<const GroupSpec> groups) {
  if (groups.empty() || groups.size() > kMaxGroups)
    return invalidArgument("{} layer groups; allowed are 1 to {}", groups.size(), kMaxGroups);
  for (size_t i = 0; i < groups.size(); ++i)
    LLMOPT_RETURN_IF_ERROR(validateOne(i, groups[i]));
  uint64_t block = blockSize(groups), pages = 0;
  if (block > kMaxBlock)
    return invalidArgument("the page sizes have a least common multiple beyond {} slots; choose "
                           "page sizes that divide each other",
                           kMaxBlock);
  for (const GroupSpec &group : groups)
    pages += block / group.pageSize;
  if (pages > kMaxPagesPerBlock)
    return invalidArgument(
        "a block of {} slots has {} pages of all groups; at most {} are allowed; "
        "choose page sizes nearer to each other",
        block, pages, kMaxPagesPerBlock);
  return {};
}

} // namespace llmopt::runtime::kv

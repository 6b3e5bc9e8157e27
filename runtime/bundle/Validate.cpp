// What a well-formed Program promises to the planner, the argument check and
// the kernels. One function per part.
#include "runtime/bundle/BoundsEval.h"
#include "runtime/bundle/BundleIO.h"

#include <cmath>

namespace llmopt::bundle {

using runtime::invalidArgument;
using runtime::makeStatus;
using runtime::Status;
using runtime::StatusCode;

namespace {

/// No tile program comes near these; they keep the planner's 32-bit counts
/// safe.
constexpr uint32_t kMaxTile = 1u << 20;
constexpr uint32_t kMaxHeads = 1u << 16;
constexpr uint64_t kMaxScratchBytes = uint64_t{1} << 32;
/// What any CUDA device could grant.
constexpr uint32_t kMaxBlockThreads = 1024;
constexpr uint32_t kMaxSharedBytes = 1u << 20;
constexpr uint32_t kMaxClusterBlocks = 16;

bool isKnown(BufferRole role) {
  return role <= BufferRole::Tree ||
         (role >= BufferRole::ItemOffsets && role <= BufferRole::Counters);
}

template <typename Enum> Status checkEnum(Enum value, Enum last, std::string_view what) {
  if (value <= last)
    return {};
  return invalidArgument("{} is {}; the last known one is {}", what, static_cast<int>(value),
                         static_cast<int>(last));
}

Status checkBuffers(const Program &program) {
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer &buffer = program.buffers[i];
    if (!isKnown(buffer.role))
      return invalidArgument("buffer {} ('{}') has unknown role {}", i, buffer.name,
                             static_cast<int>(buffer.role));
    LLMOPT_RETURN_IF_ERROR(
        checkEnum(buffer.type, ElementType::Bool, fmt::format("element type of buffer {}", i)));
    if (buffer.extents.size() > kMaxRank)
      return invalidArgument("buffer {} ('{}') has rank {}; at most {} is allowed", i, buffer.name,
                             buffer.extents.size(), kMaxRank);
    for (int64_t extent : buffer.extents)
      if (extent < -1)
        return invalidArgument("buffer {} ('{}') has extent {}; allowed are -1 "
                               "(run-time) and sizes from 0",
                               i, buffer.name, extent);
  }
  return {};
}

Status checkSlots(const Program &program) {
  for (size_t i = 0; i < program.slots.size(); ++i) {
    const Slot &slot = program.slots[i];
    LLMOPT_RETURN_IF_ERROR(
        checkEnum(slot.kind, SlotKind::Extent, fmt::format("kind of slot {}", i)));
    if (slot.buffer >= program.buffers.size())
      return invalidArgument("slot {} names buffer {}; the program has {} buffers", i, slot.buffer,
                             program.buffers.size());
    size_t rank = program.buffers[slot.buffer].extents.size();
    if (slot.kind != SlotKind::Pointer && slot.dim >= rank)
      return invalidArgument("slot {} names dimension {} of buffer '{}'; it has rank {}", i,
                             slot.dim, program.buffers[slot.buffer].name, rank);
  }
  return {};
}

Status checkScalars(const Program &program) {
  for (size_t i = 0; i < program.scalars.size(); ++i) {
    const Scalar &scalar = program.scalars[i];
    LLMOPT_RETURN_IF_ERROR(
        checkEnum(scalar.type, ScalarType::F64, fmt::format("type of scalar {}", i)));
    if (scalar.perHeadBuffer < -1 ||
        (scalar.perHeadBuffer >= 0 &&
         static_cast<size_t>(scalar.perHeadBuffer) >= program.buffers.size()))
      return invalidArgument("scalar {} ('{}') names per-head buffer {}; allowed are -1 "
                             "and the program's {} buffers",
                             i, scalar.name, scalar.perHeadBuffer, program.buffers.size());
  }
  return {};
}

Status checkImages(const Program &program) {
  for (size_t i = 0; i < program.images.size(); ++i)
    LLMOPT_RETURN_IF_ERROR(checkEnum(program.images[i].format, ImageFormat::Ptx,
                                     fmt::format("format of image {}", i)));
  return {};
}

/// Launch numbers of a kernel with CUDA images.
Status checkLaunch(const Kernel &kernel, size_t index) {
  if (kernel.blockThreads == 0 || kernel.blockThreads > kMaxBlockThreads)
    return invalidArgument("kernel {} ('{}') has {} threads a block; 1 to {} is allowed", index,
                           kernel.entry, kernel.blockThreads, kMaxBlockThreads);
  if (kernel.sharedBytes > kMaxSharedBytes)
    return invalidArgument("kernel {} ('{}') wants {} bytes of shared memory; at most {} are "
                           "allowed",
                           index, kernel.entry, kernel.sharedBytes, kMaxSharedBytes);
  if (kernel.clusterBlocks == 0 || kernel.clusterBlocks > kMaxClusterBlocks)
    return invalidArgument("kernel {} ('{}') has {} blocks a cluster; 1 to {} is allowed", index,
                           kernel.entry, kernel.clusterBlocks, kMaxClusterBlocks);
  return {};
}

Status checkKernelImages(const Program &program, const Kernel &kernel, size_t index) {
  std::vector<uint32_t> images = {kernel.image};
  images.insert(images.end(), kernel.otherImages.begin(), kernel.otherImages.end());
  for (uint32_t image : images) {
    if (image >= program.images.size())
      return invalidArgument("kernel {} ('{}') names image {}; the program has {} images", index,
                             kernel.entry, image, program.images.size());
    if (program.images[image].format != ImageFormat::Object)
      LLMOPT_RETURN_IF_ERROR(checkLaunch(kernel, index));
  }
  return {};
}

Status checkItemHeads(const Program &program, const Kernel &kernel, size_t index) {
  if (kernel.kind != KernelKind::Attend && kernel.itemHeads != 1)
    return invalidArgument("kernel {} ('{}') takes items of {} heads together; it attends to "
                           "nothing, so 1 is allowed",
                           index, kernel.entry, kernel.itemHeads);
  if (kernel.itemHeads == 0 || program.facts.kvHeads % kernel.itemHeads != 0)
    return invalidArgument("kernel {} ('{}') takes items of {} heads together; a divisor of the "
                           "program's {} key/value heads is allowed",
                           index, kernel.entry, kernel.itemHeads, program.facts.kvHeads);
  return {};
}

Status checkKernel(const Program &program, const Kernel &kernel, size_t index) {
  LLMOPT_RETURN_IF_ERROR(
      checkEnum(kernel.kind, KernelKind::Combine, fmt::format("kind of kernel {}", index)));
  LLMOPT_RETURN_IF_ERROR(checkKernelImages(program, kernel, index));
  if (kernel.scratchBytes > kMaxScratchBytes)
    return invalidArgument("kernel {} ('{}') wants {} bytes of scratch; at most {} are "
                           "allowed",
                           index, kernel.entry, kernel.scratchBytes, kMaxScratchBytes);
  LLMOPT_RETURN_IF_ERROR(checkItemHeads(program, kernel, index));
  if (kernel.kind != KernelKind::Attend)
    return {};
  for (uint32_t tile : {kernel.tileRows, kernel.tileKeys})
    if (tile == 0 || tile > kMaxTile)
      return invalidArgument("kernel {} ('{}') has tile {} x {}; 1 to {} is allowed", index,
                             kernel.entry, kernel.tileRows, kernel.tileKeys, kMaxTile);
  if (!std::isfinite(kernel.costPerTile) || kernel.costPerTile <= 0)
    return invalidArgument("kernel {} ('{}') costs {} a tile; a positive number is "
                           "allowed",
                           index, kernel.entry, kernel.costPerTile);
  return {};
}

Status checkFacts(const Program &program) {
  const AttentionFacts &facts = program.facts;
  LLMOPT_RETURN_IF_ERROR(checkEnum(facts.queryForm, QueryForm::Ragged, "query form"));
  LLMOPT_RETURN_IF_ERROR(checkEnum(facts.kvForm, KvForm::Paged, "key/value form"));
  LLMOPT_RETURN_IF_ERROR(checkEnum(facts.tableForm, TableForm::Indptr, "table form"));
  LLMOPT_RETURN_IF_ERROR(checkEnum(facts.kvOrder, KvOrder::HeadMajor, "pool order"));
  if (Status status = validate(facts.may, program.scalars.size()); !status.ok())
    return status.withContext("may bounds");
  if (Status status = validate(facts.surely, program.scalars.size()); !status.ok())
    return status.withContext("surely bounds");
  bool attends = false;
  for (const Kernel &kernel : program.kernels)
    attends |= kernel.kind == KernelKind::Attend;
  if (!attends)
    return {};
  if (facts.kvHeads == 0 || facts.queryHeads > kMaxHeads || facts.queryHeads < facts.kvHeads ||
      facts.queryHeads % facts.kvHeads != 0)
    return invalidArgument("program has {} query heads over {} key/value heads; a "
                           "multiple of at most {} heads is allowed",
                           facts.queryHeads, facts.kvHeads, kMaxHeads);
  if (facts.kvForm == KvForm::Paged && facts.pageSize == 0)
    return invalidArgument("program reads pages of size 0; at least 1 is allowed");
  return {};
}

} // namespace

Status validate(const Program &program) {
  LLMOPT_RETURN_IF_ERROR(checkBuffers(program));
  LLMOPT_RETURN_IF_ERROR(checkSlots(program));
  LLMOPT_RETURN_IF_ERROR(checkScalars(program));
  LLMOPT_RETURN_IF_ERROR(checkImages(program));
  for (size_t i = 0; i < program.kernels.size(); ++i)
    LLMOPT_RETURN_IF_ERROR(checkKernel(program, program.kernels[i], i));
  return checkFacts(program);
}

Status checkLoadable(const Program &program) {
  std::string context = fmt::format("program '{}'", program.name);
  if (program.abiVersion != kAbiVersion)
    return makeStatus(StatusCode::Unavailable,
                      "{} has ABI version {}; this runtime runs version {}; compile the spec again",
                      context, program.abiVersion, kAbiVersion);
  return validate(program).withContext(context);
}

} // namespace llmopt::bundle

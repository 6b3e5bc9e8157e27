#include "runtime/device/ParamBlock.h"

#include <cstring>

namespace llmopt::runtime {

using bundle::BufferRole;
using bundle::Slot;
using bundle::SlotKind;

namespace {

uint64_t slotOfArray(const Slot &slot, const ArrayRef &array) {
  switch (slot.kind) {
  case SlotKind::Pointer:
    return reinterpret_cast<uint64_t>(array.data);
  case SlotKind::Stride:
    return static_cast<uint64_t>(array.strides[slot.dim]);
  case SlotKind::Extent:
    return static_cast<uint64_t>(array.shape[slot.dim]);
  }
  return 0;
}

/// Plan buffers are one- or two-dimensional and contiguous.
uint64_t slotOfPlan(const Slot &slot, const PlanBuffers::Entry &entry) {
  switch (slot.kind) {
  case SlotKind::Pointer:
    return reinterpret_cast<uint64_t>(entry.data);
  case SlotKind::Stride:
    return slot.dim == 0 ? static_cast<uint64_t>(entry.width) : 1;
  case SlotKind::Extent:
    return static_cast<uint64_t>(slot.dim == 0 ? entry.rows : entry.width);
  }
  return 0;
}

} // namespace

AlignedBuffer makeParamBlock(const bundle::Program &program, const BoundArrays &arrays,
                             const PlanBuffers &plan) {
  size_t count = program.slots.size();
  AlignedBuffer block(sizeof(bundle::ParamHeader) + count * sizeof(uint64_t));
  bundle::ParamHeader header{
      .abiVersion = bundle::kAbiVersion, .slots = static_cast<uint32_t>(count), .reserved = {}};
  std::memcpy(block.data(), &header, sizeof(header));
  for (size_t i = 0; i < count; ++i) {
    const Slot &slot = program.slots[i];
    BufferRole role = program.buffers[slot.buffer].role;
    uint64_t value = 0; // an absent nullable array: null, and nothing of it
    if (role >= BufferRole::ItemOffsets)
      value = slotOfPlan(slot, plan[role]);
    else if (const std::optional<ArrayRef> &array = arrays[slot.buffer])
      value = slotOfArray(slot, *array);
    std::memcpy(block.data() + sizeof(header) + i * sizeof(value), &value, sizeof(value));
  }
  return block;
}

} // namespace llmopt::runtime

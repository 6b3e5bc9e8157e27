// ld, st and prefetches (PTX ISA 9.7.9).
#include "runtime/device/sim/decode/KernelDecoder.h"
#include "runtime/device/sim/exec/Access.h"
#include "runtime/device/sim/ops/AsyncStores.h"
#include "runtime/device/sim/ops/Ops.h"

namespace llmopt::sim {

using ptx::Space;
using ptx::Type;
using runtime::Status;

namespace {

// Inst::mode of ld and st.
constexpr uint8_t kWideAddress = 1;
constexpr uint8_t kWideRegister = 2;
constexpr uint8_t kSignExtend = 4;
constexpr uint8_t kStrong = 8; ///< volatile, relaxed, acquire, release

uint64_t loadBits(const std::byte *from, uint32_t bytes) {
  uint64_t value = 0;
  switch (bytes) { // constant sizes, so that each is one move
  case 1:
    std::memcpy(&value, from, 1);
    break;
  case 2:
    std::memcpy(&value, from, 2);
    break;
  case 4:
    std::memcpy(&value, from, 4);
    break;
  default:
    std::memcpy(&value, from, 8);
    break;
  }
  return value;
}

void storeBits(std::byte *to, uint64_t value, uint32_t bytes) {
  switch (bytes) {
  case 1:
    std::memcpy(to, &value, 1);
    return;
  case 2:
    std::memcpy(to, &value, 2);
    return;
  case 4:
    std::memcpy(to, &value, 4);
    return;
  default:
    std::memcpy(to, &value, 8);
    return;
  }
}

uint64_t signExtend(uint64_t value, uint32_t bytes) {
  uint32_t unused = 64 - 8 * bytes;
  return static_cast<uint64_t>(static_cast<int64_t>(value << unused) >> unused);
}

void writeRegister(Warp &warp, const Inst &inst, uint32_t row, uint32_t lane, uint64_t value) {
  if (inst.mode & kSignExtend)
    value = signExtend(value, inst.bytes);
  if (inst.mode & kWideRegister)
    warp.wide(row)[lane] = value;
  else
    warp.narrow(row)[lane] = static_cast<uint32_t>(value);
}

template <Space S>
std::byte *locateIn(Warp &warp, uint32_t lane, uint64_t address, uint32_t bytes, AccessKind kind) {
  if constexpr (S == Space::Shared)
    return locateShared(warp, lane, address, bytes, kind);
  else
    return locate(warp, S, lane, address, bytes, kind);
}

template <Space S> void load(Warp &warp, const Inst &inst, LaneMask mask) {
  const uint32_t *rows = warp.list(inst);
  uint32_t bytes = inst.bytes * inst.outputs;
  bool wide = inst.mode & kWideAddress;
  bool words = inst.bytes == 4 && !(inst.mode & kWideRegister);
  LaneAddresses addresses;
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    uint64_t address = baseAddress(warp, inst, inst.a, wide, lane);
    const std::byte *from = locateIn<S>(warp, lane, address, bytes, AccessKind::Load);
    if (!from)
      return;
    addresses.add(lane, address);
    if (words) {
      for (uint32_t i = 0; i < inst.outputs; ++i)
        std::memcpy(&warp.narrow(rows[i])[lane], from + 4 * i, 4);
      continue;
    }
    for (uint32_t i = 0; i < inst.outputs; ++i)
      writeRegister(warp, inst, rows[i], lane, loadBits(from + i * inst.bytes, inst.bytes));
  }
  record(warp, S, addresses, bytes,
         inst.mode & kStrong ? AccessKind::StrongLoad : AccessKind::Load);
}

/// A parameter at a fixed place: the same for all lanes.
void loadFixedParam(Warp &warp, const Inst &inst, LaneMask mask) {
  const uint32_t *rows = warp.list(inst);
  uint32_t bytes = inst.bytes * inst.outputs;
  auto first = static_cast<uint32_t>(std::countr_zero(mask));
  uint64_t address = baseAddress(warp, inst, inst.a, true, first);
  const std::byte *from = locate(warp, Space::Param, first, address, bytes, AccessKind::Load);
  if (!from)
    return;
  for (uint32_t i = 0; i < inst.outputs; ++i) {
    uint64_t value = loadBits(from + i * inst.bytes, inst.bytes);
    forEachLane(mask, [&](uint32_t lane) { writeRegister(warp, inst, rows[i], lane, value); });
  }
}

/// Lanes of one store that meet at an address must bring the same value: which
/// one stays is not known.
template <Space S>
void checkSameStores(Warp &warp, const Inst &inst, const LaneAddresses &addresses) {
  if (S == Space::Local)
    return;
  const uint32_t *rows = warp.list(inst);
  for (LaneMask rest = addresses.lanes; rest; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    const std::byte *at = locateIn<S>(warp, lane, addresses.at[lane], inst.bytes, AccessKind::Load);
    for (uint32_t i = 0; i < inst.inputs; ++i) {
      uint64_t value =
          inst.mode & kWideRegister ? warp.wide(rows[i])[lane] : warp.narrow(rows[i])[lane];
      if (std::memcmp(at + i * inst.bytes, &value, inst.bytes) == 0)
        continue;
      warp.fault(S == Space::Global ? FaultKind::GlobalRace : FaultKind::SharedRace, lane,
                 addresses.at[lane],
                 "another lane of the same store wrote another value to the same address");
      return;
    }
  }
}

template <Space S> void store(Warp &warp, const Inst &inst, LaneMask mask) {
  const uint32_t *rows = warp.list(inst);
  uint32_t bytes = inst.bytes * inst.inputs;
  bool wide = inst.mode & kWideAddress;
  LaneAddresses addresses;
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    uint64_t address = baseAddress(warp, inst, inst.a, wide, lane);
    std::byte *to = locateIn<S>(warp, lane, address, bytes, AccessKind::Store);
    if (!to)
      return;
    addresses.add(lane, address);
    for (uint32_t i = 0; i < inst.inputs; ++i) {
      uint64_t value =
          inst.mode & kWideRegister ? warp.wide(rows[i])[lane] : warp.narrow(rows[i])[lane];
      storeBits(to + i * inst.bytes, value, inst.bytes);
    }
  }
  if (warp.block->launch().strict)
    checkSameStores<S>(warp, inst, addresses);
  record(warp, S, addresses, bytes,
         inst.mode & kStrong ? AccessKind::StrongStore : AccessKind::Store);
}

/// Volatile, relaxed, acquire, release: the order within a block is the order of
/// execution here. Other blocks may be waiting, so these run in turns.
bool takeOrdering(InstDecoder &d, Space space) {
  bool ordering = d.takeOneOf({"volatile", "relaxed", "acquire", "release", "mmio"}) >= 0;
  d.takeOneOf({"cta", "cluster", "gpu", "sys"});
  d.take("weak");
  if (ordering && (space == Space::Global || space == Space::Generic))
    d.kernel.kernel.ordered = true;
  return ordering;
}

InstClass classFor(Space space) {
  switch (space) {
  case Space::Shared:
    return InstClass::Shared;
  case Space::Local:
    return InstClass::Local;
  case Space::Param:
  case Space::Const:
    return InstClass::Param;
  default:
    return InstClass::Global;
  }
}

template <bool Store> Handler handlerFor(Space space) {
  auto choose = [](auto constant) -> Handler {
    constexpr Space kSpace = decltype(constant)::value;
    if constexpr (Store)
      return &store<kSpace>;
    else
      return &load<kSpace>;
  };
  switch (space) {
  case Space::Shared:
    return choose(std::integral_constant<Space, Space::Shared>{});
  case Space::Local:
    return choose(std::integral_constant<Space, Space::Local>{});
  case Space::Param:
    return choose(std::integral_constant<Space, Space::Param>{});
  case Space::Generic:
    return choose(std::integral_constant<Space, Space::Generic>{});
  case Space::Const:
    return choose(std::integral_constant<Space, Space::Const>{});
  default:
    return choose(std::integral_constant<Space, Space::Global>{});
  }
}

template <bool Store> Status decodeAccess(InstDecoder &d) {
  if (Store && d.take("async"))
    return decodeAsyncStore(d);
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(2));
  Space space = d.takeSpace();
  bool strong = takeOrdering(d, space);
  d.takeCacheHints();
  uint32_t elements = d.takeVector();
  Type type = d.takeType();
  uint32_t bytes = ptx::sizeOf(type);
  // 32 bytes at a time: global memory from sm_100 on.
  if (bytes == 0 || bytes > 8 || bytes * elements > (space == Space::Global ? 32 : 16))
    return d.unsupported();
  runtime::StatusOr<AddressBase> base = d.address(Field::A, Store ? 0 : 1);
  if (!base)
    return base.status();
  bool fixed = base->space != Space::Generic;
  if (fixed && base->space != space) {
    // .param of a called function is local memory here; a global variable's
    // address is generic as well.
    bool inlinedParam = space == Space::Param && base->space == Space::Local;
    bool generic = space == Space::Generic && base->space == Space::Global;
    if (!inlinedParam && !generic)
      return d.unsupported(fmt::format("the variable is in {} memory", toString(base->space)));
    space = base->space;
  }
  if (Store && (space == Space::Const || space == Space::Param))
    return d.unsupported();
  d.inst.bytes = static_cast<uint8_t>(bytes);
  d.inst.cls = classFor(space);
  d.inst.mode = static_cast<uint8_t>((base->wide ? kWideAddress : 0) | (strong ? kStrong : 0));

  const ptx::Operand &value = d.operand(Store ? 1 : 0);
  bool isVector = value.kind == ptx::Operand::Kind::Vector;
  if ((isVector ? value.parts.size() : 1) != elements)
    return d.invalid(
        fmt::format("{} registers; .v{} is given", isVector ? value.parts.size() : 1, elements));
  d.allowAnyWidth();
  std::optional<RegClass> width;
  for (uint32_t i = 0; i < elements; ++i) {
    const ptx::Operand &element = isVector ? value.parts[i] : value;
    RegClass cls = d.widthOf(element, type);
    if (element.name == "_" || element.kind != ptx::Operand::Kind::Name)
      cls = width.value_or(classOf(type));
    if (cls == RegClass::Predicate || (width && *width != cls))
      return d.unsupported("registers of different widths");
    width = cls;
    LLMOPT_RETURN_IF_ERROR(Store ? d.listInput(element, type) : d.listOutput(element, type));
  }
  if (*width == RegClass::Wide)
    d.inst.mode |= kWideRegister;
  else if (bytes == 8)
    return d.invalid("a register of 32 bits for a value of 64");
  if (ptx::isSigned(type))
    d.inst.mode |= kSignExtend;
  d.inst.run =
      !Store && fixed && space == Space::Param ? &loadFixedParam : handlerFor<Store>(space);
  return {};
}

Status decodePrefetch(InstDecoder &d) {
  d.takeSpace();
  d.takeCacheHints();
  d.takeOneOf({"L1", "L2", "tensormap"});
  d.inst.cls = InstClass::Global;
  d.inst.run = [](Warp &, const Inst &, LaneMask) {};
  return {};
}

} // namespace

void addMemoryOps(OpTable &table) {
  table["ld"] = &decodeAccess<false>;
  table["ldu"] = &decodeAccess<false>;
  table["st"] = &decodeAccess<true>;
  table["prefetch"] = &decodePrefetch;
  table["prefetchu"] = &decodePrefetch;
}

} // namespace llmopt::sim

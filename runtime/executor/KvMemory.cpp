#include "runtime/executor/KvMemory.h"

#define XXH_INLINE_ALL // no library to link
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <new>

using namespace llmopt::runtime;

namespace bundle = llmopt::bundle;

namespace {

constexpr uint8_t kPoison = 0xff; ///< NaN in every float format

Status checkGroup(const LayerGroup &group, const kv::GroupSpec &spec, size_t index) {
  if (!(group.pages == spec))
    return invalidArgument("layer group {} has another page specification for the executor than "
                           "for the block manager; give both the same",
                           index);
  if (spec.scaleBytes)
    return makeStatus(
        StatusCode::Unsupported,
        "pages of layer group {} have {} bytes of scales, which no kernel of a server "
        "reads or writes; serve a cache that is not quantised, with scaleBytes 0",
        index, spec.scaleBytes);
  uint64_t wanted = group.layers.size() * group.layerBytes();
  if (spec.dataBytes != wanted || wanted == 0)
    return invalidArgument("pages of layer group {} have {} bytes; its {} layers need {}", index,
                           spec.dataBytes, group.layers.size(), wanted);
  return {};
}

} // namespace

StatusOr<KvMemory> KvMemory::create(Device &device, Stream &stream,
                                    const kv::ManagerOptions &options,
                                    std::span<const LayerGroup> groups,
                                    const KvMemoryChecks &checks) {
  if (groups.size() != options.groups.size() || groups.empty())
    return invalidArgument("the executor has {} layer groups and the block manager {}",
                           groups.size(), options.groups.size());
  LLMOPT_RETURN_IF_ERROR(kv::validate(options.groups));
  for (size_t g = 0; g < groups.size(); ++g)
    LLMOPT_RETURN_IF_ERROR(checkGroup(groups[g], options.groups[g], g));
  KvMemory memory;
  memory.groups.assign(groups.begin(), groups.end());
  memory.tableSlots = options.maxSequences;
  memory.checks = checks;
  StatusOr<kv::PoolLayout> layout = kv::layOut(options.groups, options.budgetBytes);
  if (!layout)
    return layout.status();
  memory.layout = *std::move(layout);
  StatusOr<DeviceMemory> pages = device.allocate(memory.layout.slabs * memory.layout.slabBytes);
  if (!pages)
    return pages.status();
  memory.pages = *std::move(pages);
  if (checks.poison)
    LLMOPT_RETURN_IF_ERROR(stream.fill(memory.pages.data(), kPoison, memory.pages.size()));
  memory.tables.resize(groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    Table &table = memory.tables[g];
    table.columns = uint32_t(options.groups[g].pagesFor(options.maxTokens));
    table.entries.assign(size_t(table.columns) * options.maxSequences, kv::kNoPage);
    table.prefixes =
        SharedPrefixes(options.maxSequences, table.columns, options.groups[g].pageSize);
    StatusOr<DeviceMemory> made = device.allocate(table.entries.size() * sizeof(int32_t));
    if (!made)
      return made.status();
    table.memory = *std::move(made);
    LLMOPT_RETURN_IF_ERROR(stream.fill(table.memory.data(), 0xff, table.memory.size()));
  }
  if (!options.hostBytes)
    return memory;
  StatusOr<kv::PoolLayout> host = kv::layOut(options.groups, options.hostBytes);
  if (!host)
    return host.status();
  memory.hostLayout = *std::move(host);
  try {
    memory.host.assign(memory.hostLayout.slabs * memory.hostLayout.slabBytes, kPoison);
    for (const kv::GroupSpec &group : options.groups)
      memory.hashes.emplace_back(checks.verifySwaps ? memory.host.size() / group.pageBytes() : 0);
  } catch (const std::bad_alloc &) {
    return makeStatus(StatusCode::ResourceExhausted, "no memory for {} bytes of swapped pages",
                      options.hostBytes);
  }
  return memory;
}

uint8_t *KvMemory::page(uint32_t group, kv::PageId id) const {
  return pages.data() + uint64_t(id) * groups[group].pages.pageBytes();
}

uint8_t *KvMemory::hostPage(uint32_t group, kv::PageId id) {
  return host.data() + uint64_t(id) * groups[group].pages.pageBytes();
}

kv::PageMemory KvMemory::describe(const DeviceFacts &device) const {
  kv::PageMemory all{.base = pages.data(),
                     .bytes = pages.size(),
                     .onHost = device.hostMemory,
                     .device = std::string(toString(device.kind)),
                     .deviceOrdinal = device.ordinal,
                     .groups = {}};
  for (const LayerGroup &group : groups) {
    uint64_t keyRow = uint64_t(group.keyDim) * bytesOf(group.type);
    all.groups.push_back({.pageBytes = group.pages.pageBytes(),
                          .layers = group.layers,
                          .layerBytes = group.layerBytes(),
                          .keyBytes = keyRow * group.kvHeads * group.pages.pageSize,
                          .slots = group.pages.pageSize,
                          .heads = group.kvHeads,
                          .keyDim = group.keyDim,
                          .valueDim = group.valueDim,
                          .type = std::string(toString(group.type)),
                          .headMajor = group.kvOrder == bundle::KvOrder::HeadMajor});
  }
  return all;
}

Status KvMemory::applyTables(const StepInput &input, Stream &stream) {
  for (const step::Delta &delta : input.deltas()) {
    Table &table = tables[delta.group];
    if (uint64_t(delta.index) + delta.count > table.columns)
      return dataLoss("step {}: a block table of {} entries; {} are there", input.header().stepId,
                      uint64_t(delta.index) + delta.count, table.columns);
    std::span<const int32_t> entries = input.pages().subspan(delta.first, delta.count);
    size_t at = size_t(delta.tableSlot) * table.columns + delta.index;
    std::copy(entries.begin(), entries.end(), table.entries.begin() + long(at));
    table.prefixes.change(delta.tableSlot, delta.index, delta.count, table.entries);
    LLMOPT_RETURN_IF_ERROR(stream.copyIn(table.memory.data() + at * sizeof(int32_t), entries.data(),
                                         entries.size_bytes()));
  }
  return {};
}

Status KvMemory::apply(const StepInput &input, bool tables, Stream &stream) {
  if (tables)
    LLMOPT_RETURN_IF_ERROR(applyTables(input, stream));
  if (checks.poison)
    for (const step::Free &freed : input.frees())
      LLMOPT_RETURN_IF_ERROR(stream.fill(page(freed.group, freed.page), kPoison,
                                         groups[freed.group].pages.pageBytes()));
  for (const step::Copy &copy : input.copies())
    LLMOPT_RETURN_IF_ERROR(stream.copyWithin(page(copy.group, copy.to), page(copy.group, copy.from),
                                             groups[copy.group].pages.pageBytes()));
  return {};
}

Status KvMemory::moveTokens(std::span<const TokenMove> moves, Stream &stream) {
  for (const TokenMove &move : moves)
    for (uint32_t g = 0; g < groups.size(); ++g) {
      int64_t from = slotOf(g, move.tableSlot, move.from), to = slotOf(g, move.tableSlot, move.to);
      if (from < 0 || to < 0)
        return makeStatus(StatusCode::Internal,
                          "token {} of table slot {} goes to slot {}; one of them has no page in "
                          "layer group {}",
                          move.from, move.tableSlot, move.to, g);
      for (uint32_t layer = 0; layer < groups[g].layers.size(); ++layer)
        for (bool values : {false, true})
          LLMOPT_RETURN_IF_ERROR(moveToken(g, pool(g, layer, values), from, to, stream));
    }
  return {};
}

/// A token's heads lie in one run, or each in a run of its own.
Status KvMemory::moveToken(uint32_t group, const ArrayRef &array, int64_t from, int64_t to,
                           Stream &stream) {
  int64_t slots = groups[group].pages.pageSize;
  bool tokenMajor = groups[group].kvOrder == bundle::KvOrder::TokenMajor;
  int64_t runs = tokenMajor ? 1 : array.shape[1], slotDim = tokenMajor ? 1 : 2;
  size_t bytes = size_t(array.strides[size_t(slotDim)]) * bytesOf(array.type);
  for (int64_t run = 0; run < runs; ++run) {
    auto at = [&](int64_t slot) {
      int64_t offset = slot / slots * array.strides[0] +
                       slot % slots * array.strides[size_t(slotDim)] + run * array.strides[1];
      return static_cast<uint8_t *>(array.data) + offset * bytesOf(array.type);
    };
    LLMOPT_RETURN_IF_ERROR(stream.copyWithin(at(to), at(from), bytes));
  }
  return {};
}

Status KvMemory::copyOut(std::span<const kv::PageMove> moves, Stream &stream) {
  for (const kv::PageMove &move : moves)
    LLMOPT_RETURN_IF_ERROR(stream.copyOut(hostPage(move.group, move.host),
                                          page(move.group, move.device),
                                          groups[move.group].pages.pageBytes()));
  LLMOPT_RETURN_IF_ERROR(stream.synchronize());
  swapped += moves.size();
  if (checks.verifySwaps)
    for (const kv::PageMove &move : moves)
      hashes[move.group][size_t(move.host)] =
          XXH3_64bits(hostPage(move.group, move.host), groups[move.group].pages.pageBytes());
  return {};
}

Status KvMemory::copyIn(std::span<const kv::PageMove> moves, Stream &stream) {
  for (const kv::PageMove &move : moves) {
    const uint8_t *from = hostPage(move.group, move.host);
    uint64_t bytes = groups[move.group].pages.pageBytes();
    if (checks.verifySwaps && XXH3_64bits(from, bytes) != hashes[move.group][size_t(move.host)])
      return dataLoss("page {} of layer group {} in host memory is not as it was when it was "
                      "copied there",
                      move.host, move.group);
    LLMOPT_RETURN_IF_ERROR(stream.copyIn(page(move.group, move.device), from, bytes));
  }
  swapped += moves.size();
  return stream.synchronize();
}

int64_t KvMemory::slotOf(uint32_t group, uint32_t tableSlot, uint32_t position) const {
  const Table &table = tables[group];
  uint32_t pageSize = groups[group].pages.pageSize, column = position / pageSize;
  if (column >= table.columns)
    return -1;
  int64_t id = table.entries[size_t(tableSlot) * table.columns + column];
  return id < 0 ? -1 : id * pageSize + position % pageSize;
}

ArrayRef KvMemory::table(uint32_t group, bool flat) const {
  int64_t columns = tables[group].columns;
  std::vector<int64_t> shape = {tableSlots, columns};
  if (flat)
    shape = {tableSlots * columns};
  return ArrayRef::contiguous(tables[group].memory.data(), bundle::ElementType::I32, shape);
}

ArrayRef KvMemory::keys(uint32_t group, uint32_t layer) const {
  ArrayRef array = pool(group, layer, false);
  if (groups[group].interleaved) { // V lies right behind K
    array.shape.insert(array.shape.begin() + 1, 2);
    array.strides.insert(array.strides.begin() + 1,
                         array.shape[2] * array.shape[3] * array.shape[4]);
  }
  return array;
}

ArrayRef KvMemory::values(uint32_t group, uint32_t layer) const { return pool(group, layer, true); }

ArrayRef KvMemory::pool(uint32_t group, uint32_t layer, bool values) const {
  const LayerGroup &of = groups[group];
  int64_t slots = of.pages.pageSize, heads = of.kvHeads, dim = values ? of.valueDim : of.keyDim;
  uint64_t at = layer * of.layerBytes();
  if (values)
    at += uint64_t(slots * heads) * of.keyDim * bytesOf(of.type);
  ArrayRef array;
  array.data = pages.data() + at;
  array.type = of.type;
  bool tokenMajor = of.kvOrder == bundle::KvOrder::TokenMajor;
  int64_t outer = tokenMajor ? slots : heads, inner = tokenMajor ? heads : slots;
  array.shape = {int64_t(pages.size() / of.pages.pageBytes()), outer, inner, dim};
  array.strides = {int64_t(of.pages.pageBytes() / bytesOf(of.type)), inner * dim, dim, 1};
  return array;
}

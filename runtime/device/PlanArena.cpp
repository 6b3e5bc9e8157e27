#include "runtime/device/PlanArena.h"

#include "runtime/plan/Planner.h"

#include <algorithm>
#include <cstring>

namespace llmopt::runtime {

using bundle::BufferRole;
using bundle::Kernel;
using bundle::KernelKind;
using bundle::Program;

namespace {

constexpr size_t kLine = AlignedBuffer::kAlignment;

/// Parts with less between them travel in one copy.
constexpr size_t kGap = 16 << 10;

size_t alignUp(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

bool hasCounters(const Program &program) {
  return std::any_of(program.buffers.begin(), program.buffers.end(),
                     [](const bundle::Buffer &b) { return b.role == BufferRole::Counters; });
}

} // namespace

PlanCounts PlanCounts::of(const Plan &plan) {
  PlanCounts counts{.workers = plan.workers,
                    .items = 0,
                    .rows = plan.rows.size(),
                    .sequences = plan.sequences.size(),
                    .merges = plan.merges.size(),
                    .partialRows = plan.partialRows};
  for (const AttendPlan &attend : plan.attends)
    counts.items = std::max<uint64_t>(counts.items, attend.items.size());
  return counts;
}

PlanCounts PlanCounts::bound(const Program &program, const PlanOptions &options, uint64_t sequences,
                             const PlanCapacities &capacities) {
  const bundle::AttentionFacts &facts = program.facts;
  uint64_t tileRows = 0;
  for (const Kernel &kernel : program.kernels)
    if (kernel.kind == KernelKind::Attend)
      tileRows = tileRows ? std::min<uint64_t>(tileRows, kernel.tileRows) : kernel.tileRows;
  PlanCounts counts{.workers = std::max<uint32_t>(options.workers, 1),
                    .items = 0,
                    .rows = capacities.queryTokens,
                    .sequences = sequences,
                    .merges = 0,
                    .partialRows = workspaceBound(program, options, capacities)};
  uint64_t packed = capacities.queryTokens * facts.queryHeads;
  if (counts.partialRows > 0)
    counts.merges = packed;
  // A tile for each full set of rows, one that is not full for each sequence and KV head; and
  // each part of a split tile writes at least one row of partials.
  if (tileRows > 0)
    counts.items = packed / tileRows + sequences * facts.kvHeads + counts.partialRows;
  return counts;
}

std::string PlanCounts::lacks(const PlanCounts &plan) const {
  auto more = [](uint64_t wanted, uint64_t room, const char *what) {
    return wanted > room
               ? fmt::format("the plan has {} {}; there is room for {}", wanted, what, room)
               : std::string();
  };
  for (const std::string &reason :
       {more(plan.items, items, "work items"), more(plan.rows, rows, "query tokens"),
        more(plan.sequences, sequences, "sequences"), more(plan.merges, merges, "rows to merge"),
        more(plan.partialRows, partialRows, "rows of partials")})
    if (!reason.empty())
      return reason;
  return plan.workers == workers
             ? ""
             : fmt::format("the plan is for {} workers; the arena for {}", plan.workers, workers);
}

PlanArena::Part PlanArena::reserve(uint64_t entries, size_t entryBytes, uint64_t width) {
  Part part{end, entries * entryBytes * width, entries, width, 0};
  end += alignUp(part.bytes);
  return part;
}

StatusOr<PlanArena> PlanArena::create(Device &device, const Program &program,
                                      const PlanCounts &room) {
  PlanArena arena;
  arena.counts = room;
  uint64_t offsets = uint64_t{room.workers} + 1;
  for (uint32_t k = 0; k < program.kernels.size(); ++k)
    if (program.kernels[k].kind == KernelKind::Attend)
      arena.attends.push_back({k, arena.reserve(offsets, sizeof(uint32_t)),
                               arena.reserve(room.items, sizeof(bundle::WorkItem))});
  arena.rows = arena.reserve(room.rows, sizeof(bundle::RowEntry));
  arena.sequences = arena.reserve(room.sequences, sizeof(bundle::SequenceRecord));
  arena.scalars = arena.reserve(program.scalars.size(), sizeof(uint64_t));
  arena.shared = arena.reserve(offsets, sizeof(uint32_t));
  arena.mergeOffsets = arena.reserve(offsets, sizeof(uint32_t));
  arena.merges = arena.reserve(room.merges, sizeof(bundle::MergeItem));
  size_t staged = arena.end;
  if (hasCounters(program)) {
    arena.countersAt = arena.end;
    arena.countersBytes =
        size_t{room.workers} * 2 * sizeof(uint64_t) * std::max<size_t>(1, arena.attends.size());
    arena.end += alignUp(arena.countersBytes);
  }
  arena.partialOut = arena.reserve(room.partialRows, sizeof(float), program.facts.dV);
  arena.partialLse = arena.reserve(room.partialRows, sizeof(float));
  StatusOr<DeviceMemory> memory = device.allocate(arena.end);
  if (!memory)
    return memory.status();
  arena.memory = *std::move(memory);
  arena.host = arena.memory.data();
  if (!device.facts().hostMemory) {
    arena.staging = AlignedBuffer(staged);
    arena.host = arena.staging.data();
  }
  return arena;
}

template <typename T> void PlanArena::put(Part &part, std::span<const T> entries) {
  part.written = entries.size_bytes();
  if (part.written)
    std::memcpy(host + part.at, entries.data(), part.written);
}

void PlanArena::write(const Plan &plan, std::span<const uint64_t> numbers,
                      std::span<const uint32_t> sharedOffsets) {
  for (Attend &attend : attends)
    for (const AttendPlan &own : plan.attends)
      if (own.kernel == attend.kernel) {
        put<uint32_t>(attend.offsets, own.itemOffsets);
        put<bundle::WorkItem>(attend.items, own.items);
      }
  put<bundle::RowEntry>(rows, plan.rows);
  put<bundle::SequenceRecord>(sequences, plan.sequences);
  put<uint64_t>(scalars, numbers);
  put<uint32_t>(shared, sharedOffsets);
  put<bundle::MergeItem>(merges, plan.merges);
  put<uint32_t>(mergeOffsets, plan.mergeOffsets);
  uploaded = staging.size() == 0;
}

std::vector<const PlanArena::Part *> PlanArena::writtenParts() const {
  std::vector<const Part *> parts;
  auto add = [&](const Part &part) {
    if (part.written)
      parts.push_back(&part);
  };
  for (const Attend &attend : attends)
    add(attend.offsets), add(attend.items);
  for (const Part *part : {&rows, &sequences, &scalars, &shared, &mergeOffsets, &merges})
    add(*part);
  return parts;
}

Status PlanArena::upload(Stream &stream) {
  if (uploaded)
    return {};
  std::vector<const Part *> parts = writtenParts();
  for (size_t i = 0; i < parts.size();) {
    size_t begin = parts[i]->at, last = begin + parts[i]->written;
    for (++i; i < parts.size() && parts[i]->at <= last + kGap; ++i)
      last = parts[i]->at + parts[i]->written;
    LLMOPT_RETURN_IF_ERROR(stream.copyIn(memory.data() + begin, host + begin, last - begin));
  }
  uploaded = true;
  return {};
}

PlanBuffers::Entry PlanArena::entryOf(const Part &part) const {
  return {memory.data() + part.at, static_cast<int64_t>(part.entries),
          static_cast<int64_t>(part.width)};
}

PlanBuffers PlanArena::buffers(const Program &program, uint32_t kernel) const {
  PlanBuffers buffers;
  buffers[BufferRole::Rows] = entryOf(rows);
  buffers[BufferRole::Sequences] = entryOf(sequences);
  buffers[BufferRole::Scalars] = entryOf(scalars);
  buffers[BufferRole::MergeOffsets] = entryOf(mergeOffsets);
  buffers[BufferRole::Merges] = entryOf(merges);
  buffers[BufferRole::PartialOut] = entryOf(partialOut);
  buffers[BufferRole::PartialLse] = entryOf(partialLse);
  for (size_t i = 0; i < attends.size(); ++i) {
    const Attend &attend = attends[i];
    if (attend.kernel != kernel)
      continue;
    buffers[BufferRole::ItemOffsets] = entryOf(attend.offsets);
    buffers[BufferRole::Items] = entryOf(attend.items);
    if (size_t each = countersBytes / attends.size())
      buffers[BufferRole::Counters] = {memory.data() + countersAt + i * each,
                                       static_cast<int64_t>(each / sizeof(uint64_t)), 1};
  }
  KernelKind kind = program.kernels[kernel].kind;
  if (kind == KernelKind::Append || kind == KernelKind::Combine)
    buffers[BufferRole::ItemOffsets] = entryOf(shared);
  return buffers;
}

} // namespace llmopt::runtime

#include "runtime/device/PlanArena.h"

#include <algorithm>
#include <cstring>

namespace llmopt::runtime {

using bundle::BufferRole;
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

PlanArena::Part PlanArena::reserve(uint64_t entries, size_t entryBytes, uint64_t width) {
  Part part{end, entries * entryBytes * width, entries, width, 0};
  end += alignUp(part.bytes);
  return part;
}

void PlanArena::layOut(const Program &program) {
  uint64_t offsets = uint64_t{counts.workers} + 1;
  for (uint32_t k = 0; k < program.kernels.size(); ++k)
    if (program.kernels[k].kind == KernelKind::Attend)
      attends.push_back(
          {k, reserve(offsets, sizeof(uint32_t)), reserve(counts.items, sizeof(bundle::WorkItem))});
  // Next to each other: lengths alone may change.
  rows = reserve(counts.rows, sizeof(bundle::RowEntry));
  sequences = reserve(counts.sequences, sizeof(bundle::SequenceRecord));
  scalars = reserve(program.scalars.size(), sizeof(uint64_t));
  shared = reserve(offsets, sizeof(uint32_t));
  mergeOffsets = reserve(offsets, sizeof(uint32_t));
  merges = reserve(counts.merges, sizeof(bundle::MergeItem));
  stagedBytes = end;
  if (hasCounters(program)) {
    countersAt = end;
    countersBytes =
        size_t{counts.workers} * 2 * sizeof(uint64_t) * std::max<size_t>(1, attends.size());
    end += alignUp(countersBytes);
  }
  partialOut = reserve(counts.partialRows, sizeof(float), program.facts.dV);
  partialLse = reserve(counts.partialRows, sizeof(float));
}

StatusOr<PlanArena> PlanArena::create(Device &device, const Program &program,
                                      const PlanCounts &room, uint32_t places) {
  PlanArena arena;
  arena.counts = room;
  arena.layOut(program);
  StatusOr<DeviceMemory> memory = device.allocate(arena.end);
  if (!memory)
    return memory.status();
  arena.memory = *std::move(memory);
  bool onHost = device.facts().hostMemory;
  arena.places.resize(onHost ? 1 : std::max<uint32_t>(places, 1));
  for (Place &place : arena.places) {
    if (!onHost)
      place.staging = AlignedBuffer(arena.stagedBytes);
    place.host = onHost ? arena.memory.data() : place.staging.data();
    place.plan = arena.planAt(place.host);
  }
  return arena;
}

std::vector<PlanArena::Part *> PlanArena::parts() {
  std::vector<Part *> all;
  for (Attend &attend : attends)
    all.insert(all.end(), {&attend.offsets, &attend.items});
  all.insert(all.end(), {&rows, &sequences, &scalars, &shared, &mergeOffsets, &merges});
  return all;
}

Plan PlanArena::planAt(uint8_t *host) const {
  auto over = [&]<typename T>(PlanArray<T> &array, const Part &part) {
    array = PlanArray<T>::over(reinterpret_cast<T *>(host + part.at), part.entries);
  };
  Plan plan;
  plan.workers = counts.workers;
  for (const Attend &attend : attends) {
    AttendPlan &own = plan.attends.emplace_back();
    own.kernel = attend.kernel;
    over(own.itemOffsets, attend.offsets);
    over(own.items, attend.items);
  }
  over(plan.rows, rows);
  over(plan.sequences, sequences);
  over(plan.mergeOffsets, mergeOffsets);
  over(plan.merges, merges);
  return plan;
}

StatusOr<Plan *> PlanArena::next() {
  at = (at + 1) % places.size();
  Place &place = places[at];
  if (place.copied)
    LLMOPT_RETURN_IF_ERROR(place.copied->synchronize());
  place.copied.reset();
  return &place.plan;
}

template <typename T> void PlanArena::put(Part &part, std::span<const T> entries) {
  part.written = entries.size_bytes();
  if (part.written)
    std::memcpy(places[at].host + part.at, entries.data(), part.written);
}

void PlanArena::commit(PlanChange change, std::span<const uint64_t> numbers,
                       std::span<const uint32_t> sharedOffsets) {
  const Plan &plan = places[at].plan;
  auto filled = [](Part &part, const auto &array) {
    part.written = array.size() * sizeof(array[0]);
  };
  bool all = change == PlanChange::All;
  for (Part *part : parts())
    part->written = 0;
  if (all) {
    for (size_t i = 0; i < plan.attends.size(); ++i) {
      filled(attends[i].offsets, plan.attends[i].itemOffsets);
      filled(attends[i].items, plan.attends[i].items);
    }
    filled(mergeOffsets, plan.mergeOffsets);
    filled(merges, plan.merges);
  }
  filled(rows, plan.rows);
  filled(sequences, plan.sequences);
  put<uint64_t>(scalars, numbers);
  put<uint32_t>(shared, sharedOffsets);
  uploaded = places[at].staging.size() == 0;
  itemsUp = uploaded || (itemsUp && !all);
}

Status PlanArena::write(const Plan &plan, std::span<const uint64_t> numbers,
                        std::span<const uint32_t> sharedOffsets) {
  StatusOr<Plan *> place = next();
  if (!place)
    return place.status();
  auto copy = [](const auto &from, auto &to) {
    std::copy_n(from.begin(), from.size(), to.begin());
    to.setSize(from.size());
  };
  Plan &own = **place;
  for (size_t i = 0; i < own.attends.size(); ++i) {
    if (plan.attends.empty()) { // a program's appends alone
      own.attends[i].itemOffsets.setSize(0);
      own.attends[i].items.setSize(0);
      continue;
    }
    copy(plan.attends[i].itemOffsets, own.attends[i].itemOffsets);
    copy(plan.attends[i].items, own.attends[i].items);
  }
  copy(plan.rows, own.rows);
  copy(plan.sequences, own.sequences);
  copy(plan.mergeOffsets, own.mergeOffsets);
  copy(plan.merges, own.merges);
  commit(PlanChange::All, numbers, sharedOffsets);
  return {};
}

Status PlanArena::upload(Stream &stream) {
  if (uploaded)
    return {};
  Place &place = places[at];
  std::vector<Part *> all = parts();
  std::erase_if(all, [](const Part *part) { return part->written == 0; });
  for (size_t i = 0; i < all.size();) {
    size_t begin = all[i]->at, last = begin + all[i]->written;
    for (++i; i < all.size() && all[i]->at <= last + kGap; ++i)
      last = all[i]->at + all[i]->written;
    LLMOPT_RETURN_IF_ERROR(stream.copyIn(memory.data() + begin, place.host + begin, last - begin));
  }
  StatusOr<std::unique_ptr<Event>> event = stream.record();
  if (!event)
    return event.status();
  place.copied = *std::move(event);
  uploaded = itemsUp = true;
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

// See Tables.h.
#include "tools/llm-opt/Tables.h"

#include "tools/llm-opt/Work.h"

#include <algorithm>
#include <set>

namespace llmopt::cli {
namespace {

using bundle::BufferRole;
using bundle::KernelKind;

/// Sectors of an array that begins with one, each once.
class Sectors {
public:
  void touch(uint64_t begin, uint64_t bytes) {
    for (uint64_t at = begin / kBytes; at * kBytes < begin + bytes; ++at)
      touched.insert(at);
  }
  double bytes() const { return double(touched.size() * kBytes); }

private:
  static constexpr uint64_t kBytes = 32;
  std::set<uint64_t> touched;
};

/// Arrays of which kernels read every element, if they have work at all.
bool isReadWhole(BufferRole role) {
  switch (role) {
  case BufferRole::PerHead:
  case BufferRole::SinkLogit:
  case BufferRole::SlotMapping:
  case BufferRole::NewKey:
  case BufferRole::NewValue:
  case BufferRole::PartialIn:
  case BufferRole::PartialLseIn:
  case BufferRole::Tree:
    return true;
  default:
    return false;
  }
}

double whole(uint64_t bytes) {
  Sectors sectors;
  sectors.touch(0, bytes);
  return sectors.bytes();
}

/// What a kernel reads of the plan.
class PlanReads {
public:
  explicit PlanReads(uint32_t group) : group(group) {}

  void items(uint32_t firstRow, uint32_t rowCount, uint32_t sequence) {
    uint64_t row = firstRow / group, last = (firstRow + rowCount - 1) / group;
    rows.touch(row * sizeof(bundle::RowEntry), (last - row + 1) * sizeof(bundle::RowEntry));
    sequences.touch(sequence * sizeof(bundle::SequenceRecord), sizeof(bundle::SequenceRecord));
  }
  double rowBytes() const { return rows.bytes(); }
  double sequenceBytes() const { return sequences.bytes(); }

private:
  uint32_t group;
  Sectors rows, sequences;
};

class Tables {
public:
  Tables(const bundle::Program &program, const runtime::Plan &plan, const harness::Shape &shape,
         const harness::Call &call)
      : program(program), plan(plan), shape(shape), call(call),
        offsets(whole((uint64_t{plan.workers} + 1) * sizeof(uint32_t))) {}

  std::map<std::string, double> least() {
    for (const bundle::Buffer &buffer : program.buffers)
      if (buffer.role >= BufferRole::ItemOffsets)
        result[buffer.name] = 0;
    for (const runtime::AttendPlan &attend : plan.attends)
      addAttend(attend);
    for (const bundle::Kernel &kernel : program.kernels) {
      if (kernel.kind == KernelKind::Merge)
        addMerge();
      else if (kernel.kind != KernelKind::Attend)
        add(BufferRole::ItemOffsets, offsets);
    }
    addPages();
    for (const bundle::Buffer &buffer : program.buffers)
      if (const harness::HostArray *array = call.find(buffer.name);
          array && isReadWhole(buffer.role))
        result[buffer.name] += whole(uint64_t(array->elements()) * reference::sizeOf(array->type));
    return std::move(result);
  }

private:
  void add(BufferRole role, double bytes) {
    for (const bundle::Buffer &buffer : program.buffers)
      if (buffer.role == role)
        result[buffer.name] += bytes;
  }

  void addAttend(const runtime::AttendPlan &attend) {
    PlanReads reads(program.facts.queryHeads / program.facts.kvHeads);
    Sectors items;
    for (size_t i = 0; i < attend.items.size(); ++i) {
      const bundle::WorkItem &item = attend.items[i];
      items.touch(i * sizeof(item), sizeof(item));
      if (item.rowCount)
        reads.items(item.firstRow, item.rowCount, item.sequence);
    }
    add(BufferRole::ItemOffsets, offsets);
    add(BufferRole::Items, items.bytes());
    add(BufferRole::Rows, reads.rowBytes());
    add(BufferRole::Sequences, reads.sequenceBytes());
    if (items.bytes() > 0) // without items it is launched, and reads nothing more
      add(BufferRole::Scalars, scalarBytes());
    Sectors counters; // two numbers of each worker that has items
    constexpr uint64_t kCounters = 2 * sizeof(uint64_t);
    for (uint32_t w = 0; w < plan.workers; ++w)
      if (attend.itemOffsets[w] < attend.itemOffsets[w + 1])
        counters.touch(w * kCounters, kCounters);
    add(BufferRole::Counters, counters.bytes());
  }

  /// Of run-time numbers. One that has a value for each head is read from that array instead.
  double scalarBytes() const {
    Sectors sectors;
    for (size_t i = 0; i < program.scalars.size(); ++i)
      if (program.scalars[i].perHeadBuffer < 0)
        sectors.touch(i * sizeof(uint64_t), sizeof(uint64_t));
    return sectors.bytes();
  }

  void addMerge() {
    if (plan.merges.size() == 0) // it is not launched
      return;
    PlanReads reads(program.facts.queryHeads / program.facts.kvHeads);
    for (const bundle::MergeItem &merge : plan.merges)
      reads.items(merge.row, 1, merge.sequence);
    add(BufferRole::MergeOffsets, offsets);
    add(BufferRole::Merges, whole(plan.merges.size() * sizeof(bundle::MergeItem)));
    add(BufferRole::Rows, reads.rowBytes());
    add(BufferRole::Sequences, reads.sequenceBytes());
  }

  /// Each entry of a page with a visible key.
  void addPages() {
    auto page = int64_t(program.facts.pageSize);
    if (!page || plan.attends.empty())
      return;
    std::vector<bundle::KeySet> visible = visibleKeys(program, shape, call);
    Sectors entries;
    for (size_t s = 0; s < visible.size(); ++s)
      for (int64_t key = 0; key < shape.keyLengths[s]; key += page)
        if (visible[s].intersects(key, key + page))
          entries.touch(uint64_t(plan.sequences[s].tableBase + key / page) * sizeof(int32_t),
                        sizeof(int32_t));
    add(BufferRole::BlockTable, entries.bytes());
  }

  const bundle::Program &program;
  const runtime::Plan &plan;
  const harness::Shape &shape;
  const harness::Call &call;
  double offsets; ///< those of workers' items
  std::map<std::string, double> result;
};

} // namespace

std::map<std::string, double> leastOfTables(const bundle::Program &program,
                                            const runtime::Plan &plan, const harness::Shape &shape,
                                            const harness::Call &call) {
  return Tables(program, plan, shape, call).least();
}

std::optional<double> leastOf(const std::map<std::string, double> &least,
                              const std::string &names) {
  double sum = 0;
  for (size_t at = 0; at < names.size();) {
    size_t end = std::min(names.find(", ", at), names.size());
    auto one = least.find(names.substr(at, end - at));
    if (one == least.end())
      return std::nullopt;
    sum += one->second;
    at = end + 2;
  }
  return sum;
}

} // namespace llmopt::cli

// Builds the bytes of a step. All memory is reserved at construction; a step within the
// capacities allocates nothing.
#pragma once

#include "runtime/kv/Prompt.h"
#include "runtime/kv/StepTables.h"
#include "runtime/scheduler/StepInput.h"

#include <algorithm>
#include <memory>
#include <type_traits>
#include <vector>

namespace llmopt::runtime {

/// A vector of plain data whose appending is a store where there is room: growing is a call of
/// its own, which the reserved room makes rare.
template <typename T> class Appended {
  static_assert(std::is_trivially_copyable_v<T>);

public:
  void reserve(size_t wanted) {
    if (wanted > room)
      grow(wanted);
  }
  T &push_back(const T &value) {
    if (used == room) [[unlikely]]
      grow(2 * room + 16);
    return first[used++] = value;
  }
  /// What is new is uninitialised.
  T *extend(size_t count) {
    if (count > room - used) [[unlikely]]
      grow(2 * room + count);
    used += count;
    return first.get() + used - count;
  }
  void clear() { used = 0; }
  size_t size() const { return used; }
  size_t capacity() const { return room; }
  const T *data() const { return first.get(); }
  T &back() { return first[used - 1]; }
  const T &back() const { return first[used - 1]; }
  const T &operator[](size_t i) const { return first[i]; }

private:
  __attribute__((noinline)) void grow(size_t wanted) {
    std::unique_ptr<T[]> larger(new T[wanted]);
    std::copy_n(first.get(), used, larger.get());
    first = std::move(larger);
    room = wanted;
  }

  std::unique_ptr<T[]> first;
  size_t used = 0, room = 0;
};

struct StepCapacities {
  uint32_t rows = 256, tokens = 2048, maxDraft = 0, tableSlots = 256, groups = 1;
  uint32_t pages = 4096; ///< table entries that one step may add
  uint32_t buffers = 1;  ///< steps whose bytes stay valid together
};

class StepWriter {
public:
  explicit StepWriter(const StepCapacities &capacities);

  void begin(uint64_t stepId, step::Kind kind = step::Kind::Step);

  /// A row whose tokens and drafts are added after it, before the next row.
  step::Row &addRow() {
    step::Row &row = rows.push_back({});
    row.firstToken = uint32_t(tokens.size());
    row.firstDraft = uint32_t(drafts.size());
    return row;
  }
  /// `ids` as literals, at depths 0, 1, ...
  void addTokens(std::span<const kv::Token> ids);
  void addReference(step::Reference reference, uint32_t depth) {
    tokens.push_back({-1 - int32_t(references.size()), depth});
    references.push_back(reference);
    ++rows.back().tokenCount;
  }
  void addLiteral(kv::Token id, uint32_t depth) {
    tokens.push_back({int32_t(id), depth});
    ++rows.back().tokenCount;
  }
  void addDraft(step::Draft draft) {
    drafts.push_back(draft);
    ++rows.back().draftCount;
  }
  /// Logits of the row's last `count` tokens; after its tokens.
  void wantLogits(uint32_t count) {
    uint32_t end = uint32_t(tokens.size());
    for (uint32_t i = end - count; i < end; ++i)
      logits.push_back(i);
  }
  /// What the block manager has to do on the device before the rows.
  void setTables(const kv::StepTables &tables);

  uint32_t rowCount() const { return uint32_t(rows.size()); }
  uint32_t tokenCount() const { return uint32_t(tokens.size()); }

  /// Of draft `i` of the present row.
  uint16_t draftDepth(uint32_t i) const { return drafts[rows.back().firstDraft + i].depth; }

  /// The bytes, valid until `buffers` further steps are finished.
  std::span<const uint8_t> finish();

private:
  StepCapacities capacities;
  step::Header head;
  Appended<step::Row> rows;
  Appended<step::Token> tokens;
  Appended<step::Reference> references;
  Appended<uint32_t> logits;
  Appended<step::Draft> drafts;
  Appended<step::Delta> deltas;
  Appended<int32_t> pages;
  Appended<step::Copy> copies;
  Appended<step::Free> frees;
  Appended<uint64_t> waits;
  std::vector<std::vector<uint64_t>> ring; ///< 8-byte units, for the alignment
  size_t nextBuffer = 0;
};

/// Block tables that follow the steps' changes: what a rank keeps on its device.
class TableMirror {
public:
  TableMirror(uint32_t groups, uint32_t tableSlots)
      : slots(tableSlots), tables(size_t(groups) * tableSlots) {}

  /// Applies a step's changes, or takes a snapshot. Unavailable, with nothing changed,
  /// when the step builds on another version: ask for a snapshot. A snapshot that is newer
  /// than the step holds its changes already.
  Status apply(const StepInput &input);
  static constexpr uint64_t kMaxEntries = 1 << 24; ///< of one block table

  std::span<const int32_t> table(uint32_t group, uint32_t slot) const {
    return tables[size_t(group) * slots + slot];
  }
  uint64_t version() const { return at; }

private:
  uint32_t slots;
  uint64_t at = 0, snapshotVersion = 0;
  std::vector<std::vector<int32_t>> tables;
};

} // namespace llmopt::runtime

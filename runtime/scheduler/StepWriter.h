// Builds the bytes of a step. All memory is reserved at construction; a step within the
// capacities allocates nothing.
#pragma once

#include "runtime/kv/LargePages.h"
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
  /// Gives back the last ones of an `extend`.
  void cut(size_t size) { used = size; }
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

  /// `rows`: how many there will be; 0 where that is not known, which costs moving the tokens.
  void begin(uint64_t stepId, step::Kind kind = step::Kind::Step, uint32_t rows = 0);

  /// A row whose tokens and drafts are added after it, before the next row.
  step::Row &addRow() {
    step::Row &row = *newRow() = {};
    row.firstToken = tokenUsed;
    row.firstDraft = uint32_t(drafts.size());
    return row;
  }
  /// Rows of one token whose logits are wanted, for a loop over many. What `add` does not set in a
  /// row is uninitialised.
  class Decodes {
  public:
    step::Row &add(kv::Token id) { return addToken(int32_t(id)); }
    step::Row &add(step::Reference token) {
      *reference++ = token;
      return addToken(-1 - nextReference++);
    }
    /// Where the next ones go, and the first one's token: for who writes all of them itself.
    step::Row *nextRow() const { return row; }
    step::Token *nextTokens() const { return token; }
    step::Reference *nextReferences() const { return reference; }
    uint32_t rowsWritten() const { return nextToken - tokenBegin; }
    uint32_t tokenIndex() const { return nextToken; }
    int32_t referenceIndex() const { return nextReference; }
    uint32_t draftIndex() const { return firstDraft; }
    void advance(uint32_t rows, uint32_t references) {
      row += rows;
      token += rows;
      nextToken += rows;
      reference += references;
      nextReference += int32_t(references);
    }

  private:
    friend class StepWriter;
    step::Row &addToken(int32_t id) {
      *token++ = {id};
      row->firstToken = nextToken++;
      row->tokenCount = 1;
      row->firstDraft = firstDraft;
      row->draftCount = 0;
      row->phase = step::Phase::Decode;
      return *row++;
    }
    step::Row *row;
    step::Token *token;
    step::Reference *reference;
    uint32_t nextToken, tokenBegin, firstDraft;
    int32_t nextReference;
  };
  /// At most `count` of them; nothing else is added before `end`.
  Decodes beginDecodes(uint32_t count);
  void end(Decodes decodes);
  /// `ids` as literals.
  void addTokens(std::span<const kv::Token> ids);
  void addReference(step::Reference reference) {
    *newTokens(1) = {-1 - int32_t(references.size())};
    references.push_back(reference);
    ++lastRow().tokenCount;
  }
  void addLiteral(kv::Token id) {
    *newTokens(1) = {int32_t(id)};
    ++lastRow().tokenCount;
  }
  void addDraft(step::Draft draft) {
    drafts.push_back(draft);
    ++lastRow().draftCount;
  }
  /// Logits of the row's last `count` tokens; after its tokens.
  void wantLogits(uint32_t count) {
    uint32_t end = tokenUsed;
    for (uint32_t i = end - count; i < end; ++i)
      logits.push_back(i);
  }
  /// What the block manager has to do on the device before the rows.
  void setTables(const kv::StepTables &tables);

  uint32_t rowCount() const { return head.rowCount; }
  uint32_t tokenCount() const { return tokenUsed; }

  /// Of draft `i` of the present row.
  uint16_t draftDepth(uint32_t i) { return drafts[lastRow().firstDraft + i].depth; }

  /// The bytes, valid until `buffers` further steps are finished.
  std::span<const uint8_t> finish();
  /// The rows in them.
  std::span<const step::Row> finishedRows() const {
    const Buffer &buffer = ring[(nextBuffer + ring.size() - 1) % ring.size()];
    return {reinterpret_cast<const step::Row *>(buffer.bytes() + sizeof(step::Header)),
            head.rowCount};
  }

private:
  /// Bytes of a step. Each row, and each row of a block of tokens, is a cache line.
  struct Buffer {
    kv::LargeArray<uint8_t> memory;
    size_t room = 0; ///< bytes
    static constexpr size_t kFront = 64 - sizeof(step::Header) % 64;
    uint8_t *bytes() { return memory.data() + kFront; }
    const uint8_t *bytes() const { return memory.data() + kFront; }
    /// Keeps the first `kept` bytes.
    void grow(size_t wanted, size_t kept);
  };

  static size_t rowsEnd(uint32_t count) {
    return sizeof(step::Header) + size_t(count) * sizeof(step::Row);
  }
  step::Row *rowAt(uint32_t index) {
    return reinterpret_cast<step::Row *>(ring[nextBuffer].bytes() + rowsEnd(index));
  }
  step::Row &lastRow() { return *rowAt(head.rowCount - 1); }
  /// Uninitialised. Rows and tokens are written where they stay; all else is put behind them in
  /// the end.
  step::Row *newRow() {
    if (head.rowCount == rowRoom) [[unlikely]]
      moveTokens(2 * rowRoom + 1);
    return rowAt(head.rowCount++);
  }
  step::Token *tokenAt(uint32_t index) {
    return reinterpret_cast<step::Token *>(ring[nextBuffer].bytes() + rowsEnd(rowRoom)) + index;
  }
  /// With what fills the last 8 bytes.
  size_t tokensEnd(uint32_t count) const {
    return rowsEnd(rowRoom) + ((size_t(count) * sizeof(step::Token) + 7) & ~size_t(7));
  }
  step::Token *newTokens(uint32_t count) {
    if (tokensEnd(tokenUsed + count) > ring[nextBuffer].room) [[unlikely]]
      ring[nextBuffer].grow(2 * tokensEnd(tokenUsed + count), tokensEnd(tokenUsed));
    tokenUsed += count;
    return tokenAt(tokenUsed - count);
  }
  /// To behind as many rows.
  void moveTokens(uint32_t rows);

  StepCapacities capacities;
  step::Header head;
  uint32_t rowRoom = 0, tokenUsed = 0; ///< rows before the tokens; tokens
  Appended<step::Reference> references;
  Appended<uint32_t> logits;
  Appended<step::Draft> drafts;
  Appended<step::Delta> deltas;
  Appended<int32_t> pages;
  Appended<step::Copy> copies;
  Appended<step::Free> frees;
  Appended<uint64_t> waits;
  std::vector<Buffer> ring;
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

// One step of the model, as bytes: what every rank needs to run it and nothing that lives
// in the scheduler. Little-endian, without pointers, immutable, one encoding for one
// content, so that the bytes can be broadcast, logged and replayed.
//
// Vocabulary. A *row* is one request's part of a step: a chunk of its prompt, one decode
// token, or a token with drafts to verify. A *table slot* is where the block tables of a
// request live on the device for as long as it runs. A row's *predecessor* is the row of
// the same request in an earlier step that was not completed when this step was made; the
// host then knows bounds only, and the device takes the row's base length, token ids and
// path from the predecessor's result.
//
// Layout: StepHeader, then the arrays in the order of the header's counts, each padded to
// 8 bytes.
#pragma once

#include "runtime/base/Status.h"

#include <bit>
#include <cstdint>
#include <span>

namespace llmopt::runtime {

static_assert(std::endian::native == std::endian::little, "the records are used as they lie");

namespace step {

inline constexpr uint32_t kMagic = 0x5053544c; ///< "LTSP"
inline constexpr uint16_t kVersion = 3;
inline constexpr uint32_t kNone = 0xffffffff;
inline constexpr uint64_t kNoStep = ~uint64_t(0);

enum class Kind : uint8_t {
  Step,     ///< rows to run, and changes to the block tables before them
  Snapshot, ///< no rows; the tables as a whole, for who has missed changes
};

enum class Phase : uint8_t { Prefill, Decode, Verify };

enum RowFlag : uint8_t {
  kSamples = 1, ///< yields tokens; else a chunk that is not the prompt's last
  kGreedy = 2,
  kPromptLogprobs = 4, ///< logits of every query token
  kFiltered = 8,       ///< a mask of allowed tokens goes with the row
};

struct Header {
  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  Kind kind = Kind::Step;
  uint8_t groupCount = 0;
  uint64_t totalBytes = 0;
  uint64_t checksum = 0; ///< of all bytes, with this field 0
  uint64_t stepId = 0;
  /// Table changes lead from `tableBase` to `tableVersion`. Whose tables have another
  /// version asks for a snapshot.
  uint64_t tableBase = 0, tableVersion = 0;
  uint32_t maxDraft = 0; ///< most drafts a row may have
  uint32_t tableSlots = 0;
  uint32_t rowCount = 0, tokenCount = 0, referenceCount = 0, logitCount = 0, draftCount = 0;
  uint32_t deltaCount = 0, pageCount = 0, copyCount = 0, freeCount = 0, waitCount = 0;
};
static_assert(sizeof(Header) == 96);

/// A cache line: with many requests, steps are rows mostly.
struct Row {
  uint64_t samplingSeed = 0;   ///< random numbers are a function of it and the position
  uint32_t predecessorAgo = 0; ///< steps since its last row that is not complete; 0: none
  uint32_t predecessorRow = kNone;
  uint32_t request = 0, generation = 0; ///< handle; echoed in results
  uint32_t tableSlot = 0;
  uint32_t firstToken = 0, tokenCount = 0; ///< its query tokens
  /// KV slots before this row: exact without predecessor; else at least `baseLength`, and
  /// the device takes the predecessor's new length.
  uint32_t baseLength = 0;
  uint32_t lengthBound = 0;    ///< KV slots after this row, at most; slots up to it exist
  uint32_t outputPosition = 0; ///< answer tokens before this row's first; at least, as above
  uint32_t outputLimit = 0;    ///< answer tokens of the request at most: sampling ends there
  uint32_t adapter = 0;        ///< 0: none
  uint32_t firstDraft = 0;     ///< in drafts; a row of d drafts has 1 + d query tokens
  uint16_t draftCount = 0;
  Phase phase = Phase::Prefill;
  uint8_t flags = 0;
};
static_assert(sizeof(Row) == 64);

/// KV slots that it fills, at least.
inline uint32_t leastOf(const Row &row) { return row.phase == Phase::Prefill ? row.tokenCount : 1; }

/// A query token. Its KV slot is the row's base length + its index in the row (linear); its
/// position is the row's base length + its depth: that of its draft, which siblings of a tree
/// share, else its index.
struct Token {
  int32_t id = 0; ///< >= 0: a literal; else references[-1 - id]
};
static_assert(sizeof(Token) == 4);

/// A token that an earlier step yields: index 0 is the row's last accepted token, 1 + i
/// the draft i that was made after it.
struct Reference {
  uint64_t step = 0;
  uint32_t row = 0, index = 0;
};
static_assert(sizeof(Reference) == 16);

/// A draft's place in its row's tree.
struct Draft {
  int16_t parent = -1; ///< a draft of the row that stands before it; -1: the first token
  uint16_t depth = 1;  ///< parent's depth + 1
};
static_assert(sizeof(Draft) == 4);

/// Entries [index, index + count) of a block table become pages[first ...]; -1 is an entry
/// without a page. Entries past a row's length are void.
struct Delta {
  uint32_t group = 0, tableSlot = 0, index = 0, count = 0, first = 0;
};
static_assert(sizeof(Delta) == 20);

/// A whole page, scales included, before this step's appends.
struct Copy {
  uint32_t group = 0;
  int32_t from = -1, to = -1;
};

/// A page whose last reader has completed: its content may be lost from now on.
struct Free {
  uint32_t group = 0;
  int32_t page = -1;
};

} // namespace step

/// A checked view of such bytes, which outlive it.
class StepInput {
public:
  /// DataLoss where the bytes are cut, corrupt or of another version, or break a rule of
  /// the records above; InvalidArgument where they do not lie at a multiple of 8.
  static StatusOr<StepInput> parse(std::span<const uint8_t> bytes);

  const step::Header &header() const { return *head; }
  std::span<const step::Row> rows() const { return rowArray; }
  std::span<const step::Token> tokens() const { return tokenArray; }
  std::span<const step::Reference> references() const { return referenceArray; }
  /// Indices of the query tokens whose logits are wanted, ascending.
  std::span<const uint32_t> logits() const { return logitArray; }
  std::span<const step::Draft> drafts() const { return draftArray; }
  std::span<const step::Delta> deltas() const { return deltaArray; }
  std::span<const int32_t> pages() const { return pageArray; }
  std::span<const step::Copy> copies() const { return copyArray; }
  std::span<const step::Free> frees() const { return freeArray; }
  /// Events (copies from host memory) that the device waits for first.
  std::span<const uint64_t> waits() const { return waitArray; }
  std::span<const uint8_t> bytes() const { return all; }

  std::span<const step::Token> tokensOf(const step::Row &row) const {
    return tokenArray.subspan(row.firstToken, row.tokenCount);
  }
  /// Of the row's token `index`.
  uint32_t depthOf(const step::Row &row, uint32_t index) const {
    return row.draftCount && index ? draftArray[row.firstDraft + index - 1].depth : index;
  }
  std::span<const step::Draft> draftsOf(const step::Row &row) const {
    return draftArray.subspan(row.firstDraft, row.draftCount);
  }
  /// Of a row that has a predecessor.
  uint64_t predecessorStep(const step::Row &row) const { return head->stepId - row.predecessorAgo; }

private:
  friend class StepWriter;
  /// Cuts the arrays; false where the counts do not give the header's total.
  bool cut(std::span<const uint8_t> bytes);
  Status check() const;
  Status checkRow(uint32_t index, uint32_t &nextToken, uint32_t &nextDraft) const;

  std::span<const uint8_t> all;
  const step::Header *head = nullptr;
  std::span<const step::Row> rowArray;
  std::span<const step::Token> tokenArray;
  std::span<const step::Reference> referenceArray;
  std::span<const uint32_t> logitArray;
  std::span<const step::Draft> draftArray;
  std::span<const step::Delta> deltaArray;
  std::span<const int32_t> pageArray;
  std::span<const step::Copy> copyArray;
  std::span<const step::Free> freeArray;
  std::span<const uint64_t> waitArray;
};

/// The checksum of step bytes, as in the header.
uint64_t stepChecksum(std::span<const uint8_t> bytes);

} // namespace llmopt::runtime

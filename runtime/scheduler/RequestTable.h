// The scheduler's own record of a request, and the table of them.
//
// Lengths. `tokens` are known: prompt and accepted answer. The KV of the first `computed`
// of them is valid. Rows in flight add between `inFlightLeast` and `inFlightMost` to that,
// and between `samplesInFlight` and as many tokens as are verified to the answer: the host
// knows bounds until the rows complete.
#pragma once

#include "runtime/kv/Admission.h"
#include "runtime/scheduler/Request.h"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace llmopt::runtime {

enum class RequestState : uint8_t {
  Unused,
  Waiting,    ///< in the queue, without pages, or with pages in host memory
  Running,    ///< has a table slot and pages
  Preempting, ///< to be preempted when its rows in flight have completed
};

struct alignas(64) Request {
  static constexpr uint32_t kNone = UINT32_MAX;

  // What each step looks at: two cache lines.
  RequestState state = RequestState::Unused;
  bool swapped : 1 = false;   ///< Waiting, with pages in host memory
  bool blocked : 1 = false;   ///< its filter's answer is awaited
  bool receiving : 1 = false; ///< Running, while another machine writes its pages: has no rows
  bool leads : 1 = false;     ///< others wait for its prompt
  bool greedy : 1 = true;
  bool promptLogprobs : 1 = false;
  bool filtered : 1 = false; ///< has a filter
  bool forPeer : 1 = false;  ///< its pages are offered to the connector
  bool steady : 1 = false;   ///< lengths and tokens here are of when it became so (Steady.cpp)
  uint8_t priority = 0, stopCount = 0;
  uint32_t generation = 0;
  uint32_t computed = 0;
  uint32_t inFlightRows = 0, inFlightLeast = 0, inFlightMost = 0, samplesInFlight = 0;
  uint32_t promptLength = 0; ///< as submitted
  uint32_t prefillEnd = 0;   ///< tokens known when it was admitted: these are prefilled
  uint32_t outputLimit = 0;
  uint32_t adapter = 0;
  uint32_t lastRow = kNone;
  uint64_t lastStep = 0; ///< of its newest row that samples

  /// Of prompt and answer (TokenMemory), of which `knownTokens` are there.
  kv::Token *memory = nullptr;
  kv::SequenceId sequence;
  uint64_t samplingSeed = 0;
  int64_t lastTokenNs = -1;
  uint32_t highestComputed = 0; ///< before preemptions: what is computed below it is recomputed
  kv::Token newest = 0;         ///< the last one
  uint32_t knownTokens = 0;
  /// While less is computed, a token more ends nothing, is recorded as one of many and is heard of
  /// by nobody but the listener.
  uint32_t plainEnd = 0;
  uint32_t preemptions = 0;
  TokenFilter *filter = nullptr;

  // Samples of one prompt: the first computes it, the others wait to be forked from it.
  uint32_t leader = kNone;    ///< waits for this one's prompt
  uint32_t firstFork = kNone; ///< who waits for its prompt, ...
  uint32_t nextFork = kNone;  ///< ... in a list
  uint32_t forks = 0;         ///< how many
  kv::TransferId transfer;    ///< while it is receiving
  uint64_t peerTag = 0;
  uint32_t remoteTokens = 0; ///< to come through the connector; 0 once it was tried

  // What comes and goes with it.
  uint32_t matched = 0;                  ///< of tokens, when last looked up in the cache
  uint32_t older = kNone, newer = kNone; ///< of its priority class, all unfinished ones
  uint64_t arrival = 0;                  ///< running number
  uint64_t submitStep = 0;               ///< steps launched before it came
  int64_t arrivalNs = 0, firstStepNs = -1, firstTokenNs = -1;
  std::array<kv::Token, kMaxStopTokens> stopTokens = {};
  std::optional<kv::Prompt> prompt;
  /// Neighbours an odd number of lines apart: else the first lines of all requests would share an
  /// eighth of the first cache.
  std::array<uint8_t, 64> apart;

  std::span<const kv::Token> tokens() const { return {memory, knownTokens}; }
  uint32_t known() const { return knownTokens; }
  uint32_t given() const { return known() - promptLength; }
  uint32_t leastLength() const { return computed + inFlightLeast; }
  uint32_t mostLength() const { return computed + inFlightMost; }
  bool prefilling() const { return leastLength() < prefillEnd; }
  /// Nothing but its tokens decides on its rows.
  bool plain() const {
    return state == RequestState::Running && !(blocked | receiving | leads | filtered);
  }
  /// Whether a further row could yield a token that is still wanted.
  bool wantsRow() const { return given() + samplesInFlight < outputLimit; }
  /// Answer tokens before its next row's first, at least, once its prefill is done: each row
  /// yields a token behind the one that it computes.
  uint32_t decodePosition() const { return leastLength() + 1 - promptLength; }
  /// After a token was given out.
  void updatePlainEnd() {
    bool plain = !filtered && !stopCount && computed >= highestComputed;
    plainEnd = plain ? promptLength + outputLimit - 2 : 0;
  }
  uint32_t memoryTokens() const { return promptLength + outputLimit; }
  void append(kv::Token token) { // within what was reserved
    memory[knownTokens++] = token;
    newest = token;
  }
};

static_assert(sizeof(Request) / 64 % 2 == 1);

/// What the last steps yielded for steady requests, by step and table slot, until it is written to
/// the requests' memory: each one's lies in a page of its own, and a store there for each token of
/// each row would miss the translation cache.
class NewestTokens {
public:
  NewestTokens(uint32_t tableSlots, uint32_t stepsInFlight)
      : slots(tableSlots), mask(std::bit_ceil(kLeast + stepsInFlight - 1) - 1),
        ring(size_t(slots) * (mask + 1)), written(slots), taken(4 * (mask + 1)) {}

  /// A steady request yields at most as many before all of them are written.
  uint32_t most() const { return mask + 1; }
  /// Of the step that completed last.
  const kv::Token *last() const { return ring.data() + size_t(newest & mask) * slots; }
  /// Of the step that is being completed.
  kv::Token *next() { return ring.data() + size_t((newest + 1) & mask) * slots; }
  void advance() { ++newest; }

  /// Of the slot's request, which is steady from now on, `count` tokens are in its memory.
  void begin(uint32_t slot, kv::Token *memory, uint32_t count) {
    written[slot] = {memory + count, memory[count - 1], count};
  }
  void end(uint32_t slot) { written[slot] = {}; }
  kv::Token lastWritten(uint32_t slot) const { return written[slot].last; }
  /// 0: it is not steady.
  uint32_t writtenTo(uint32_t slot) const { return written[slot].count; }
  /// A row that is not steady has no memory, and what lies behind a request's is fetched in vain:
  /// numbers, since they are no pointers into it.
  void fetch(uint32_t slot) const {
    auto at = reinterpret_cast<uintptr_t>(written[slot].end);
    __builtin_prefetch(reinterpret_cast<const void *>(at), 1);
    __builtin_prefetch(reinterpret_cast<const void *>(at + (kLeast - 1) * sizeof(kv::Token)), 1);
  }
  /// Writes the request's next tokens: it has `known` then, the last of them of the step that
  /// completed last, or `completing`, of the one that is being completed. Gives those whose KV is
  /// valid: not the last one, but the one before them. Valid until the next call.
  std::span<const kv::Token> write(uint32_t slot, uint32_t known, bool completing = false) {
    Written &to = written[slot];
    uint32_t count = known - to.count, first = newest + completing + 1 - count;
    taken[0] = to.last;
    const kv::Token *from = ring.data() + slot;
    for (uint32_t i = 0, step = first; i < count; ++i, ++step)
      taken[i + 1] = from[size_t(step & mask) * slots];
    std::copy_n(taken.begin() + 1, count, to.end);
    to = {to.end + count, taken[count], known};
    return {taken.data(), count};
  }

private:
  static constexpr uint32_t kLeast = 16; ///< blocks of 16 tokens are the most common
  struct Written {
    kv::Token *end = nullptr; ///< where the next one goes
    kv::Token last = 0;       ///< before it
    uint32_t count = 0;
  };
  uint32_t slots, mask, newest = 0;
  std::vector<kv::Token> ring;
  std::vector<Written> written; ///< of each slot
  std::vector<kv::Token> taken; ///< what `write` gives
};

} // namespace llmopt::runtime

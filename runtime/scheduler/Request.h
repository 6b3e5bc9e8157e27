// What a caller gives the scheduler and hears from it.
#pragma once

#include "runtime/kv/Admission.h"
#include "runtime/kv/PageMemory.h"
#include "runtime/kv/Prompt.h"
#include "runtime/metrics/Metrics.h"

#include <cstdint>
#include <limits>
#include <span>

namespace llmopt::runtime {

/// A request while it is unfinished. A handle of one that has ended is recognised.
struct RequestHandle {
  uint32_t slot = UINT32_MAX, generation = 0;
  bool operator==(const RequestHandle &) const = default;
};

/// Keeps what may be sampled next, for requests that must obey a grammar. Both functions
/// are called by the engine's thread.
class TokenFilter {
public:
  virtual ~TokenFilter() = default;
  /// `tokens` (prompt and answer) are known now, and the next one is to be sampled. True:
  /// the mask for it is ready. False: it will be, and Scheduler::filterReady says so;
  /// until then the request is left out of steps, and all others go on.
  virtual bool prepare(RequestHandle request, std::span<const kv::Token> tokens) = 0;
  /// How many of the drafts, from the first on, are allowed.
  virtual uint32_t allowedDrafts(RequestHandle request, std::span<const kv::Token> drafts) = 0;
};

/// Priority classes: 0 is the highest.
inline constexpr uint32_t kPriorities = 8;
inline constexpr uint32_t kMaxStopTokens = 8;
inline constexpr int64_t kNoDeadline = std::numeric_limits<int64_t>::max();

struct RequestParams {
  std::span<const kv::Token> prompt; ///< copied; tokens below 2^31
  uint32_t maxNewTokens = 1;         ///< at least 1
  uint32_t priority = 0;
  uint32_t adapter = 0; ///< 0: none. A part of the cache's key: pages are shared within one
  uint64_t samplingSeed = 0;
  bool greedy = true;
  bool promptLogprobs = false;           ///< runs the whole prompt, whatever is cached
  bool neverInsert = false;              ///< its pages are never found by others
  int64_t deadlineNs = kNoDeadline;      ///< of the clock; what is not finished then is ended
  std::span<const kv::Token> stopTokens; ///< at most kMaxStopTokens; given out as the last token
  /// First tokens of the prompt whose KV another machine has: they come through the
  /// scheduler's KvConnector, as far as they are not cached here.
  uint32_t remoteTokens = 0;
  /// When it has ended, by its length or a stop token, its pages are offered to the KvConnector.
  bool forPeer = false;
  uint64_t peerTag = 0; ///< by which the KvConnector knows the request
  /// Images, sounds, ... that tokens of the prompt stand for; in order, none over another. Copied.
  std::span<const kv::MediaSpan> media;
  kv::CacheKey key;              ///< what else decides the values in its pages
  TokenFilter *filter = nullptr; ///< outlives the request
};

/// Hears what becomes of requests, in the calls that find it out. Must not call the
/// scheduler back.
class RequestListener {
public:
  virtual ~RequestListener() = default;
  virtual void onTokens(RequestHandle request, std::span<const kv::Token> tokens,
                        int64_t nowNs) = 0;
  /// The last word; the handle is void afterwards.
  virtual void onFinish(RequestHandle request, FinishReason reason, int64_t nowNs) = 0;
};

/// A page with tokens of a transfer: those at positions [index * slots, (index + 1) * slots) of its
/// request. Where its bytes lie says the memory that the connector was attached to.
struct TransferPage {
  uint32_t group = 0, index = 0;
  kv::PageId page = kv::kNoPage;
};

/// Pages of a request for which another machine is to write tokens
/// [first, first + count) of its prompt. `first` is the start of a page in each group.
struct IncomingKv {
  RequestHandle request;
  kv::TransferId transfer;
  kv::SequenceId sequence;
  uint32_t first = 0, count = 0;
  uint64_t peerTag = 0;
  std::span<const TransferPage> pages = {}; ///< during the call; of a window those it has
};

/// Pages of a request that has ended, for another machine to read: of its prompt and answer the
/// first `tokens` tokens, which are all but the last.
struct OutgoingKv {
  RequestHandle request;
  kv::TransferId transfer;
  uint32_t tokens = 0;
  uint64_t peerTag = 0;
  std::span<const TransferPage> pages = {}; ///< during the call; of a window those it has
};

/// Brings KV from another machine, and takes it there. Outlives the scheduler and the executor.
///
/// Memory. Behind a `Server` it is told where pages lie (kv::PageMemoryUser); they are its peers'
/// to read or write from `start` or from an accepted `offer` on, until it has said how the transfer
/// ended, and in no case after `detach`. What it writes must be visible to the device before that
/// note. Of a last page it may write the slots behind the transfer's tokens too.
///
/// Calls. `start` comes in Scheduler::schedule, `cancel` and `offer` when a request ends; none may
/// call the scheduler back. Of a transfer that was taken the scheduler hears once how it ended
/// (Scheduler::transferDone or transferFailed; of one that goes out both mean the same), however
/// late: until then its pages are nobody else's.
class KvConnector : public kv::PageMemoryUser {
public:
  Status attach(const kv::PageMemory &) override { return {}; }
  void detach() override {}
  /// The pages are reserved. False: the transfer is not taken, the request computes its prompt.
  virtual bool start(const IncomingKv &incoming) = 0;
  /// The request has ended, or lost its pages: nothing is wanted any more. The peer may still
  /// write until it is said to have ended.
  virtual void cancel(kv::TransferId transfer) = 0;
  /// A request with `forPeer` has ended. True: its pages stay until the transfer is said to have
  /// ended. Not called where as many transfers are under way as may be.
  virtual bool offer(const OutgoingKv &) { return false; }
};

/// Proposes drafts on the host. A request gets host drafts only when none of its rows is
/// in flight.
class DraftSource {
public:
  virtual ~DraftSource() = default;
  /// Writes at most `drafts.size()` drafts and the parent of each (-1: the last token;
  /// else a draft before it); returns how many.
  virtual uint32_t propose(RequestHandle request, std::span<const kv::Token> tokens,
                           std::span<kv::Token> drafts, std::span<int16_t> parents) = 0;
};

} // namespace llmopt::runtime

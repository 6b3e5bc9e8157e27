// How the block manager answers on the hot path: a code without text, so that a
// refusal costs nothing. `describe` gives the sentence for a log or a client.
#pragma once

#include <cstdint>
#include <string_view>

namespace llmopt::runtime::kv {

enum class Reply : uint8_t {
  Ok,
  /// Pages lack now and may be there later: others hold them, or they wait for a
  /// step, a copy or a transfer to end. Nothing was changed; try again after the
  /// next completed step, or preempt somebody.
  TemporaryLack,
  /// The request would not fit even into an empty pool. Nothing was changed;
  /// refuse or abort it.
  PermanentLack,
  /// All table slots (or transfer slots) are taken. Temporary: nothing was changed.
  NoTableSlot,
  /// The sequence would become longer than `ManagerOptions::maxTokens`.
  TooLong,
  /// The handle is of a sequence that has ended, or of none. A late result of an
  /// aborted sequence gets this and is to be ignored.
  UnknownSequence,
  /// Not while a step with a row of this sequence is unfinished (fork, transfer).
  InFlight,
  /// No step is open, the step is unknown or already completed, or steps were
  /// completed out of order.
  WrongStep,
  /// `maxStepsInFlight` steps are unfinished: complete one first.
  TooManySteps,
  /// The sequence has a row in this step already, or has none to commit.
  WrongRow,
  /// The sequence is in host memory (or on its way there): swap it in first.
  SwappedOut,
  /// The sequence is in device memory already.
  NotSwappedOut,
  /// Host memory lacks room, or there is no mover. Preempt by recomputing.
  NoHostRoom,
  /// A count or a range in the call is wrong (0 tokens, more committed than
  /// reserved, more drafts than `maxDraft`).
  InvalidArgument,
};

/// The enumerator's name: "TemporaryLack".
std::string_view toString(Reply reply);

/// One sentence: what was found; what to do.
std::string_view describe(Reply reply);

} // namespace llmopt::runtime::kv

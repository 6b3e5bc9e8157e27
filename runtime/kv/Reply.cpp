#include "runtime/kv/Reply.h"

namespace llmopt::runtime::kv {

namespace {

struct Text {
  std::string_view name, sentence;
};

Text textOf(Reply reply) {
  switch (reply) {
  case Reply::Ok:
    return {"Ok", "done"};
  case Reply::TemporaryLack:
    return {"TemporaryLack", "too few pages are free now; wait for a step to complete, or preempt"};
  case Reply::PermanentLack:
    return {"PermanentLack", "more pages are needed than the pool has in all; refuse the request"};
  case Reply::NoTableSlot:
    return {"NoTableSlot", "all table slots are taken; wait for a sequence to end"};
  case Reply::TooLong:
    return {"TooLong", "the sequence would exceed the longest length; refuse the request"};
  case Reply::UnknownSequence:
    return {"UnknownSequence",
            "the handle names no living sequence or transfer; ignore the result"};
  case Reply::InFlight:
    return {"InFlight", "the sequence has unfinished rows or a transfer; wait for their end"};
  case Reply::WrongStep:
    return {"WrongStep", "the step is not the one that is due; open, close and complete in order"};
  case Reply::TooManySteps:
    return {"TooManySteps", "the most steps allowed are unfinished; complete one first"};
  case Reply::WrongRow:
    return {"WrongRow", "one row a step for each sequence, one commit a row, one end a transfer"};
  case Reply::SwappedOut:
    return {"SwappedOut", "the sequence is in host memory; swap it in first"};
  case Reply::NotSwappedOut:
    return {"NotSwappedOut", "the sequence is in device memory already"};
  case Reply::NoHostRoom:
    return {"NoHostRoom", "host memory has no room; preempt by recomputing"};
  case Reply::InvalidArgument:
    return {"InvalidArgument", "a count of the call is outside its bounds; see the declaration"};
  }
  return {"Unknown", "not a reply"};
}

} // namespace

std::string_view toString(Reply reply) { return textOf(reply).name; }
std::string_view describe(Reply reply) { return textOf(reply).sentence; }

} // namespace llmopt::runtime::kv

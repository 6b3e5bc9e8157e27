// Each answer of the block manager, provoked; after each the same manager serves another sequence
// (docs/status-codes.md).
#include "Story.h"

#include <functional>
#include <map>

using namespace kvtest;

namespace {

/// Copies to the host and back are never done.
struct Never : PageMover {
  EventId copyOut(std::span<const PageMove>, StepId) override { return ++events; }
  EventId copyIn(std::span<const PageMove>, StepId) override { return ++events; }
  bool done(EventId) override { return false; }
  EventId events = 0;
};

/// Eight pages of four tokens, three table slots, one step in flight, room for one page on the
/// host.
ManagerOptions small() {
  ManagerOptions options = optionsFor({fullGroup(4)}, 8);
  options.maxSequences = 3;
  options.maxTokens = 64;
  options.hostBytes = ManagerOptions::bytesForPages(options.groups, 1);
  return options;
}

using Provoke = std::function<Reply(Story &)>;

/// What is wrong, and puts it right again; the story has sequences of its own beside.
const std::map<Reply, Provoke> kProvoked = {
    {Reply::Ok, [](Story &story) { return story.kv->finish(story.run(text(0, 4))); }},
    {Reply::TemporaryLack,
     [](Story &story) {
       SequenceId holder = story.run(text(100, 28));
       std::vector<Token> tokens = text(0, 12);
       Prompt prompt = story.prompt(tokens);
       story.open();
       Reply reply = story.kv->admit(prompt, 12).reply;
       EXPECT_EQ(story.kv->cancelStep(), Reply::Ok);
       story.kv->finish(holder);
       return reply;
     }},
    {Reply::PermanentLack, [](Story &story) { return story.kv->fits(40, 1); }},
    {Reply::NoTableSlot,
     [](Story &story) {
       std::vector<SequenceId> held;
       for (Token first : {100, 200, 300})
         held.push_back(story.run(text(first, 1)));
       SequenceId child;
       Reply reply = story.kv->fork(held[0], child);
       for (SequenceId id : held)
         story.kv->finish(id);
       return reply;
     }},
    {Reply::TooLong, [](Story &story) { return story.kv->fits(65, 1); }},
    {Reply::UnknownSequence,
     [](Story &story) {
       SequenceId ended = story.run(text(0, 4));
       story.kv->finish(ended);
       return story.kv->finish(ended);
     }},
    {Reply::InFlight,
     [](Story &story) {
       SequenceId id = story.run(text(0, 4));
       story.open();
       EXPECT_EQ(story.kv->reserve(id, 1), Reply::Ok);
       StepId step = story.close();
       SequenceId child;
       Reply reply = story.kv->fork(id, child);
       EXPECT_EQ(story.kv->commit(id, step, text(9, 1)), Reply::Ok);
       EXPECT_EQ(story.kv->completeStep(step), Reply::Ok);
       story.kv->finish(id);
       return reply;
     }},
    {Reply::WrongStep, [](Story &story) { return story.kv->completeStep(1000); }},
    {Reply::TooManySteps,
     [](Story &story) {
       story.open();
       StepId step = story.close();
       Reply reply = story.kv->openStep();
       EXPECT_EQ(story.kv->completeStep(step), Reply::Ok);
       return reply;
     }},
    {Reply::WrongRow,
     [](Story &story) {
       SequenceId id = story.run(text(0, 4));
       story.open();
       EXPECT_EQ(story.kv->reserve(id, 1), Reply::Ok);
       Reply reply = story.kv->reserve(id, 1);
       EXPECT_EQ(story.kv->cancelStep(), Reply::Ok);
       story.kv->finish(id);
       return reply;
     }},
    {Reply::SwappedOut,
     [](Story &story) {
       SequenceId id = story.run(text(0, 4));
       EXPECT_EQ(story.kv->swapOut(id), Reply::Ok);
       Reply reply = story.kv->swapOut(id);
       story.kv->finish(id);
       return reply;
     }},
    {Reply::NotSwappedOut,
     [](Story &story) {
       SequenceId id = story.run(text(0, 4));
       Reply reply = story.kv->swapIn(id);
       story.kv->finish(id);
       return reply;
     }},
    {Reply::NoHostRoom,
     [](Story &story) {
       SequenceId id = story.run(text(0, 8));
       Reply reply = story.kv->swapOut(id);
       story.kv->finish(id);
       return reply;
     }},
    {Reply::InvalidArgument,
     [](Story &story) {
       std::vector<Token> tokens = text(0, 4);
       Prompt prompt = story.prompt(tokens);
       story.open();
       Reply reply = story.kv->admit(prompt, 0).reply;
       EXPECT_EQ(story.kv->cancelStep(), Reply::Ok);
       return reply;
     }},
};

} // namespace

TEST(KvReply, EachIsProvokedAndTheNextSequenceServed) {
  Never never;
  Story story(small(), &never);
  for (int code = 0; code <= int(Reply::InvalidArgument); ++code) {
    auto provoked = kProvoked.find(Reply(code));
    ASSERT_NE(provoked, kProvoked.end()) << "no scenario for " << toString(Reply(code));
    EXPECT_EQ(provoked->second(story), Reply(code)) << toString(Reply(code));
    EXPECT_TRUE(story.kv->check().ok()) << toString(Reply(code));
    SequenceId next = story.run(text(1000 + Token(code) * 10, 5));
    EXPECT_EQ(story.extend(next, {7}), Reply::Ok) << "after " << toString(Reply(code));
    EXPECT_EQ(story.kv->finish(next), Reply::Ok);
  }
}

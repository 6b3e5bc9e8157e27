// Forks as parallel sampling and beam search use them: children share the parent's pages, the
// last partial one is copied before it is written, and each is as alone.
#include "Alone.h"
#include "FailingDevice.h"
#include "Server.h"

#include "runtime/scheduler/StepWriter.h"

namespace llmopt::test {
namespace {

/// One sequence of the test: what is computed, and what comes next.
struct Beam {
  kv::SequenceId sequence;
  std::vector<kv::Token> tokens; ///< its last is not computed yet
  uint32_t given = 0;            ///< tokens since its prompt
  uint32_t promptTokens = 0;
  uint64_t seed = 0;
  uint32_t name = 0;
};

class Forks : public testing::Test {
protected:
  Forks()
      : model(TinyConfig()), layers(model), server(options(device), layers),
        alone(model, server.options.spec, server.options.groups) {
    const kv::ManagerOptions &memory = server.blocks->options();
    StepCapacities capacities;
    capacities.tableSlots = memory.maxSequences;
    capacities.groups = uint32_t(memory.groups.size());
    writer = std::make_unique<StepWriter>(capacities);
  }
  static ServerOptions options(std::shared_ptr<Device> device) {
    ServerOptions options;
    options.device = std::move(device);
    options.scheduler.maxRunning = 40;
    options.groups = {{{0}, 16, 0, 0}, {{1}, 8, 40, 2}};
    return options;
  }

  /// One step: the prompt's computed part of a new sequence, or a token of each beam.
  void step(std::vector<Beam> &beams, std::span<const kv::Token> prompt = {}) {
    ASSERT_EQ(blocks().openStep(), kv::Reply::Ok);
    if (!prompt.empty()) {
      key.emplace(prompt, kv::CacheKey(), blocks().blockSize());
      kv::Admission admission = blocks().admit(*key, uint32_t(prompt.size()));
      ASSERT_EQ(admission.reply, kv::Reply::Ok);
      beams[0].sequence = admission.sequence;
    } else {
      for (Beam &beam : beams)
        ASSERT_EQ(blocks().reserve(beam.sequence, 1), kv::Reply::Ok);
    }
    const kv::StepTables &tables = blocks().closeStep();
    writer->begin(tables.step);
    writer->setTables(tables);
    for (Beam &beam : beams) {
      step::Row &row = writer->addRow();
      row.samplingSeed = beam.seed;
      row.tableSlot = beam.sequence.slot;
      row.request = beam.name;
      row.baseLength = blocks().committedTokens(beam.sequence);
      row.lengthBound = blocks().boundTokens(beam.sequence);
      row.outputPosition = beam.given;
      row.outputLimit = 1000;
      row.phase = prompt.empty() ? step::Phase::Decode : step::Phase::Prefill;
      row.flags = prompt.empty() ? step::kSamples : 0;
      writer->addTokens(prompt.empty() ? std::span(beam.tokens).last(1) : prompt);
      if (prompt.empty())
        writer->wantLogits(1);
    }
    ASSERT_TRUE(server.executor->submit(writer->finish(), 0).ok());
    StatusOr<const StepResult *> result = server.executor->wait();
    ASSERT_TRUE(result.ok() && (*result)->status.ok());
    for (size_t i = 0; i < beams.size(); ++i) {
      Beam &beam = beams[i];
      std::span<const kv::Token> computed =
          prompt.empty() ? std::span<const kv::Token>(beam.tokens).last(1) : prompt;
      ASSERT_EQ(blocks().commit(beam.sequence, kv::StepId((*result)->step), computed),
                kv::Reply::Ok);
      if (prompt.empty()) {
        beam.tokens.push_back((*result)->tokens[i]);
        ++beam.given;
      }
    }
    ASSERT_EQ(blocks().completeStep(kv::StepId((*result)->step)), kv::Reply::Ok);
    Status sound = blocks().check();
    ASSERT_TRUE(sound.ok()) << sound.toString();
  }

  Beam fork(const Beam &parent) {
    Beam child = parent;
    EXPECT_EQ(blocks().fork(parent.sequence, child.sequence), kv::Reply::Ok);
    child.name = child.seed = ++names;
    // What the parent has so far is the child's prompt.
    child.promptTokens = uint32_t(child.tokens.size());
    child.given = 0;
    return child;
  }

  bool asAlone(const Beam &beam) {
    std::span<const kv::Token> prompt = std::span(beam.tokens).first(beam.promptTokens);
    Answer expected = alone.run(prompt, beam.given, false, beam.seed);
    return std::equal(expected.tokens.begin(), expected.tokens.end(),
                      beam.tokens.begin() + beam.promptTokens, beam.tokens.end()) &&
           layers.hashes[{beam.name, 0}] == expected.logits;
  }

  /// Eight samples of a prompt; half of them are dropped, and the others forked once more.
  /// Returns how many sequences were not as alone.
  uint32_t tellStory() {
    std::vector<kv::Token> prompt(101);
    for (uint32_t i = 0; i < prompt.size(); ++i)
      prompt[i] = (i * i * 13 + i) % 256;
    // All but the last token: each child draws its own first token behind it.
    std::vector<Beam> beams(1);
    beams[0].tokens = prompt;
    beams[0].promptTokens = uint32_t(prompt.size());
    step(beams, std::span(prompt).first(prompt.size() - 1));
    for (int i = 0; i < 7; ++i)
      beams.push_back(fork(beams[0]));
    for (int i = 0; i < 21 && !HasFatalFailure(); ++i)
      step(beams);
    uint32_t wrong = 0;
    for (const Beam &beam : beams)
      wrong += !asAlone(beam);
    for (size_t i = 4; i < beams.size(); ++i)
      EXPECT_EQ(blocks().finish(beams[i].sequence), kv::Reply::Ok);
    beams.resize(4);
    for (size_t i = 0; i < 4; ++i)
      beams.push_back(fork(beams[i]));
    for (int i = 0; i < 30 && !HasFatalFailure(); ++i)
      step(beams);
    for (const Beam &beam : beams) {
      wrong += !asAlone(beam);
      EXPECT_EQ(blocks().finish(beam.sequence), kv::Reply::Ok);
    }
    return wrong;
  }

  kv::BlockManager &blocks() { return *server.blocks; }

  std::shared_ptr<FailingDevice> device = std::make_shared<FailingDevice>(*CpuDevice::create(1));
  TinyModel model;
  TinyLayers layers;
  Server server;
  Alone alone;
  std::unique_ptr<StepWriter> writer;
  std::optional<kv::Prompt> key;
  uint32_t names = 0;
};

TEST_F(Forks, ParallelSamplesAndBeamsAreAsAlone) {
  EXPECT_EQ(tellStory(), 0u);
  kv::Counters counters = blocks().counters();
  EXPECT_GE(counters.forks, 10u);
  EXPECT_GE(counters.copies, 10u);
  fmt::print("{} forks, {} pages copied before a write\n", counters.forks, counters.copies);
}

// The scheduler's samples: prompts in chunks, few pages, two steps in flight.
TEST(Samples, AreAsAlone) {
  ServerOptions options;
  options.groups = {{{0}, 16, 0, 0}, {{1}, 8, 40, 2}};
  options.pages = 70;
  options.hostPages = 200;
  options.costs.secondsPerToken = 1e-5;
  options.costs.copyLatency = 7e-4;
  options.scheduler.stepsInFlight = 2;
  options.scheduler.chunkTokens = 48;
  TinyModel model(options.spec.model);
  TinyLayers layers(model);
  Server server(options, layers);
  for (uint32_t i = 0; i < 6; ++i) {
    std::vector<kv::Token> prompt(60 + 21 * i);
    for (uint32_t t = 0; t < prompt.size(); ++t)
      prompt[t] = (t * t * 7 + 5 * t + 50 * i) % 256;
    RequestParams params;
    params.prompt = prompt;
    params.maxNewTokens = 60;
    params.greedy = false;
    params.samplingSeed = 10 * i;
    ASSERT_TRUE(server.addSamples(params, 4).ok());
  }
  server.runOut();
  Alone alone(model, options.spec, options.groups);
  for (const Outcome &outcome : server.outcomes) {
    Answer expected = alone.run(outcome.prompt, outcome.asked, false, outcome.seed);
    EXPECT_EQ(outcome.answer.tokens, expected.tokens);
    EXPECT_EQ((layers.hashes[{outcome.handle.slot, outcome.handle.generation}]), expected.logits);
  }
  EXPECT_GT(server.scheduler->metrics().forks, 9u);
  EXPECT_GT(server.scheduler->metrics().preemptions, 0u);
  EXPECT_GT(server.blocks->counters().copies, 9u);
}

TEST_F(Forks, APageCopyThatIsLeftOutIsSeen) {
  device->skipCopies();
  EXPECT_GT(tellStory(), 4u);
}

} // namespace
} // namespace llmopt::test

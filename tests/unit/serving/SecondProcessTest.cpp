// Every step of a replay goes as bytes to a second process, a rank of its own, which must come to
// the same result; killed and started again in mid-run it catches up from a snapshot.
#include "runtime/engine/Ranks.h"
#include "runtime/engine/SimExecutor.h"
#include "runtime/replay/Replay.h"
#include "tests/support/TestData.h"

#include <csignal>
#include <deque>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace llmopt;
using namespace llmopt::runtime;

namespace {

struct Tokens : TokenSource {
  kv::Token token(uint32_t request, uint32_t generation, uint32_t position) override {
    return (request * 2654435761u ^ generation * 40503u ^ position * 97u) >> 1;
  }
};

/// Owns what its executor needs, and gives the machine's times, as a device does.
class Rank : public Executor {
public:
  Rank(const SimOptions &options, const ModelFacts &model)
      : inner(options, StepCost(model, accelerators()[1], {}), tokens) {}
  Status submit(std::span<const uint8_t> bytes, int64_t) override { return inner.submit(bytes, 0); }
  Status restore(std::span<const uint8_t> bytes) override { return inner.restore(bytes); }
  StatusOr<const StepResult *> wait() override {
    StatusOr<const StepResult *> result = inner.wait();
    if (!result)
      return result;
    taken = **result;
    taken.startedNs = taken.finishedNs = clock.now();
    return &taken;
  }
  Status reopen() override { return inner.reopen(); }

private:
  Tokens tokens;
  SimExecutor inner;
  MachineClock clock;
  StepResult taken;
};

struct Question {
  uint64_t bytes = 0;
  bool snapshot = false;
};
struct Answer {
  StatusCode code = StatusCode::Ok;
  uint64_t step = 0, statusHash = 0;
};

bool readAll(int from, void *to, size_t bytes) {
  for (auto *at = static_cast<uint8_t *>(to); bytes;) {
    ssize_t n = read(from, at, bytes);
    if (n <= 0)
      return false;
    at += n;
    bytes -= size_t(n);
  }
  return true;
}

bool writeAll(int to, const void *from, size_t bytes) {
  for (auto *at = static_cast<const uint8_t *>(from); bytes;) {
    ssize_t n = write(to, at, bytes);
    if (n <= 0)
      return false;
    at += n;
    bytes -= size_t(n);
  }
  return true;
}

/// What the second process does: it has nothing but the bytes that it reads.
[[noreturn]] void serveSteps(int from, int to, const SimOptions &options, const ModelFacts &model) {
  Rank rank(options, model);
  std::vector<uint64_t> words;
  for (Question question; readAll(from, &question, sizeof(question));) {
    words.resize((question.bytes + 7) / 8);
    if (!readAll(from, words.data(), question.bytes))
      _exit(1);
    std::span<const uint8_t> bytes(reinterpret_cast<uint8_t *>(words.data()), question.bytes);
    Answer answer;
    Status taken = question.snapshot ? rank.restore(bytes) : rank.submit(bytes, 0);
    answer.code = taken.code();
    if (taken.ok() && !question.snapshot) {
      StatusOr<const StepResult *> result = rank.wait();
      answer.code = result.status().code();
      if (result)
        answer = {StatusCode::Ok, (*result)->step, (*result)->statusHash};
    }
    if (!writeAll(to, &answer, sizeof(answer)))
      _exit(1);
  }
  _exit(0);
}

struct Counts {
  uint64_t compared = 0, restarts = 0;
};

class SecondProcess : public Executor {
public:
  SecondProcess(const SimOptions &options, const ModelFacts &model, uint64_t killEvery,
                Counts &counts)
      : options(options), model(model), killEvery(killEvery), counts(counts) {
    start();
  }
  ~SecondProcess() override { stop(SIGKILL); }

  Status submit(std::span<const uint8_t> bytes, int64_t) override {
    if (killEvery && ++steps % killEvery == 0) {
      stop(SIGKILL);
      start();
      ++counts.restarts;
    }
    Answer answer = ask(bytes, false);
    if (answer.code == StatusCode::Ok)
      answers.push_back(answer);
    return answer.code == StatusCode::Ok ? Status() : Status(answer.code, "the second process");
  }
  Status restore(std::span<const uint8_t> bytes) override {
    Answer answer = ask(bytes, true);
    return answer.code == StatusCode::Ok ? Status() : Status(answer.code, "the second process");
  }
  StatusOr<const StepResult *> wait() override {
    result.step = answers.front().step;
    result.statusHash = answers.front().statusHash;
    result.startedNs = result.finishedNs = clock.now();
    answers.pop_front();
    ++counts.compared;
    return &result;
  }
  Status reopen() override { return makeStatus(StatusCode::Internal, "not wanted here"); }

private:
  void start() {
    int down[2], up[2];
    ASSERT_TRUE(pipe(down) == 0 && pipe(up) == 0);
    child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(down[1]);
      close(up[0]);
      serveSteps(down[0], up[1], options, model);
    }
    close(down[0]);
    close(up[1]);
    to = down[1];
    from = up[0];
  }
  void stop(int signal) {
    kill(child, signal);
    waitpid(child, nullptr, 0);
    close(to);
    close(from);
  }
  Answer ask(std::span<const uint8_t> bytes, bool snapshot) {
    Question question{bytes.size(), snapshot};
    Answer answer;
    bool done = writeAll(to, &question, sizeof(question)) &&
                writeAll(to, bytes.data(), bytes.size()) && readAll(from, &answer, sizeof(answer));
    return done ? answer : Answer{.code = StatusCode::Internal};
  }

  SimOptions options;
  ModelFacts model;
  uint64_t killEvery, steps = 0;
  Counts &counts;
  pid_t child = -1;
  int to = -1, from = -1;
  std::deque<Answer> answers;
  StepResult result;
  MachineClock clock;
};

/// Both ranks; the replay sees one executor.
class Pair : public Executor {
public:
  Pair(const SimOptions &options, const ModelFacts &model, uint64_t killEvery, Counts &counts)
      : here(options, model), there(options, model, killEvery, counts), ranks({&here, &there}) {}
  Status submit(std::span<const uint8_t> bytes, int64_t now) override {
    return ranks.submit(bytes, now);
  }
  Status restore(std::span<const uint8_t> bytes) override { return ranks.restore(bytes); }
  StatusOr<const StepResult *> wait() override { return ranks.wait(); }
  Status reopen() override { return ranks.reopen(); }

private:
  Rank here;
  SecondProcess there;
  Ranks ranks;
};

struct Setting {
  const char *trace;
  uint64_t pages;
  uint32_t stepsInFlight = 1, drafts = 0;
  uint64_t killEvery = 0;
};

} // namespace

TEST(SecondProcess, RunsEachStepOfAReplayAlikeFromItsBytes) {
  LLMOPT_NEEDS_TEST_DATA();
  const Setting settings[] = {
      {"sharegpt_llama3.1_300_blocks16.jsonl.gz", 1500, 1, 0, 97},
      {"sharegpt_llama3.1_300_blocks16.jsonl.gz", 1500, 4, 3},
      {"mooncake_conversation_first5000.jsonl.gz", 10000, 2},
      {"azure2023_conv_first5000.csv.gz", 3000, 1, 0, 211},
  };
  for (const Setting &setting : settings) {
    StatusOr<Trace> trace = readTrace(test::dataFolder() / "traces" / setting.trace, {});
    ASSERT_TRUE(trace.ok()) << trace.status().toString();
    ReplayOptions options;
    options.model = llama8b(16);
    options.pages = setting.pages;
    options.speed = 1000;
    options.scheduler.maxLength = options.scheduler.maxWaiting = 0;
    options.scheduler.stepsInFlight = setting.stepsInFlight;
    options.scheduler.growthTokens = 0;
    for (uint32_t i = 0; i < setting.drafts; ++i)
      options.scheduler.deviceDrafts.push_back(int16_t(i) - 1);
    Counts counts;
    options.device = [&](const kv::ManagerOptions &manager,
                         const SchedulerOptions &scheduler) -> StatusOr<ReplayDevice> {
      SimOptions sim;
      sim.stepsInFlight = scheduler.stepsInFlight;
      sim.tableSlots = manager.maxSequences;
      sim.maxRows = scheduler.maxRunning;
      sim.maxDraft = scheduler.maxDraft();
      sim.acceptance = 0.6;
      return ReplayDevice{std::make_unique<Pair>(sim, options.model, setting.killEvery, counts)};
    };
    auto report = replay(*trace, options);
    ASSERT_TRUE(report.ok()) << setting.trace << ": " << report.status().toString();
    EXPECT_EQ(report->finished, report->requests) << setting.trace;
    EXPECT_EQ(counts.compared, report->metrics.steps) << setting.trace;
    fmt::print("{}: {} steps compared, {} restarts\n", setting.trace, counts.compared,
               counts.restarts);
    EXPECT_EQ(counts.restarts > 2, setting.killEvery > 0) << setting.trace;
  }
}

// The loop between scheduler and executor, its ranks, and what a lost device costs.
#include "runtime/engine/Engine.h"
#include "runtime/engine/Ranks.h"
#include "tests/unit/serving/Story.h"

using namespace llmopt::test;

namespace {

/// Time as a simulated device reports it; the host works 1 us a step.
struct TestClock : Clock {
  int64_t time = 0;
  int64_t now() override { return time; }
  void hostWorked(int64_t) override { time += 1000; }
  void reached(int64_t ns) override { time = std::max(time, ns); }
};

/// Fails when told to.
struct Faulty : Executor {
  explicit Faulty(Executor &device) : device(device) {}
  Status submit(std::span<const uint8_t> bytes, int64_t now) override {
    return ++submits == failSubmit ? lost() : device.submit(bytes, now);
  }
  Status restore(std::span<const uint8_t> bytes) override { return device.restore(bytes); }
  StatusOr<const StepResult *> wait() override {
    if (++waits == failWait)
      return lost();
    return device.wait();
  }
  Status reopen() override {
    ++reopened;
    return cannotReopen ? lost() : device.reopen();
  }
  static Status lost() { return makeStatus(StatusCode::Internal, "the device has fallen off"); }

  Executor &device;
  int submits = 0, waits = 0, failSubmit = 0, failWait = 0, reopened = 0;
  bool cannotReopen = false;
};

/// A rank whose tokens differ from a step on.
struct Diverging : Faulty {
  using Faulty::Faulty;
  int from = 5;
  StepResult wrong;
  StatusOr<const StepResult *> wait() override {
    auto result = device.wait();
    if (!result || ++waits != from)
      return result;
    wrong = **result;
    wrong.statusHash ^= 1;
    return &wrong;
  }
};

StatusOr<Engine::Progress> runAll(Engine &engine) {
  for (int i = 0; i < 100000; ++i) {
    auto progress = engine.advance();
    if (!progress || *progress == Engine::Progress::Idle)
      return progress;
  }
  return makeStatus(StatusCode::Internal, "never idle");
}

StoryOptions two() {
  StoryOptions options;
  options.scheduler.stepsInFlight = 2;
  return options;
}

void addFour(Story &story) {
  for (char name : {'A', 'B', 'C', 'D'})
    story.add(name, {.prompt = 5u + uint32_t(name) % 9, .answer = 12});
}

void expectFour(Story &story) {
  for (char name : {'A', 'B', 'C', 'D'})
    story.expectAnswer(name, 12);
  story.expectEmpty();
}

} // namespace

TEST(Engine, RunsUntilNothingIsLeftAndCountsHostTime) {
  Story story(two());
  TestClock clock;
  Timeline timeline;
  Engine engine(*story.scheduler, *story.device, clock, {.timeline = &timeline});
  addFour(story);
  ASSERT_TRUE(runAll(engine).ok());
  expectFour(story);
  EXPECT_EQ(story.scheduler->metrics().hostTime.count(), story.scheduler->metrics().steps);
  EXPECT_NE(timeline.chromeTrace().find("\"step 1\""), std::string::npos);
}

// Device time is the larger part: with two steps in flight the host's share is hidden.
TEST(Engine, TwoStepsInFlightHideTheHost) {
  auto seconds = [](uint32_t steps) {
    StoryOptions options;
    options.scheduler.stepsInFlight = steps;
    Story story(options);
    struct SlowHost : TestClock {
      void hostWorked(int64_t) override { time += 4'000'000; } // the device: about 6 ms a step
    } clock;
    Engine engine(*story.scheduler, *story.device, clock);
    story.add('A', {.prompt = 8, .answer = 200});
    EXPECT_TRUE(runAll(engine).ok());
    return std::pair(double(clock.time) * 1e-9, double(story.device->busyNs()) * 1e-9);
  };
  auto [apart, busy] = seconds(1);
  auto [overlapped, busyToo] = seconds(2);
  EXPECT_EQ(busy, busyToo);
  EXPECT_LE(overlapped, 1.1 * busy);
  EXPECT_GE(apart, 1.4 * busy);
}

TEST(Engine, ALostDeviceIsReopenedAndNoTokenIsLost) {
  for (bool atSubmit : {true, false}) {
    Story story(two());
    TestClock clock;
    Faulty device(*story.device);
    (atSubmit ? device.failSubmit : device.failWait) = 6;
    Engine engine(*story.scheduler, device, clock);
    addFour(story);
    auto end = runAll(engine);
    ASSERT_TRUE(end.ok()) << end.status().toString();
    EXPECT_EQ(device.reopened, 1);
    EXPECT_EQ(engine.deviceLosses(), 1u);
    expectFour(story);
    story.add('E', {}); // and it serves on
    ASSERT_TRUE(runAll(engine).ok());
    story.expectAnswer('E', 4);
  }
}

TEST(Engine, GivesUpWhenTheDeviceCannotBeReopened) {
  Story story(two());
  TestClock clock;
  Faulty device(*story.device);
  device.failWait = 3;
  device.cannotReopen = true;
  Engine engine(*story.scheduler, device, clock);
  addFour(story);
  EXPECT_EQ(runAll(engine).status().message(), "the device has fallen off");
  // The requests of the lost one may be given to another.
  Story next(two());
  Engine other(*next.scheduler, *next.device, clock);
  addFour(next);
  ASSERT_TRUE(runAll(other).ok());
  expectFour(next);
}

TEST(Engine, RanksThatAgreeRunAsOne) {
  Story story(two());
  SimOptions sim;
  sim.stepsInFlight = 2;
  sim.tableSlots = 16;
  SimExecutor second(sim, StepCost(llama8b(4), accelerators()[1], {}), story);
  Ranks ranks({story.device.get(), &second});
  TestClock clock;
  Engine engine(*story.scheduler, ranks, clock);
  addFour(story);
  for (int i = 0; i < 9; ++i)
    ASSERT_TRUE(engine.advance().ok());
  while (story.scheduler->stepsInFlight()) { // between steps one rank is restarted
    auto result = ranks.wait();
    ASSERT_TRUE(result.ok());
    ASSERT_TRUE(story.scheduler->complete(**result, clock.now()).ok());
  }
  ASSERT_TRUE(second.reopen().ok());
  auto end = runAll(engine);
  ASSERT_TRUE(end.ok()) << end.status().toString();
  EXPECT_EQ(engine.deviceLosses(), 0u) << "a snapshot is enough";
  expectFour(story);
}

TEST(Engine, RanksThatDisagreeAreAFault) {
  Story story;
  SimOptions sim;
  sim.tableSlots = 16;
  SimExecutor inner(sim, StepCost(llama8b(4), accelerators()[1], {}), story);
  Diverging second(inner);
  Ranks ranks({story.device.get(), &second});
  TestClock clock;
  Engine engine(*story.scheduler, ranks, clock, {.maxLosses = 0});
  addFour(story);
  std::string message = runAll(engine).status().message();
  EXPECT_NE(message.find("their tokens differ"), std::string::npos) << message;
  Story next; // what the ranks had may be given to others
  Engine other(*next.scheduler, *next.device, clock);
  addFour(next);
  ASSERT_TRUE(runAll(other).ok());
  expectFour(next);
}

TEST(StepCost, FollowsTheRoofline) {
  // A decode of one row reads all weights once: 16.06 GB at 0.8 of 3.35 TB/s, and 2048 keys.
  StepCostOptions options;
  options.launchSeconds = 0;
  StepCost cost(llama8b(16), *findAccelerator("h100"), options);
  StepCost::Work work;
  cost.begin(work);
  cost.addRow(work, 2047, 1);
  work.logits = 1;
  double weights = (32.0 * 218103808 + 128256.0 * 4096) * 2, keys = 2049.0 * 131072;
  EXPECT_NEAR(cost.seconds(work), (weights + keys) / (0.8 * 3.35e12), 1e-9);
  // A prefill of 2048 is bound by products.
  cost.begin(work);
  cost.addRow(work, 0, 2048);
  work.logits = 1;
  double products = 2.0 * (32.0 * 218103808 * 2048 + 128256.0 * 4096);
  double scores = 4.0 * 32 * 128 * 32 * (2048.0 * 2049 / 2);
  EXPECT_NEAR(cost.seconds(work), (products + scores) / (0.6 * 989e12), 1e-9);
  EXPECT_EQ(findAccelerator("tpu").status().message(),
            "accelerator 'tpu' is unknown; known are a100, h100, h200, b200, l40s, rtx4090");
}

// Pairs and keys of masks, by brute force over all queries and keys.
TEST(StepCost, CountsThePairsThatTheMaskLetsThrough) {
  for (auto kind : {kv::GroupKind::Full, kv::GroupKind::Window, kv::GroupKind::Chunked})
    for (uint32_t sink : {0u, 3u})
      for (uint64_t before = 0; before < 20; ++before)
        for (uint64_t queries = 1; queries < 15; ++queries) {
          ModelFacts model = llama8b(4);
          kv::GroupSpec &group = model.groups[0].group;
          group.kind = kind;
          group.window = group.chunk = 6;
          group.sink = kind == kv::GroupKind::Window ? sink : 0;
          StepCost cost(model, accelerators()[0], {});
          StepCost::Work work;
          cost.begin(work);
          cost.addRow(work, before, queries);
          double pairs = 0;
          std::vector<bool> seen(before + queries);
          for (uint64_t q = before; q < before + queries; ++q)
            for (uint64_t k = 0; k <= q; ++k)
              if (kind == kv::GroupKind::Full ||
                  (kind == kv::GroupKind::Window && (k + 6 > q || k < group.sink)) ||
                  (kind == kv::GroupKind::Chunked && k / 6 == q / 6)) {
                ++pairs;
                seen[k] = true;
              }
          double keys = double(std::count(seen.begin(), seen.end(), true) + int64_t(queries));
          EXPECT_EQ(work.keys[0], keys) << int(kind) << " " << before << " " << queries;
          EXPECT_EQ(work.pairs[0], pairs) << int(kind) << " " << before << " " << queries;
        }
}

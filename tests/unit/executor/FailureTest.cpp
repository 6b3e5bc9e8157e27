// What goes wrong on the device's side, and that the runtime serves another request after it.
#include "Alone.h"
#include "FailingDevice.h"
#include "Server.h"

namespace llmopt::test {
namespace {

class Failures : public testing::Test {
protected:
  Failures() : model(TinyConfig()), layers(model) {}

  void start(ServerOptions options) {
    device = std::make_shared<FailingDevice>(*CpuDevice::create(1));
    options.device = device;
    server = std::make_unique<Server>(options, layers);
    alone = std::make_unique<Alone>(model, options.spec, server->options.groups);
  }
  size_t add(uint32_t stream, uint32_t length = 90, uint32_t answer = 20) {
    std::vector<kv::Token> prompt(length);
    for (uint32_t i = 0; i < length; ++i)
      prompt[i] = (stream * 101 + i * 3) % 256;
    RequestParams params;
    params.prompt = prompt;
    params.maxNewTokens = answer;
    StatusOr<size_t> added = server->add(params);
    EXPECT_TRUE(added.ok()) << added.status().toString();
    return *added;
  }
  void expectAsAlone(size_t index) {
    const Outcome &outcome = server->outcomes[index];
    EXPECT_EQ(outcome.reason, FinishReason::Length);
    EXPECT_EQ(outcome.answer.tokens, alone->run(outcome.prompt, outcome.asked).tokens);
  }

  TinyModel model;
  TinyLayers layers;
  std::shared_ptr<FailingDevice> device;
  std::unique_ptr<Server> server;
  std::unique_ptr<Alone> alone;
};

TEST_F(Failures, AFailedLaunchFailsItsRowsAndHashesNothing) {
  for (uint32_t inFlight : {1u, 2u}) {
    ServerOptions options;
    options.scheduler.stepsInFlight = inFlight;
    start(options);
    device->failLaunchIn(3); // the second layer's append of the first step
    size_t failed = add(1);
    server->runOut();
    EXPECT_EQ(server->outcomes[failed].reason, FinishReason::DeviceFailure);
    EXPECT_TRUE(server->outcomes[failed].answer.tokens.empty());
    EXPECT_EQ(server->engine->deviceLosses(), 0u);
    // The same prompt: a page that was hashed would be hit, and its content is void.
    uint64_t hits = server->blocks->counters().hitTokens;
    size_t again = add(1);
    server->runOut();
    EXPECT_EQ(server->blocks->counters().hitTokens, hits);
    expectAsAlone(again);
  }
}

TEST_F(Failures, ALaterStepInFlightFailsWithItsPredecessor) {
  ServerOptions options;
  options.scheduler.stepsInFlight = 4;
  start(options);
  size_t one = add(1), other = add(2);
  // Both decode when the launch fails; their rows behind it are in flight.
  uint64_t steps = 0;
  server->runOut([&] {
    if (++steps == 6)
      device->failLaunchIn(1);
  });
  EXPECT_EQ(server->outcomes[one].reason, FinishReason::DeviceFailure);
  EXPECT_EQ(server->outcomes[other].reason, FinishReason::DeviceFailure);
  EXPECT_GT(server->scheduler->metrics().discardedRows, 2u);
  EXPECT_EQ(server->engine->deviceLosses(), 0u);
  size_t next = add(3);
  server->runOut();
  expectAsAlone(next);
}

TEST_F(Failures, ALostDeviceIsReopenedAndEveryRequestBeginsAgain) {
  ServerOptions options;
  options.scheduler.stepsInFlight = 2;
  start(options);
  size_t one = add(1), other = add(2);
  uint64_t steps = 0;
  server->runOut([&] {
    if (++steps == 8)
      device->lose();
  });
  EXPECT_EQ(server->engine->deviceLosses(), 1u);
  EXPECT_EQ(device->streams(), 2u);
  expectAsAlone(one);
  expectAsAlone(other);
}

/// Preempted requests that always go to host memory.
ServerOptions swappingOptions() {
  ServerOptions options;
  options.pages = 30;
  options.hostPages = 200;
  options.costs.secondsPerToken = 1;
  return options;
}

TEST_F(Failures, AHostPageThatChangedIsSeenAndItsRequestBeginsAgain) {
  for (bool damaged : {false, true}) {
    start(swappingOptions());
    if (damaged)
      device->damageCopyOut();
    std::vector<size_t> all;
    for (uint32_t i = 0; i < 6; ++i)
      all.push_back(add(i, 40, 110));
    server->runOut();
    EXPECT_GT(server->scheduler->metrics().swapOuts, 0u);
    EXPECT_EQ(server->engine->deviceLosses(), damaged ? 1u : 0u);
    for (size_t index : all)
      expectAsAlone(index);
  }
}

TEST_F(Failures, AGapInTheTablesIsFilledByASnapshot) {
  start({});
  size_t one = add(1);
  // A step that the executor never sees: as if a message were lost.
  std::span<const uint8_t> bytes = server->scheduler->schedule(0);
  StatusOr<StepInput> input = StepInput::parse(bytes);
  ASSERT_TRUE(input.ok());
  StepResult lost;
  lost.step = input->header().stepId;
  for (const step::Row &row : input->rows())
    lost.rows.push_back({row.request, row.generation, 0, 0, 0, true});
  ASSERT_TRUE(server->scheduler->complete(lost, 0).ok());
  EXPECT_EQ(server->outcomes[one].reason, FinishReason::DeviceFailure);
  size_t next = add(2);
  std::span<const uint8_t> second = server->scheduler->schedule(0);
  Status behind = server->executor->submit(second, 0);
  EXPECT_EQ(behind.code(), StatusCode::Unavailable);
  std::vector<uint64_t> tables = server->scheduler->snapshot();
  ASSERT_TRUE(server->executor
                  ->restore({reinterpret_cast<const uint8_t *>(tables.data()),
                             tables.size() * sizeof(tables[0])})
                  .ok());
  ASSERT_TRUE(server->executor->submit(second, 0).ok());
  StatusOr<const StepResult *> result = server->executor->wait();
  ASSERT_TRUE(result.ok());
  ASSERT_TRUE(server->scheduler->complete(**result, 0).ok());
  server->runOut();
  expectAsAlone(next);
}

TEST(KernelRules, AGapAnOverlapAndAForeignKernelAreRefused) {
  std::vector<TinyGroup> groups = {{{0, 1}, 16, 0, 0}};
  SpecOptions spec;
  LayerGroup group = layerGroup(spec.model, groups[0]);
  group.appendKernel = "append 0";
  std::shared_ptr<CpuDevice> device = *CpuDevice::create(1);
  auto load = [&](std::vector<KernelRule> rules, const LayerGroup &of) {
    return LayerKernels::load(*device, std::span(&of, 1), rules, {64, 3}, kernelsOf(spec, groups))
        .status()
        .toString();
  };
  using step::Phase;
  KernelRule prefill{0, Phase::Prefill, 1, 64, "attend 0"},
      decode{0, Phase::Decode, 1, 1, "attend 0"}, verify{0, Phase::Verify, 2, 4, "attend 0"};
  EXPECT_EQ(load({prefill, decode, verify}, group), "Ok");
  EXPECT_EQ(load({prefill, decode}, group),
            "InvalidArgument: layer group 0 has no kernel for verify rows of 2 to 4 tokens; rows "
            "of 2 to 4 can occur; add a rule");
  KernelRule low{0, Phase::Prefill, 1, 16, "attend 0"}, high{0, Phase::Prefill, 33, 64, "attend 0"};
  EXPECT_EQ(load({low, high, decode, verify}, group),
            "InvalidArgument: layer group 0 has no kernel for prefill rows of 17 to 32 tokens; "
            "rows of 1 to 64 can occur; add a rule");
  EXPECT_EQ(load({low, prefill, decode, verify}, group),
            "InvalidArgument: layer group 0 has two kernels for prefill rows of 1 tokens");
  LayerGroup other = group;
  other.queryHeads = 8;
  EXPECT_EQ(load({prefill, decode, verify}, other),
            "InvalidArgument: kernel 'attend 0' is for 4/2 heads of 8 and 8, pages of 16; its "
            "layer group has 8/2 heads of 8 and 8, pages of 16");
}

} // namespace
} // namespace llmopt::test

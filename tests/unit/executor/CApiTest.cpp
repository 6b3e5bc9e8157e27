// The server behind the C API gives the tokens of the sequence alone; what is wrong comes back as a
// status, and the server goes on.
#include "CApi.h"

#include <cstddef>
#include <stdexcept>
#include <string_view>

namespace llmopt::test {
namespace {

TEST_F(CApi, ServesTheTokensOfTheSequenceAloneAndGoesOnAfterFailures) {
  create(LLMOPT_OK);
  uint64_t one = submit(somePrompt(1));
  EXPECT_EQ(runOut()[one], "length");
  Alone alone(own.model, {}, oneGroup());
  EXPECT_EQ(answers[one], alone.run(somePrompt(1), 25, false, 5).tokens);
  own.fails = true;
  uint64_t failed = submit(somePrompt(2));
  EXPECT_EQ(runOut()[failed], "device_failure");
  own.fails = false;
  uint64_t aborted = submit(somePrompt(3));
  take(llmopt_server_abort(server, aborted), LLMOPT_OK);
  EXPECT_EQ(take(llmopt_server_abort(server, aborted), LLMOPT_NOT_FOUND),
            "request 3 has ended, or never was");
  llmopt_request empty = {};
  empty.struct_size = sizeof(empty);
  empty.max_new_tokens = 1;
  uint64_t id = 0;
  EXPECT_EQ(take(llmopt_server_submit(server, &empty, &id), LLMOPT_INVALID_ARGUMENT),
            "the prompt is empty; at least one token is needed");
  uint64_t last = submit(somePrompt(4));
  EXPECT_EQ(runOut()[last], "length");
  EXPECT_EQ(answers[last], alone.run(somePrompt(4), 25, false, 5).tokens);
  EXPECT_NE(std::string(llmopt_server_metrics(server)).find("generation_tokens"),
            std::string::npos);
}

TEST_F(CApi, SamplesOfAPromptAreAnswersWithSeedsOfTheirOwn) {
  create(LLMOPT_OK);
  std::vector<uint32_t> prompt = somePrompt(1);
  llmopt_request request = requestOf(prompt);
  request.samples = 4;
  uint64_t id = 0;
  take(llmopt_server_submit(server, &request, &id), LLMOPT_OK);
  EXPECT_EQ(id, 1u);
  EXPECT_EQ(submit(somePrompt(2)), 5u);
  std::map<uint64_t, std::string> reasons = runOut();
  Alone alone(own.model, {}, oneGroup());
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(reasons[id + i], "length");
    EXPECT_EQ(answers[id + i], alone.run(prompt, 25, false, 5 + i).tokens);
  }
  EXPECT_NE(answers[1], answers[2]);
  EXPECT_NE(std::string(llmopt_server_metrics(server)).find("num_forks_total 3"),
            std::string::npos);
  request.samples = 257;
  EXPECT_EQ(take(llmopt_server_submit(server, &request, &id), LLMOPT_INVALID_ARGUMENT),
            "257 samples of a prompt; 1 to 256, the most that may run, are allowed");
}

TEST_F(CApi, RefusesWhatIsWrongAndSaysWhat) {
  options.struct_size = sizeof(options) + 8;
  EXPECT_EQ(create(LLMOPT_INVALID_ARGUMENT),
            fmt::format("the server's options has a struct_size of {}; 8 to {} are known; set it "
                        "to its sizeof",
                        sizeof(options) + 8, sizeof(options)));
  options.struct_size = sizeof(options);
  model.sample = nullptr;
  EXPECT_EQ(create(LLMOPT_INVALID_ARGUMENT), "the model lacks a callback; all five are needed");
  model = cModel(own);
  options.rules_n = 1;
  EXPECT_EQ(create(LLMOPT_INVALID_ARGUMENT),
            "layer group 0 has no kernel for decode rows of 1 to 1 tokens; rows of 1 to 1 can "
            "occur; add a rule");
  options.rules_n = 2;
  EXPECT_EQ(take(llmopt_server_new(nullptr, &options, cSource, &own, &model, &server),
                 LLMOPT_INVALID_ARGUMENT),
            "the device is NULL");
  EXPECT_EQ(server, nullptr);
  const char damaged[] = "not a bundle";
  llmopt_kernel *kernel = nullptr;
  take(llmopt_kernel_load(device, damaged, sizeof(damaged), &kernel), LLMOPT_DATA_LOSS);
  EXPECT_EQ(kernel, nullptr);
  llmopt_device *none = nullptr;
  take(llmopt_device_open("tpu", &none), LLMOPT_INVALID_ARGUMENT);
  llmopt_device_free(none);
  llmopt_kernel_free(nullptr);
  llmopt_server_free(nullptr);
  llmopt_status_free(nullptr);
  EXPECT_STREQ(llmopt_server_metrics(nullptr), "");
  EXPECT_EQ(llmopt_api_version(), uint32_t(LLMOPT_API_VERSION));
}

// One server meets every code; after each it serves another request (docs/status-codes.md).
TEST_F(CApi, EachCodeIsProvokedAndTheServerServesOn) {
  options.max_length = 200;
  options.pages = 8;
  create(LLMOPT_OK);
  Alone alone(own.model, {}, oneGroup());
  auto servesOn = [&](const char *after) {
    uint64_t id = submit(somePrompt(1));
    EXPECT_EQ(runOut()[id], "length") << after;
    EXPECT_EQ(answers[id], alone.run(somePrompt(1), 25, false, 5).tokens) << after;
  };
  auto serverWith = [&](const llmopt_server_options &with, llmopt_kernel_source source) {
    llmopt_server *other = nullptr;
    llmopt_status *status = llmopt_server_new(device, &with, source, &own, &model, &other);
    EXPECT_EQ(other, nullptr);
    return status;
  };
  servesOn("OK");
  take(llmopt_server_submit(server, nullptr, nullptr), LLMOPT_INVALID_ARGUMENT);
  servesOn("INVALID_ARGUMENT");
  take(llmopt_server_abort(server, 99), LLMOPT_NOT_FOUND);
  servesOn("NOT_FOUND");
  auto away = [](void *, const char *, const void **, size_t *) {
    return llmopt_status_new(LLMOPT_UNAVAILABLE, "the bundles are away");
  };
  EXPECT_EQ(take(serverWith(options, away), LLMOPT_UNAVAILABLE),
            "kernel 'append': the bundles are away");
  servesOn("UNAVAILABLE");

  // A prompt that the pool can never hold.
  std::vector<uint32_t> longPrompt(150, 1);
  llmopt_request request = {};
  request.struct_size = sizeof(request);
  request.prompt = longPrompt.data();
  request.prompt_n = longPrompt.size();
  request.max_new_tokens = 1;
  uint64_t id = 0;
  take(llmopt_server_submit(server, &request, &id), LLMOPT_RESOURCE_EXHAUSTED);
  servesOn("RESOURCE_EXHAUSTED");
  auto damaged = [](void *, const char *, const void **bundle, size_t *bytes) {
    *bundle = "not a bundle";
    *bytes = 12;
    return static_cast<llmopt_status *>(nullptr);
  };
  take(serverWith(options, damaged), LLMOPT_DATA_LOSS);
  servesOn("DATA_LOSS");
  // Contiguous keys and values: an executor has pages.
  auto contiguous = [](void *user, const char *name, const void **bundle, size_t *bytes) {
    if (std::string_view(name) == "append")
      return cSource(user, name, bundle, bytes);
    return compiledFor(*static_cast<CState *>(user), aloneSpec({}, oneGroup()[0]), bundle, bytes);
  };
  take(serverWith(options, contiguous), LLMOPT_UNSUPPORTED);
  servesOn("UNSUPPORTED");
  auto thrower = [](void *, const char *, const void **, size_t *) -> llmopt_status * {
    throw std::runtime_error("thrown");
  };
  EXPECT_EQ(take(serverWith(options, thrower), LLMOPT_INTERNAL), "thrown");
  servesOn("INTERNAL");
}

TEST_F(CApi, AStructOfAnEarlierVersionCountsAsZeroBehindItsEnd) {
  options.no_prefix_cache = 1; // behind the end: not read
  options.struct_size = offsetof(llmopt_server_options, no_prefix_cache);
  create(LLMOPT_OK);
  submit(somePrompt(1));
  runOut();
  submit(somePrompt(1));
  runOut();
  EXPECT_EQ(answers[1], answers[2]);
}

} // namespace
} // namespace llmopt::test

// The server behind the C++ and the C API gives the tokens of the sequence alone; what is wrong
// comes back as a status, and the server goes on.
#include "Alone.h"
#include "FailingDevice.h"

#include "codegen/compile/llmopt_compiler.h"
#include "runtime/api/Server.h"
#include "runtime/api/llmopt.h"
#include "runtime/bundle/BundleIO.h"

#include <gtest/gtest.h>
#include <stdexcept>

namespace llmopt::test {
namespace {

std::vector<kv::Token> somePrompt(uint32_t stream) {
  std::vector<kv::Token> prompt(70 + stream);
  for (uint32_t i = 0; i < prompt.size(); ++i)
    prompt[i] = (i * 11 + i * i * stream) % 256;
  return prompt;
}

const std::vector<TinyGroup> kGroups = {{{0, 1}, 16, 0, 0}};

llmopt::runtime::ServerOptions serverOptions(const SpecOptions &spec) {
  llmopt::runtime::ServerOptions options;
  options.groups = {layerGroup(spec.model, kGroups[0])};
  options.groups[0].pages.dataBytes = 0; // as the layers need
  options.groups[0].appendKernel = "append 0";
  options.rules = rulesOf(kGroups, 512, 0);
  options.scheduler.tokenBudget = 512;
  options.scheduler.maxLength = 1024;
  return options;
}

TEST(Api, TheServerGivesTheTokensOfTheSequenceAlone) {
  SpecOptions spec;
  TinyModel model(spec.model);
  TinyLayers layers(model);
  llmopt::runtime::ServerOptions options = serverOptions(spec);
  auto server = llmopt::runtime::Server::create(*CpuDevice::create(1), options,
                                                kernelsOf(spec, kGroups), layers);
  ASSERT_TRUE(server.ok()) << server.status().toString();
  std::map<uint64_t, std::vector<kv::Token>> answers;
  std::map<uint64_t, uint32_t> finished;
  for (uint32_t i = 1; i <= 5; ++i) {
    std::vector<kv::Token> prompt = somePrompt(i);
    RequestParams params;
    params.prompt = prompt;
    params.maxNewTokens = 30;
    StatusOr<uint64_t> id = (*server)->submit(params);
    ASSERT_TRUE(id.ok());
    EXPECT_EQ(*id, i);
  }
  EXPECT_TRUE((*server)->abort(5));
  EXPECT_FALSE((*server)->abort(5));
  EXPECT_FALSE((*server)->abort(99));
  while (true) {
    StatusOr<bool> more = (*server)->advance();
    ASSERT_TRUE(more.ok());
    for (ServerEvent event; (*server)->next(event);)
      if (event.kind == ServerEvent::Kind::Token)
        answers[event.request].push_back(event.token);
      else
        ++finished[event.request];
    if (!*more)
      break;
  }
  Alone alone(model, spec, kGroups);
  for (uint32_t i = 1; i <= 5; ++i) {
    EXPECT_EQ(finished[i], 1u);
    if (i < 5)
      EXPECT_EQ(answers[i], alone.run(somePrompt(i), 30).tokens);
  }
  EXPECT_TRUE(answers[5].empty());
  EXPECT_TRUE((*server)->check().ok());
}

TEST(Api, MemoryThatLacksIsSaidAndASmallerServerServes) {
  SpecOptions spec;
  TinyModel model(spec.model);
  TinyLayers layers(model);
  llmopt::runtime::ServerOptions options = serverOptions(spec);
  auto device = std::make_shared<FailingDevice>(*CpuDevice::create(1));
  device->limitMemory(1 << 20);
  auto create = [&] {
    return llmopt::runtime::Server::create(device, options, kernelsOf(spec, kGroups), layers);
  };
  Status lacking = create().status();
  EXPECT_EQ(lacking.code(), StatusCode::ResourceExhausted) << lacking.toString();
  EXPECT_NE(lacking.message().find("no memory for"), std::string::npos) << lacking.toString();
  options.pages = 100;
  auto server = create();
  ASSERT_TRUE(server.ok()) << server.status().toString();
  std::vector<kv::Token> prompt = somePrompt(1), answer;
  RequestParams params;
  params.prompt = prompt;
  params.maxNewTokens = 30;
  ASSERT_TRUE((*server)->submit(params).ok());
  for (StatusOr<bool> more = true; more && *more; more = (*server)->advance())
    for (ServerEvent event; (*server)->next(event);)
      if (event.kind == ServerEvent::Kind::Token)
        answer.push_back(event.token);
  EXPECT_EQ(answer, Alone(model, spec, kGroups).run(prompt, 30).tokens);
}

/// The tiny model behind C callbacks.
struct CState {
  TinyModel model{TinyConfig()};
  std::vector<float> hidden, logits;
  std::vector<uint8_t> bundle;
  bool fails = false;
};

CState &state(void *user) { return *static_cast<CState *>(user); }

llmopt_status *cBegin(void *user, const llmopt_batch *batch) {
  CState &s = state(user);
  if (s.fails)
    return llmopt_status_new(LLMOPT_UNAVAILABLE, "the weights are away");
  s.hidden.resize(batch->tokens_n * s.model.config().hidden);
  for (size_t t = 0; t < batch->tokens_n; ++t)
    s.model.embed(batch->ids[t], &s.hidden[t * s.model.config().hidden]);
  return nullptr;
}

llmopt_status *cProject(void *user, const llmopt_batch *batch, uint32_t layer,
                        const llmopt_layer_arrays *arrays) {
  CState &s = state(user);
  for (size_t t = 0; t < batch->tokens_n; ++t)
    s.model.project(layer, batch->positions[t], &s.hidden[t * s.model.config().hidden],
                    static_cast<float *>(arrays->query) + t * s.model.queryWidth(),
                    static_cast<float *>(arrays->key) + t * s.model.keyWidth(),
                    static_cast<float *>(arrays->value) + t * s.model.keyWidth());
  return nullptr;
}

llmopt_status *cAbsorb(void *user, const llmopt_batch *batch, uint32_t layer,
                       const llmopt_layer_arrays *arrays) {
  CState &s = state(user);
  for (size_t t = 0; t < batch->tokens_n; ++t)
    s.model.absorb(layer, static_cast<const float *>(arrays->output) + t * s.model.queryWidth(),
                   &s.hidden[t * s.model.config().hidden]);
  return nullptr;
}

llmopt_status *cFinish(void *user, const llmopt_batch *batch) {
  CState &s = state(user);
  s.logits.resize(batch->logits_n * s.model.config().vocabulary);
  for (size_t i = 0; i < batch->logits_n; ++i)
    s.model.logits(&s.hidden[batch->logits[i] * s.model.config().hidden],
                   &s.logits[i * s.model.config().vocabulary]);
  return nullptr;
}

llmopt_status *cSample(void *user, const llmopt_sample *query, uint32_t *token) {
  CState &s = state(user);
  uint32_t vocabulary = s.model.config().vocabulary;
  *token = sampleFrom(std::span(s.logits).subspan(query->logit * vocabulary, vocabulary),
                      query->greedy, query->seed, query->position);
  return nullptr;
}

/// Compiles a spec; the bytes stay in `s`.
llmopt_status *compiled(CState &s, const std::string &text, const void **bundle, size_t *bytes) {
  void *made = nullptr;
  char *message = nullptr;
  if (int code = llmopt_compile(text.c_str(), "cpu", &made, bytes, &message)) {
    llmopt_status *failed = llmopt_status_new(llmopt_code(code), message);
    llmopt_compiler_free(message);
    return failed;
  }
  s.bundle.assign(static_cast<uint8_t *>(made), static_cast<uint8_t *>(made) + *bytes);
  llmopt_compiler_free(made);
  *bundle = s.bundle.data();
  return nullptr;
}

llmopt_status *cSource(void *user, const char *name, const void **bundle, size_t *bytes) {
  SpecOptions spec;
  bool append = std::string_view(name) == "append";
  return compiled(state(user), append ? appendSpec(spec, kGroups[0]) : pagedSpec(spec, kGroups[0]),
                  bundle, bytes);
}

class CApi : public testing::Test {
protected:
  void SetUp() override {
    take(llmopt_device_open("cpu", &device), LLMOPT_OK);
    group.struct_size = sizeof(group);
    group.layers = layers;
    group.layers_n = 2;
    group.query_heads = 4;
    group.kv_heads = 2;
    group.key_dim = group.value_dim = 8;
    group.page_size = 16;
    group.append_kernel = "append";
    rules[0] = {sizeof(rules[0]), 0, LLMOPT_PREFILL, 1, 512, "attend"};
    rules[1] = {sizeof(rules[1]), 0, LLMOPT_DECODE, 1, 1, "attend"};
    options.struct_size = sizeof(options);
    options.groups = &group;
    options.groups_n = 1;
    options.rules = rules;
    options.rules_n = 2;
    options.token_budget = 512;
    options.max_length = 1024;
    model = {sizeof(model), &own, cBegin, cProject, cAbsorb, cFinish, cSample};
  }
  void TearDown() override {
    llmopt_server_free(server);
    llmopt_device_free(device);
  }
  /// Checks the code, frees the status and gives its message.
  std::string take(llmopt_status *status, llmopt_code wanted) {
    std::string message = llmopt_status_message(status);
    EXPECT_EQ(llmopt_status_code(status), wanted) << message;
    llmopt_status_free(status);
    return message;
  }
  std::string create(llmopt_code wanted) {
    return take(llmopt_server_new(device, &options, cSource, &own, &model, &server), wanted);
  }
  uint64_t submit(const std::vector<uint32_t> &prompt) {
    llmopt_request request = {};
    request.struct_size = sizeof(request);
    request.prompt = prompt.data();
    request.prompt_n = prompt.size();
    request.max_new_tokens = 25;
    request.seed = 5;
    uint64_t id = 0;
    take(llmopt_server_submit(server, &request, &id), LLMOPT_OK);
    return id;
  }
  /// Until nothing is left; the reason of each end.
  std::map<uint64_t, std::string> runOut() {
    std::map<uint64_t, std::string> reasons;
    for (int32_t busy = 1; busy;) {
      take(llmopt_server_advance(server, &busy), LLMOPT_OK);
      llmopt_event event = {};
      event.struct_size = sizeof(event);
      while (take(llmopt_server_next(server, &event), LLMOPT_OK).empty() &&
             event.kind != LLMOPT_EVENT_NONE)
        if (event.kind == LLMOPT_EVENT_TOKEN)
          answers[event.id].push_back(event.token);
        else
          reasons[event.id] = event.reason;
    }
    return reasons;
  }

  CState own;
  uint32_t layers[2] = {0, 1};
  llmopt_layer_group group = {};
  llmopt_kernel_rule rules[2] = {};
  llmopt_server_options options = {};
  llmopt_model model = {};
  llmopt_device *device = nullptr;
  llmopt_server *server = nullptr;
  std::map<uint64_t, std::vector<uint32_t>> answers;
};

TEST_F(CApi, ServesTheTokensOfTheSequenceAloneAndGoesOnAfterFailures) {
  create(LLMOPT_OK);
  uint64_t one = submit(somePrompt(1));
  EXPECT_EQ(runOut()[one], "length");
  Alone alone(own.model, {}, kGroups);
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
  llmopt_request request = {};
  request.struct_size = sizeof(request);
  request.prompt = prompt.data();
  request.prompt_n = prompt.size();
  request.max_new_tokens = 25;
  request.seed = 5;
  request.samples = 4;
  uint64_t id = 0;
  take(llmopt_server_submit(server, &request, &id), LLMOPT_OK);
  EXPECT_EQ(id, 1u);
  EXPECT_EQ(submit(somePrompt(2)), 5u);
  std::map<uint64_t, std::string> reasons = runOut();
  Alone alone(own.model, {}, kGroups);
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
  model.sample = cSample;
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

// Sizes are products of the caller's numbers: none of them wraps around to a small one.
TEST_F(CApi, NumbersWhoseSizesOverflowAreRefused) {
  options.pages = uint64_t{1} << 60;
  EXPECT_EQ(create(LLMOPT_INVALID_ARGUMENT),
            "1152921504606846976 pages; 1 to 2147483646 are allowed");
  std::swap(options.pages, options.host_pages);
  EXPECT_NE(create(LLMOPT_INVALID_ARGUMENT).find(" host pages;"), std::string::npos);
  options.max_running = uint32_t{1} << 31; // times two, with host pages
  options.host_pages = 64;
  EXPECT_NE(create(LLMOPT_INVALID_ARGUMENT).find("4294967295 sequences"), std::string::npos);
  options.max_running = 0;
  group.key_dim = group.value_dim = group.kv_heads = uint32_t{1} << 31;
  EXPECT_NE(create(LLMOPT_INVALID_ARGUMENT).find("18446744073709551615 bytes"), std::string::npos);
}

TEST_F(CApi, MediaAndWhatIsNeverInsertedKeepPromptsApart) {
  create(LLMOPT_OK);
  std::vector<uint32_t> prompt = somePrompt(1);
  llmopt_medium medium = {sizeof(medium), 20, 30, "cat", 3};
  llmopt_request request = {};
  request.struct_size = sizeof(request);
  request.prompt = prompt.data();
  request.prompt_n = prompt.size();
  request.max_new_tokens = 1;
  uint64_t id = 0, hits = 0;
  auto newHits = [&] {
    take(llmopt_server_submit(server, &request, &id), LLMOPT_OK);
    runOut();
    std::string text = llmopt_server_metrics(server), name = "\nllmopt:prefix_cache_hits_total ";
    uint64_t all = std::stoull(text.substr(text.find(name) + name.size()));
    return all - std::exchange(hits, all);
  };
  request.never_insert = 1;
  EXPECT_EQ(newHits(), 0u);
  EXPECT_EQ(newHits(), 0u);
  request.never_insert = 0;
  request.media = &medium;
  request.media_n = 1;
  EXPECT_EQ(newHits(), 0u);
  EXPECT_EQ(newHits(), 64u) << "its whole pages";
  medium.digest = "dog";
  EXPECT_EQ(newHits(), 16u) << "the page before it";
  medium.digest_n = 0;
  EXPECT_EQ(take(llmopt_server_submit(server, &request, &id), LLMOPT_INVALID_ARGUMENT),
            "a medium with a digest of 0 bytes stands for tokens 20 to 30 of 71; each has a digest "
            "and tokens of the prompt behind those of the one before");
}

// One server meets every code; after each it serves another request (docs/status-codes.md).
TEST_F(CApi, EachCodeIsProvokedAndTheServerServesOn) {
  options.max_length = 200;
  options.pages = 8;
  create(LLMOPT_OK);
  Alone alone(own.model, {}, kGroups);
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
    return compiled(state(user), aloneSpec({}, kGroups[0]), bundle, bytes);
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

/// C++ callers may forget that callbacks must not throw.
TEST_F(CApi, NoExceptionComesThrough) {
  model.begin = [](void *, const llmopt_batch *) -> llmopt_status * {
    throw std::runtime_error("thrown");
  };
  auto source = [](void *, const char *, const void **, size_t *) -> llmopt_status * {
    throw std::runtime_error("thrown");
  };
  EXPECT_EQ(
      take(llmopt_server_new(device, &options, source, &own, &model, &server), LLMOPT_INTERNAL),
      "thrown");
}

TEST(Compiler, SaysWhereASpecIsWrong) {
  void *bundle = nullptr;
  size_t bytes = 0;
  char *message = nullptr;
  EXPECT_EQ(llmopt_compile("func.func @f(%q: tensor<?x4xq32>)", "cpu", &bundle, &bytes, &message),
            LLMOPT_INVALID_ARGUMENT);
  EXPECT_TRUE(std::string(message).starts_with("line 1, column ")) << message;
  llmopt_compiler_free(message);
  EXPECT_EQ(llmopt_compile("", "cpu", &bundle, &bytes, &message), LLMOPT_INVALID_ARGUMENT);
  EXPECT_STREQ(message, "the text has no function with an attn op; write a spec");
  llmopt_compiler_free(message);
  EXPECT_EQ(llmopt_compile(nullptr, "cpu", &bundle, &bytes, nullptr), LLMOPT_INVALID_ARGUMENT);
  EXPECT_EQ(bundle, nullptr);
}

} // namespace
} // namespace llmopt::test

// What the options and requests of the C API do: policy, deadline, cache keys, chunks, captures,
// reset and events of the prefix cache, metrics.
#include "CApi.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

namespace llmopt::test {
namespace {

TEST_F(CApi, ThePolicyOrdersTheQueue) {
  for (llmopt_policy policy : {LLMOPT_FCFS, LLMOPT_PRIORITY, LLMOPT_SHORTEST_REMAINING}) {
    options.max_running = 1;
    options.policy = policy;
    create(LLMOPT_OK);
    order.clear();
    const uint32_t priorities[] = {7, 7, 0};
    const std::vector<uint32_t> prompt = somePrompt(1);
    for (uint32_t i = 0; i < 3; ++i) {
      llmopt_request request = requestOf(prompt);
      request.priority = priorities[i];
      request.max_new_tokens = 9 - 2 * (i == 1);
      submit(request);
    }
    runOut();
    std::vector<uint64_t> expected = {1, 2, 3};
    if (policy == LLMOPT_PRIORITY)
      expected = {3, 1, 2};
    if (policy == LLMOPT_SHORTEST_REMAINING)
      expected = {2, 1, 3};
    EXPECT_EQ(order, expected) << "policy " << policy;
    llmopt_server_free(std::exchange(server, nullptr));
  }
}

TEST_F(CApi, ADeadlineEndsARequest) {
  create(LLMOPT_OK);
  std::vector<uint32_t> prompt = somePrompt(1);
  llmopt_request request = requestOf(prompt);
  request.deadline_ns = 200'000'000;
  uint64_t late = submit(request);
  request.deadline_ns = UINT64_MAX;
  uint64_t ample = submit(request);
  std::this_thread::sleep_for(std::chrono::milliseconds(210));
  std::map<uint64_t, std::string> reasons = runOut();
  EXPECT_EQ(reasons[late], "deadline");
  EXPECT_EQ(reasons[ample], "length");
}

TEST_F(CApi, PagesAreSharedOnlyUnderEqualKeys) {
  create(LLMOPT_OK);
  std::vector<uint32_t> prompt = somePrompt(1);
  auto hits = [&](uint32_t adapter, uint64_t version, const char *salt) {
    auto counted = [&] {
      return nlohmann::json::parse(llmopt_server_metrics_json(server))["prefix_cache_hits_total"]
          .get<uint64_t>();
    };
    uint64_t before = counted();
    llmopt_request request = requestOf(prompt);
    request.adapter = adapter;
    request.adapter_version = version;
    request.salt = salt;
    submit(request);
    runOut();
    return counted() - before;
  };
  EXPECT_EQ(hits(0, 0, nullptr), 0u);
  EXPECT_EQ(hits(0, 0, ""), 70u);
  EXPECT_EQ(hits(1, 0, nullptr), 0u);
  EXPECT_EQ(hits(2, 0, nullptr), 0u);
  EXPECT_EQ(hits(1, 1, nullptr), 0u);
  EXPECT_EQ(hits(1, 1, "tenant"), 0u);
  EXPECT_EQ(hits(1, 1, "tenant"), 70u);
  EXPECT_EQ((std::set<uint32_t>{own.adapters.begin(), own.adapters.end()}),
            (std::set<uint32_t>{0, 1, 2}))
      << "the model is told whose rows it computes";
  EXPECT_EQ(answers[1], answers[7]);
}

TEST_F(CApi, ResetAndEventsOfThePrefixCache) {
  options.cache_events = 8;
  create(LLMOPT_OK);
  auto nextEvent = [&] {
    llmopt_cache_event event = {};
    event.struct_size = sizeof(event);
    take(llmopt_server_next_cache_event(server, &event), LLMOPT_OK);
    return event;
  };
  auto blocks = [&] {
    std::map<uint64_t, uint64_t> found;
    take(llmopt_server_cached_blocks(
             server,
             [](void *user, uint64_t block, uint64_t parent) {
               (*static_cast<std::map<uint64_t, uint64_t> *>(user))[block] = parent;
             },
             &found),
         LLMOPT_OK);
    return found;
  };
  std::vector<uint32_t> prompt = somePrompt(1); // and 24 tokens: 95, five whole blocks
  submit(prompt);
  runOut();
  std::map<uint64_t, uint64_t> told;
  for (llmopt_cache_event event = nextEvent(); event.kind != LLMOPT_CACHE_NONE;
       event = nextEvent()) {
    EXPECT_EQ(event.kind, LLMOPT_CACHE_STORED);
    EXPECT_EQ(event.lost, 0u);
    told[event.block] = event.parent;
  }
  EXPECT_EQ(told.size(), 5u);
  EXPECT_EQ(told, blocks());
  take(llmopt_server_reset_cache(server), LLMOPT_OK);
  EXPECT_EQ(nextEvent().kind, LLMOPT_CACHE_CLEARED);
  EXPECT_TRUE(blocks().empty());
  submit(prompt);
  runOut();
  EXPECT_NE(metrics().find("llmopt:prefix_cache_hits_total 0\n"), std::string::npos);
  submit(somePrompt(2));
  runOut();
  EXPECT_EQ(nextEvent().lost, 3u) << "five and six, and room for eight";
  EXPECT_EQ(answers[1], answers[2]);
}

TEST_F(CApi, MetricsCoverExecutorAndPages) {
  llmopt_capture capture = {sizeof(capture), 4, 1, 1u << LLMOPT_DECODE};
  options.captures = &capture;
  options.captures_n = 1;
  options.chunk_tokens = 32;
  create(LLMOPT_OK);
  submit(somePrompt(1));
  submit(somePrompt(2));
  runOut();
  nlohmann::json json = nlohmann::json::parse(llmopt_server_metrics_json(server));
  uint64_t replayed = json["replayed_steps_total"][0], eager = json["eager_steps_total"];
  EXPECT_GT(replayed, 15u);
  EXPECT_GE(eager, 3u) << "a prompt of 71 tokens in chunks of 32";
  EXPECT_EQ(replayed + eager, json["steps_total"].get<uint64_t>());
  uint64_t plans = 0;
  for (const auto &[reason, count] : json["cascade_plans_total"].items())
    plans += count.get<uint64_t>();
  EXPECT_GT(plans, 0u);
  EXPECT_EQ(json["kv_group_pages"].size(), 1u);
  EXPECT_EQ(json["kv_group_pages"][0]["total"], 1024u);
  EXPECT_EQ(json["kv_group_pages"][0]["used"], 0u);
  EXPECT_GT(json["kv_group_pages"][0]["cached"].get<uint64_t>(), 0u);
  std::string text = metrics();
  for (const char *name :
       {"replayed_steps_total{bucket=\"0\"} ", "eager_steps_total ", "kv_page_evictions_total ",
        "kv_page_copies_total ", "kv_pages_swapped_out_total ", "kv_group_pages{group=\"0\"} 1024"})
    EXPECT_NE(text.find(std::string("llmopt:") + name), std::string::npos) << name;
  llmopt_server_free(std::exchange(server, nullptr));

  options.no_cascade = 1;
  create(LLMOPT_OK);
  submit(somePrompt(1));
  runOut();
  json = nlohmann::json::parse(llmopt_server_metrics_json(server))["cascade_plans_total"];
  for (const auto &[reason, count] : json.items())
    EXPECT_EQ(count.get<uint64_t>() > 0, reason == "off") << reason;
}

TEST_F(CApi, MediaAndWhatIsNeverInsertedKeepPromptsApart) {
  create(LLMOPT_OK);
  std::vector<uint32_t> prompt = somePrompt(1);
  llmopt_medium medium = {sizeof(medium), 20, 30, "cat", 3};
  llmopt_request request = requestOf(prompt);
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

} // namespace
} // namespace llmopt::test

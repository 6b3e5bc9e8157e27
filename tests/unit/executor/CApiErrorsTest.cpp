// What is wrong at the C API comes back as a status or as the end of a request: nothing is thrown
// through, nothing ends the process, and what comes after is served.
#include "CApi.h"

#include <cstddef>
#include <functional>

namespace llmopt::test {
namespace {

using Code = llmopt_code;

/// C++ callers may forget that callbacks must not throw. The rows of the step fail.
TEST_F(CApi, NoExceptionComesThrough) {
  own.thrower = "source";
  EXPECT_EQ(create(LLMOPT_INTERNAL), "thrown");
  own.thrower = "";
  create(LLMOPT_OK);
  std::vector<uint32_t> prompt = somePrompt(1);
  Alone alone(own.model, {}, oneGroup());
  std::vector<uint32_t> expected = alone.run(prompt, 25, false, 5).tokens;
  auto servesOn = [&](const std::string &after) {
    uint64_t id = submit(prompt);
    EXPECT_EQ(runOut()[id], "length") << after;
    EXPECT_EQ(answers[id], expected) << after;
  };
  for (const char *where : {"begin", "project", "absorb", "finish", "sample"})
    for (int what : {1, 2}) {
      own.thrower = where;
      own.throws = what;
      uint64_t id = submit(prompt);
      EXPECT_EQ(runOut()[id], "device_failure") << where;
      EXPECT_TRUE(answers[id].empty()) << where;
      own.thrower = "";
      servesOn(where);
    }
  own.largeToken = true;
  uint64_t id = submit(prompt);
  EXPECT_EQ(runOut()[id], "device_failure");
  own.largeToken = false;
  servesOn("a token of 2^31");
}

TEST_F(CApi, OptionsThatAreWrongAreRefused) {
  static uint32_t far[2] = {0, 4000000000u}, twice[2] = {0, 0}, gap[2] = {0, 5};
  using Options = llmopt_server_options;
  struct Case {
    std::function<void(llmopt_layer_group &, llmopt_kernel_rule *, Options &)> change;
    Code code;
    const char *says;
  };
  const Case cases[] = {
      {[](auto &g, auto *, auto &) { g.page_size = 0; }, LLMOPT_INVALID_ARGUMENT, "pages of 0"},
      {[](auto &g, auto *, auto &) { g.layers_n = 0; }, LLMOPT_INVALID_ARGUMENT, "group 0"},
      {[](auto &g, auto *, auto &) { g.layers = far; }, LLMOPT_INVALID_ARGUMENT, "4000000000"},
      {[](auto &g, auto *, auto &) { g.layers = twice; }, LLMOPT_INVALID_ARGUMENT, "layer 0"},
      {[](auto &g, auto *, auto &) { g.layers = gap; }, LLMOPT_INVALID_ARGUMENT, "layer 5"},
      {[](auto &g, auto *, auto &) { g.layers = nullptr; }, LLMOPT_INVALID_ARGUMENT, "NULL"},
      {[](auto &g, auto *, auto &) { g.append_kernel = nullptr; }, LLMOPT_INVALID_ARGUMENT, "NULL"},
      {[](auto &g, auto *, auto &) { g.kv_heads = 0; }, LLMOPT_INVALID_ARGUMENT, "group 0"},
      {[](auto &g, auto *, auto &) { g.query_heads = 5; }, LLMOPT_INVALID_ARGUMENT, "5/2 heads"},
      {[](auto &g, auto *, auto &) { g.type = llmopt_type(99); }, LLMOPT_INVALID_ARGUMENT,
       "type 99"},
      {[](auto &g, auto *, auto &) { g.type = LLMOPT_BOOL; }, LLMOPT_INVALID_ARGUMENT, "bool"},
      {[](auto &g, auto *, auto &) { g.struct_size = 0; }, LLMOPT_INVALID_ARGUMENT, "struct_size"},
      {[](auto &, auto *r, auto &) { r[0].group = 7; }, LLMOPT_INVALID_ARGUMENT, "group 7"},
      {[](auto &, auto *r, auto &) { r[0].phase = llmopt_phase(9); }, LLMOPT_INVALID_ARGUMENT,
       "phase 9"},
      {[](auto &, auto *r, auto &) { r[0].kernel = nullptr; }, LLMOPT_INVALID_ARGUMENT, "NULL"},
      {[](auto &, auto *, auto &o) { o.groups_n = 0; }, LLMOPT_INVALID_ARGUMENT, "groups"},
      {[](auto &, auto *, auto &o) { o.groups = nullptr; }, LLMOPT_INVALID_ARGUMENT, "NULL"},
      {[](auto &, auto *, auto &o) { o.pages = 1000000000; }, LLMOPT_RESOURCE_EXHAUSTED,
       "no memory"},
      {[](auto &, auto *, auto &o) { o.steps_in_flight = 99; }, LLMOPT_INVALID_ARGUMENT,
       "99 steps"},
      {[](auto &, auto *, auto &o) { o.token_budget = 4000000000u; }, LLMOPT_INVALID_ARGUMENT,
       "no kernel"},
      {[](auto &, auto *, auto &o) { o.policy = llmopt_policy(4); }, LLMOPT_INVALID_ARGUMENT,
       "policy 4"},
      {[](auto &, auto *, auto &o) { o.captures_n = 1; }, LLMOPT_INVALID_ARGUMENT, "NULL"},
  };
  const llmopt_layer_group goodGroup = group;
  const llmopt_kernel_rule goodRules[2] = {rules[0], rules[1]};
  const Options goodOptions = options;
  for (const Case &each : cases) {
    group = goodGroup;
    std::copy_n(goodRules, 2, rules);
    options = goodOptions;
    each.change(group, rules, options);
    std::string message = create(each.code);
    EXPECT_NE(message.find(each.says), std::string::npos) << message;
    ASSERT_EQ(server, nullptr) << message;
  }
  llmopt_capture capture = {sizeof(capture), 4, 1, 8};
  options = goodOptions;
  options.captures = &capture;
  options.captures_n = 1;
  EXPECT_NE(create(LLMOPT_INVALID_ARGUMENT).find("phases 0x8"), std::string::npos);
  options = goodOptions;
  create(LLMOPT_OK);
}

TEST_F(CApi, RequestsThatAreWrongAreRefusedAndOthersServed) {
  create(LLMOPT_OK);
  std::vector<uint32_t> prompt = somePrompt(1);
  auto refused = [&](auto change) {
    llmopt_request request = requestOf(prompt);
    change(request);
    uint64_t id = 77;
    std::string message =
        take(llmopt_server_submit(server, &request, &id), LLMOPT_INVALID_ARGUMENT);
    EXPECT_EQ(id, 77u) << message;
    EXPECT_FALSE(message.empty());
  };
  refused([](llmopt_request &r) { r.prompt = nullptr; });
  refused([](llmopt_request &r) { r.prompt_n = size_t(1) << 40; });
  refused([](llmopt_request &r) { r.max_new_tokens = 4294967295u; });
  refused([](llmopt_request &r) { r.max_new_tokens = 0; });
  refused([](llmopt_request &r) { r.samples = 4294967295u; });
  refused([](llmopt_request &r) { r.stop_tokens_n = 1; });
  refused([&](llmopt_request &r) { r.stop_tokens = r.prompt, r.stop_tokens_n = 9; });
  refused([](llmopt_request &r) { r.priority = 8; });
  refused([](llmopt_request &r) { r.struct_size = 3; });
  prompt[1] = 0x80000000u;
  refused([](llmopt_request &) {});
  prompt = somePrompt(1);
  take(llmopt_server_abort(server, 0), LLMOPT_NOT_FOUND);
  take(llmopt_server_advance(server, nullptr), LLMOPT_INVALID_ARGUMENT);
  take(llmopt_server_next(server, nullptr), LLMOPT_INVALID_ARGUMENT);
  take(llmopt_server_next_cache_event(server, nullptr), LLMOPT_INVALID_ARGUMENT);
  take(llmopt_server_cached_blocks(server, nullptr, nullptr), LLMOPT_INVALID_ARGUMENT);
  take(llmopt_server_reset_cache(nullptr), LLMOPT_INVALID_ARGUMENT);
  EXPECT_STREQ(llmopt_server_metrics_json(nullptr), "");
  uint64_t id = submit(prompt);
  EXPECT_EQ(runOut()[id], "length");
}

TEST_F(CApi, KernelsRefuseArraysAndNumbersThatAreWrong) {
  const void *bundle = nullptr;
  size_t bytes = 0;
  ASSERT_EQ(cSource(&own, "attend", &bundle, &bytes), nullptr);
  llmopt_kernel *kernel = nullptr;
  take(llmopt_kernel_load(device, nullptr, 0, &kernel), LLMOPT_INVALID_ARGUMENT);
  take(llmopt_kernel_load(device, bundle, bytes / 2, &kernel), LLMOPT_DATA_LOSS);
  take(llmopt_kernel_load(device, bundle, bytes, nullptr), LLMOPT_INVALID_ARGUMENT);
  ASSERT_EQ(kernel, nullptr);
  take(llmopt_kernel_load(device, bundle, bytes, &kernel), LLMOPT_OK);

  // One sequence of one token, on one page.
  float q[32] = {}, pool[2 * 16 * 8] = {}, o[32] = {};
  int32_t table[1] = {0}, offsets[2] = {0, 1}, lengths[1] = {1};
  int64_t rows[3] = {1, 4, 8}, pages[4] = {1, 16, 2, 8}, columns[2] = {1, 1}, two[1] = {2},
          one[1] = {1};
  const llmopt_array good[] = {
      {sizeof(llmopt_array), "q", q, LLMOPT_F32, 3, rows, nullptr},
      {sizeof(llmopt_array), "k_pool", pool, LLMOPT_F32, 4, pages, nullptr},
      {sizeof(llmopt_array), "v_pool", pool, LLMOPT_F32, 4, pages, nullptr},
      {sizeof(llmopt_array), "block_table", table, LLMOPT_I32, 2, columns, nullptr},
      {sizeof(llmopt_array), "cu_seqlens_q", offsets, LLMOPT_I32, 1, two, nullptr},
      {sizeof(llmopt_array), "kv_len", lengths, LLMOPT_I32, 1, one, nullptr},
      {sizeof(llmopt_array), "o", o, LLMOPT_F32, 3, rows, nullptr}};
  llmopt_array arrays[std::size(good)];
  auto runs = [&](size_t count, llmopt_number *number = nullptr) {
    return llmopt_kernel_run(kernel, arrays, count, number, number ? 1 : 0);
  };
  auto refused = [&](auto change, const char *says) {
    std::copy(std::begin(good), std::end(good), arrays);
    change(arrays[0]);
    std::string message = take(runs(std::size(arrays)), LLMOPT_INVALID_ARGUMENT);
    EXPECT_NE(message.find(says), std::string::npos) << message;
  };
  std::copy(std::begin(good), std::end(good), arrays);
  take(runs(std::size(arrays)), LLMOPT_OK);
  take(llmopt_kernel_run(nullptr, arrays, 1, nullptr, 0), LLMOPT_INVALID_ARGUMENT);
  take(llmopt_kernel_run(kernel, nullptr, 0, nullptr, 0), LLMOPT_INVALID_ARGUMENT);
  EXPECT_EQ(take(llmopt_kernel_run(kernel, nullptr, 3, nullptr, 0), LLMOPT_INVALID_ARGUMENT),
            "an array is NULL");
  EXPECT_EQ(take(llmopt_kernel_run(kernel, arrays, 1, nullptr, 2), LLMOPT_INVALID_ARGUMENT),
            "a number is NULL");
  for (size_t lacking = 0; lacking < std::size(good); ++lacking) {
    std::copy(std::begin(good), std::end(good), arrays);
    std::rotate(arrays + lacking, arrays + lacking + 1, std::end(arrays));
    std::string message = take(runs(std::size(good) - 1), LLMOPT_INVALID_ARGUMENT);
    EXPECT_NE(message.find(fmt::format("'{}'", good[lacking].name)), std::string::npos) << message;
  }
  static int64_t negative[3] = {-1, 4, 8}, wide[3] = {1, 4, 9};
  refused([](llmopt_array &a) { a.struct_size = 0; }, "struct_size");
  refused([](llmopt_array &a) { a.shape = nullptr; }, "NULL");
  refused([](llmopt_array &a) { a.data = nullptr; }, "null pointer");
  refused([](llmopt_array &a) { a.name = nullptr; }, "NULL");
  refused([](llmopt_array &a) { a.name = "zzz"; }, "'zzz'");
  refused([](llmopt_array &a) { a.rank = 4000000000u; }, "rank 4000000000");
  refused([](llmopt_array &a) { a.rank = 2; }, "'q'");
  refused([](llmopt_array &a) { a.type = llmopt_type(-1); }, "type -1");
  refused([](llmopt_array &a) { a.type = LLMOPT_F16; }, "'q'");
  refused([](llmopt_array &a) { a.shape = negative; }, "negative");
  refused([](llmopt_array &a) { a.strides = negative; }, "negative");
  refused([](llmopt_array &a) { a.shape = wide; }, "'q'");
  std::copy(std::begin(good), std::end(good), arrays);
  llmopt_number number = {sizeof(number), "nothing", 1, 5, 0};
  EXPECT_NE(take(runs(std::size(arrays), &number), LLMOPT_INVALID_ARGUMENT).find("'nothing'"),
            std::string::npos);
  number.name = nullptr;
  take(runs(std::size(arrays), &number), LLMOPT_INVALID_ARGUMENT);
  take(runs(std::size(arrays)), LLMOPT_OK);
  llmopt_kernel_free(kernel);
}

/// A scalar of args, or one that a region reads, has no default.
TEST_F(CApi, ANumberThatIsNotGivenIsRefused) {
  const char *text = R"(
func.func @f(%q: tensor<?x?x1x4xf32>, %k: tensor<?x?x1x4xf32>, %v: tensor<?x?x1x4xf32>, %w: i32)
    -> tensor<?x?x1x4xf32> {
  %o = attn.attention %q, %k, %v args(%w : i32) mask(window<arg0>)
    : tensor<?x?x1x4xf32>, tensor<?x?x1x4xf32>, tensor<?x?x1x4xf32> -> tensor<?x?x1x4xf32>
  return %o : tensor<?x?x1x4xf32>
})";
  const void *bundle = nullptr;
  size_t bytes = 0;
  take(compiledFor(own, text, &bundle, &bytes), LLMOPT_OK);
  llmopt_kernel *kernel = nullptr;
  take(llmopt_kernel_load(device, bundle, bytes, &kernel), LLMOPT_OK);
  const int64_t shape[] = {1, 2, 1, 4};
  std::vector<float> q(8, 1), k(8, 1), v = {1, 1, 1, 1, 3, 3, 3, 3}, o(8, 0);
  std::vector<llmopt_array> arrays;
  for (auto [name, data] :
       {std::pair("q", &q), std::pair("k", &k), std::pair("v", &v), std::pair("o", &o)})
    arrays.push_back({sizeof(llmopt_array), name, data->data(), LLMOPT_F32, 4, shape, nullptr});
  EXPECT_EQ(take(llmopt_kernel_run(kernel, arrays.data(), arrays.size(), nullptr, 0),
                 LLMOPT_INVALID_ARGUMENT),
            "scalar 'arg0' is missing; the spec has no value for it, so each call gives one");
  llmopt_number window = {sizeof(window), "arg0", 1, 2, 0};
  take(llmopt_kernel_run(kernel, arrays.data(), arrays.size(), &window, 1), LLMOPT_OK);
  EXPECT_EQ(o, (std::vector<float>{1, 1, 1, 1, 2, 2, 2, 2}));
  llmopt_kernel_free(kernel);
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

} // namespace
} // namespace llmopt::test

#include "runtime/scheduler/TokenMemory.h"

#include <gtest/gtest.h>
#include <map>
#include <random>

using namespace llmopt::runtime;

// What is taken lies at a line of the cache, is nobody else's, and what was given back is used
// again.
TEST(TokenMemory, GivesEachItsOwn) {
  TokenMemory memory;
  std::mt19937 random(1);
  std::map<kv::Token *, size_t> held;
  for (uint32_t call = 0; call < 20'000; ++call) {
    if (held.size() > 200 || (!held.empty() && random() % 3 == 0)) {
      auto one = std::next(held.begin(), long(random() % held.size()));
      for (size_t i : {size_t(0), one->second / 2, one->second - 1})
        ASSERT_EQ(one->first[i], kv::Token(one->second)) << "somebody wrote to it";
      memory.give(one->first, one->second);
      held.erase(one);
      continue;
    }
    size_t tokens = 1 + random() % (size_t(1) << (random() % 18)); // some beyond the largest size
    kv::Token *given = memory.take(tokens);
    auto [at, fresh] = held.emplace(given, tokens);
    ASSERT_TRUE(fresh);
    if (auto next = std::next(at); next != held.end())
      ASSERT_LE(given + tokens, next->first);
    if (at != held.begin())
      ASSERT_LE(std::prev(at)->first + std::prev(at)->second, given);
    std::fill_n(given, tokens, kv::Token(tokens));
  }
  for (auto [given, tokens] : held)
    memory.give(given, tokens);
  kv::Token *again = memory.take(1000);
  memory.give(again, 1000);
  EXPECT_EQ(memory.take(1001), again) << "a size for both";
  memory.give(again, 1001);
}

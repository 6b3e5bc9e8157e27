// Real traces, block by block: how much is hit, and how the order of eviction compares
// with plain LRU and with the best that anyone could do.
#include "Story.h"
#include "tests/support/TestData.h"

#include <list>
#include <nlohmann/json.hpp>
#include <queue>
#include <unordered_map>
#include <zlib.h>

using namespace kvtest;

namespace {

struct Request {
  std::vector<uint32_t> blocks; ///< ids of the 512-token blocks, whole ones only
  uint32_t tokens = 0;
  std::vector<uint32_t> all; ///< the partly filled one, too
};

using Trace = std::vector<Request>;

std::vector<std::string> gzipLines(const std::filesystem::path &path) {
  std::vector<std::string> lines(1);
  gzFile file = gzopen(path.c_str(), "rb");
  char buffer[1 << 16];
  for (int got; file && (got = gzread(file, buffer, sizeof(buffer))) > 0;)
    for (int i = 0; i < got; ++i)
      if (buffer[i] == '\n')
        lines.emplace_back();
      else
        lines.back() += buffer[i];
  if (file)
    gzclose(file);
  if (lines.back().empty())
    lines.pop_back();
  return lines;
}

Trace readMooncake(const char *name) {
  Trace trace;
  for (const std::string &line : gzipLines(llmopt::test::dataFolder() / "traces" / name)) {
    nlohmann::json json = nlohmann::json::parse(line);
    Request request;
    request.tokens = json["input_length"];
    request.all = json["hash_ids"].get<std::vector<uint32_t>>();
    request.blocks.assign(request.all.begin(), request.all.begin() + request.tokens / 512);
    trace.push_back(std::move(request));
  }
  return trace;
}

const char *const kConversation = "mooncake_conversation_first5000.jsonl.gz";
const char *const kSynthetic = "mooncake_synthetic_all3993.jsonl.gz";

/// Each request followed by one as long that nobody asks for again.
Trace withScan(const Trace &trace) {
  Trace mixed;
  uint32_t next = 1u << 30;
  for (const Request &request : trace) {
    mixed.push_back(request);
    Request scan;
    for (size_t i = 0; i < request.blocks.size(); ++i)
      scan.blocks.push_back(next++);
    mixed.push_back(scan);
  }
  return mixed;
}

uint64_t blocksOf(const Trace &trace) {
  uint64_t blocks = 0;
  for (const Request &request : trace)
    blocks += request.blocks.size();
  return blocks;
}

/// Hits of the manager itself, one request at a time; a block of the trace is a page of
/// two tokens, with one token behind the last, as the real prompts have some.
uint64_t hitsOfManager(const Trace &trace, uint32_t pages) {
  ManagerOptions options = optionsFor({fullGroup(2)}, pages);
  options.cache.partialHits = false;
  Story story(options);
  uint64_t hits = 0;
  for (const Request &request : trace) {
    std::vector<Token> tokens;
    for (uint32_t block : request.blocks)
      tokens.insert(tokens.end(), 2, block);
    tokens.push_back(0);
    SequenceId id = story.run(tokens);
    hits += story.last.hit.blocksFound;
    story.kv->finish(id);
  }
  return hits;
}

uint64_t hitsOfLru(const Trace &trace, size_t pages) {
  std::list<uint32_t> order; // oldest first
  std::unordered_map<uint32_t, std::list<uint32_t>::iterator> cached;
  uint64_t hits = 0;
  for (const Request &request : trace) {
    size_t found = 0;
    while (found < request.blocks.size() && cached.contains(request.blocks[found]))
      ++found;
    hits += found;
    for (uint32_t block : request.blocks)
      if (auto at = cached.find(block); at != cached.end()) {
        order.erase(at->second);
        cached.erase(at);
      }
    while (cached.size() + request.blocks.size() > pages && !order.empty()) {
      cached.erase(order.front());
      order.pop_front();
    }
    for (size_t i = request.blocks.size(); i-- > 0;)
      cached[request.blocks[i]] = order.insert(order.end(), request.blocks[i]);
  }
  return hits;
}

/// Who knows the future keeps the blocks that are asked for next.
uint64_t hitsOfBelady(const Trace &trace, size_t pages) {
  std::unordered_map<uint32_t, std::vector<size_t>> uses;
  for (size_t i = trace.size(); i-- > 0;)
    for (uint32_t block : trace[i].blocks)
      uses[block].push_back(i);
  using Next = std::pair<size_t, uint32_t>;
  std::priority_queue<Next> farthest;
  std::unordered_map<uint32_t, size_t> cached; // block -> next use
  uint64_t hits = 0;
  for (const Request &request : trace) {
    size_t found = 0;
    while (found < request.blocks.size() && cached.contains(request.blocks[found]))
      ++found;
    hits += found;
    for (uint32_t block : request.blocks) {
      std::vector<size_t> &own = uses[block];
      own.pop_back();
      cached[block] = own.empty() ? SIZE_MAX : own.back();
      farthest.push({cached[block], block});
    }
    while (cached.size() > pages) {
      auto [next, block] = farthest.top();
      farthest.pop();
      if (auto at = cached.find(block); at != cached.end() && at->second == next)
        cached.erase(at);
    }
  }
  return hits;
}

/// The manager at most `slack` points below LRU at each size.
void compareWithLru(const char *name, const Trace &trace, double slack) {
  uint64_t blocks = blocksOf(trace);
  auto percent = [&](uint64_t hits) {
    return 100.0 * static_cast<double>(hits) / static_cast<double>(blocks);
  };
  for (uint32_t pages : {1000u, 2000u, 5000u, 10000u, 20000u, 50000u}) {
    double own = percent(hitsOfManager(trace, pages)), lru = percent(hitsOfLru(trace, pages));
    std::printf("%-13s %6u pages: ours %5.2f %%, lru %5.2f %%, belady %5.2f %%\n", name, pages, own,
                lru, percent(hitsOfBelady(trace, pages)));
    EXPECT_GE(own, lru - slack) << name << " with " << pages << " pages";
  }
}

/// Whole pages of `pageSize` that are hit with the real tokens of all blocks.
uint64_t hitsOfTokens(const Trace &trace, uint32_t pageSize, uint64_t pages, uint64_t &asked) {
  ManagerOptions options = optionsFor({fullGroup(pageSize)}, pages);
  options.maxTokens = 1 << 18;
  options.maxSequences = 1;
  Story story(options);
  uint64_t hits = 0;
  std::vector<Token> tokens;
  for (const Request &request : trace) {
    tokens.clear();
    for (uint32_t block : request.all)
      for (uint32_t i = 0; i < 512 && tokens.size() < request.tokens; ++i)
        tokens.push_back(block * 512 + i);
    SequenceId id = story.run(tokens);
    hits += story.last.hit.blocksFound;
    asked += request.tokens / pageSize;
    story.kv->finish(id);
  }
  return hits;
}

} // namespace

TEST(KvTrace, FullPageHitsOfMooncakeAreExact) {
  LLMOPT_NEEDS_TEST_DATA();
  uint64_t asked = 0;
  EXPECT_EQ(hitsOfTokens(readMooncake(kConversation), 512, 90000, asked), 43282u);
  EXPECT_EQ(asked, 124979u);
  asked = 0;
  EXPECT_EQ(hitsOfTokens(readMooncake(kSynthetic), 512, 45000, asked), 77740u);
  EXPECT_EQ(asked, 117888u);
}

TEST(KvTrace, FullPagesOf16TokensAreExact) {
  LLMOPT_NEEDS_TEST_DATA();
  uint64_t asked = 0;
  EXPECT_EQ(hitsOfTokens(readMooncake(kConversation), 16, 2750000, asked), 1385665u);
  EXPECT_EQ(asked, 4080885u);
  asked = 0;
  EXPECT_EQ(hitsOfTokens(readMooncake(kSynthetic), 16, 1400000, asked), 2490686u);
  EXPECT_EQ(asked, 3822794u);
}

TEST(KvTrace, EvictionKeepsUpWithLruOnConversations) {
  LLMOPT_NEEDS_TEST_DATA();
  compareWithLru("conversation", readMooncake(kConversation), 0.5);
}

TEST(KvTrace, EvictionKeepsUpWithLruOnSynthetic) {
  LLMOPT_NEEDS_TEST_DATA();
  compareWithLru("synthetic", readMooncake(kSynthetic), 0.5);
}

TEST(KvTrace, AScanCostsNoMoreThanWithLru) {
  LLMOPT_NEEDS_TEST_DATA();
  compareWithLru("scan", withScan(readMooncake(kConversation)), 0);
}

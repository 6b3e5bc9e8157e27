// What the scenario tests share: a manager, and short names for what happens in them.
#pragma once

#include "runtime/kv/BlockManager.h"

#include <gtest/gtest.h>
#include <numeric>

namespace kvtest {

using namespace llmopt::runtime;
using namespace llmopt::runtime::kv;

inline GroupSpec fullGroup(uint32_t pageSize, uint64_t bytes = 64) {
  GroupSpec group;
  group.pageSize = pageSize;
  group.dataBytes = bytes;
  return group;
}

inline GroupSpec windowGroup(uint32_t pageSize, uint32_t window, uint32_t sink = 0,
                             uint64_t bytes = 64) {
  GroupSpec group = fullGroup(pageSize, bytes);
  group.kind = GroupKind::Window;
  group.window = window;
  group.sink = sink;
  return group;
}

/// `count` tokens that start with `first`.
inline std::vector<Token> text(Token first, uint32_t count) {
  std::vector<Token> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

inline ManagerOptions optionsFor(std::vector<GroupSpec> groups, uint64_t pages) {
  ManagerOptions options;
  options.budgetBytes = ManagerOptions::bytesForPages(groups, pages);
  options.groups = std::move(groups);
  options.maxSequences = 8;
  options.maxTokens = 4096;
  return options;
}

class Story {
public:
  explicit Story(const ManagerOptions &options, PageMover *mover = nullptr) {
    StatusOr<std::unique_ptr<BlockManager>> made = BlockManager::create(options, mover);
    EXPECT_TRUE(made.ok()) << made.status().toString();
    if (made)
      kv = std::move(*made);
  }
  Story(std::vector<GroupSpec> groups, uint64_t pages)
      : Story(optionsFor(std::move(groups), pages)) {}
  ~Story() {
    if (kv)
      EXPECT_TRUE(kv->check().ok()) << kv->check().toString();
  }

  Prompt prompt(const std::vector<Token> &tokens, const CacheKey &key = {}) const {
    return Prompt(tokens, key, kv->blockSize());
  }
  Prompt prompt(std::vector<Token> &&tokens, const CacheKey &key = {}) const = delete; // a view
  void open() { EXPECT_EQ(kv->openStep(), Reply::Ok); }
  StepId close() { return kv->closeStep().step; }

  /// Admits in a step of its own and runs all of the prompt.
  SequenceId run(const std::vector<Token> &tokens, const CacheKey &key = {}) {
    Prompt asked = prompt(tokens, key);
    open();
    last = kv->admit(asked, UINT32_MAX);
    EXPECT_EQ(last.reply, Reply::Ok) << toString(last.reply);
    StepId step = close();
    EXPECT_EQ(kv->commit(last.sequence, step, behindHit(tokens)), Reply::Ok);
    EXPECT_EQ(kv->completeStep(step), Reply::Ok);
    return last.sequence;
  }
  std::span<const Token> behindHit(const std::vector<Token> &tokens) const {
    return std::span(tokens).subspan(last.hit.tokens);
  }
  /// One step with a row of these tokens, all accepted.
  Reply extend(SequenceId sequence, const std::vector<Token> &tokens) {
    open();
    Reply reply = kv->reserve(sequence, static_cast<uint32_t>(tokens.size()));
    StepId step = close();
    if (reply == Reply::Ok)
      EXPECT_EQ(kv->commit(sequence, step, tokens), Reply::Ok);
    EXPECT_EQ(kv->completeStep(step), Reply::Ok);
    return reply;
  }
  /// Runs and ends, so that its whole pages are cached.
  void remember(const std::vector<Token> &tokens, const CacheKey &key = {}) {
    SequenceId sequence = run(tokens, key);
    EXPECT_EQ(kv->finish(sequence), Reply::Ok);
  }
  uint32_t hits(const std::vector<Token> &tokens, const CacheKey &key = {}) {
    Prompt asked = prompt(tokens, key);
    return kv->match(asked).tokens;
  }
  std::vector<PageId> pagesOf(SequenceId sequence, uint32_t group = 0) const {
    std::vector<PageId> pages;
    for (uint32_t i = 0; i < kv->tableSize(sequence, group); ++i)
      pages.push_back(kv->pageAt(sequence, group, i));
    return pages;
  }
  uint32_t count(PageState state) const { return kv->pool().count(state); }

  std::unique_ptr<BlockManager> kv;
  Admission last;
};

using Pages = std::vector<PageId>;

} // namespace kvtest

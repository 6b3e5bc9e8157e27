#include "runtime/device/cpu/ThreadPool.h"

#include <cstdlib>
#include <gtest/gtest.h>

using namespace llmopt::runtime;

namespace {

class ThreadCount : public testing::TestWithParam<uint32_t> {};

/// Sets LLMOPT_THREADS for the duration of a test.
class ThreadsVariable {
public:
  explicit ThreadsVariable(const char *value) {
    if (const char *old = std::getenv("LLMOPT_THREADS"))
      before = old;
    ::setenv("LLMOPT_THREADS", value, 1);
  }
  ~ThreadsVariable() {
    if (before.empty())
      ::unsetenv("LLMOPT_THREADS");
    else
      ::setenv("LLMOPT_THREADS", before.c_str(), 1);
  }

private:
  std::string before;
};

} // namespace

TEST_P(ThreadCount, EachWorkerRunsOnce) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.size(), GetParam());
  for (uint32_t workers : {0, 1, 2, 3, 7, 64, 1000}) {
    std::vector<std::atomic<int>> ran(workers);
    std::atomic<bool> threadInRange = true;
    pool.parallelFor(workers, [&](uint32_t worker, uint32_t thread) {
      ++ran[worker];
      if (thread >= pool.size())
        threadInRange = false;
    });
    for (const std::atomic<int> &count : ran)
      EXPECT_EQ(count, 1);
    EXPECT_TRUE(threadInRange);
  }
}

TEST_P(ThreadCount, ManyShortLoopsInARow) {
  ThreadPool pool(GetParam());
  uint64_t sum = 0;
  std::vector<uint64_t> parts(5);
  for (int loop = 0; loop < 3000; ++loop) {
    // Plain writes: the end of the loop must publish them, its start the old
    // ones.
    pool.parallelFor(5, [&](uint32_t worker, uint32_t) { parts[worker] += worker + loop; });
    sum += 10 + 5 * static_cast<uint64_t>(loop);
    ASSERT_EQ(parts[0] + parts[1] + parts[2] + parts[3] + parts[4], sum);
  }
}

TEST_P(ThreadCount, NoTwoWorkersShareAThreadAtATime) {
  ThreadPool pool(GetParam());
  std::vector<std::atomic<int>> busy(pool.size());
  std::atomic<bool> shared = false;
  pool.parallelFor(200, [&](uint32_t, uint32_t thread) {
    if (busy[thread]++ != 0)
      shared = true;
    std::this_thread::yield();
    --busy[thread];
  });
  EXPECT_FALSE(shared);
}

TEST_P(ThreadCount, NestedLoopsRunSeriallyUnderTheOuterThread) {
  ThreadPool pool(GetParam());
  std::atomic<int> inner = 0;
  std::atomic<bool> moved = false;
  pool.parallelFor(8, [&](uint32_t, uint32_t outerThread) {
    uint32_t next = 0;
    pool.parallelFor(5, [&](uint32_t worker, uint32_t thread) {
      if (thread != outerThread || worker != next++)
        moved = true;
      ++inner;
    });
  });
  EXPECT_EQ(inner, 40);
  EXPECT_FALSE(moved);
}

TEST_P(ThreadCount, PoolsComeAndGo) {
  std::atomic<int> ran = 0;
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(GetParam());
    if (i % 2)
      pool.parallelFor(3, [&](uint32_t, uint32_t) { ++ran; });
  }
  EXPECT_EQ(ran, 75);
}

TEST_P(ThreadCount, CallersTakeTurns) {
  ThreadPool pool(GetParam());
  std::vector<int> count(2);
  int shared = 0; // changed only under the turn: inside serial workers of one loop
  auto caller = [&](int index) {
    for (int loop = 0; loop < 200; ++loop)
      pool.parallelFor(1, [&](uint32_t, uint32_t) {
        ++count[index];
        ++shared;
      });
  };
  std::thread first(caller, 0), second(caller, 1);
  first.join();
  second.join();
  EXPECT_EQ(count[0] + count[1], 400);
  EXPECT_EQ(shared, 400);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadCount, testing::Values(1, 2, 4));

TEST(ThreadPool, OneSlowWorkerDoesNotHoldUpTheOthers) {
  ThreadPool pool(2);
  std::atomic<int> others = 0;
  pool.parallelFor(50, [&](uint32_t worker, uint32_t) {
    if (worker != 0) {
      ++others;
      return;
    }
    while (others < 49)
      std::this_thread::yield();
  });
  EXPECT_EQ(others, 49);
}

TEST(ThreadPool, TwoPoolsNest) {
  ThreadPool outer(2), inner(2);
  std::atomic<int> ran = 0;
  outer.parallelFor(4, [&](uint32_t, uint32_t) {
    inner.parallelFor(4, [&](uint32_t, uint32_t thread) {
      EXPECT_LT(thread, 2u);
      ++ran;
    });
  });
  EXPECT_EQ(ran, 16);
}

TEST(ThreadPool, SizeComesFromTheEnvironment) {
  {
    ThreadsVariable three("3");
    EXPECT_EQ(ThreadPool::defaultThreads(), 3u);
    EXPECT_EQ(ThreadPool().size(), 3u);
  }
  uint32_t plain = ThreadPool::defaultThreads();
  EXPECT_GE(plain, 1u);
  for (const char *nonsense : {"0", "-1", "many", "4x", "", "99999999999"}) {
    ThreadsVariable variable(nonsense);
    EXPECT_LE(ThreadPool::defaultThreads(), ThreadPool::kMaxThreads);
    EXPECT_NE(ThreadPool::defaultThreads(), 0u);
  }
}

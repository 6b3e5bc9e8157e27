// One process: what is compiled, what is found, what is refused.
#include "Support.h"

#include "runtime/base/File.h"

#include <barrier>
#include <fstream>
#include <future>
#include <thread>

using namespace cachetest;

namespace {

/// Counts its calls.
struct Compiler {
  std::atomic<int> calls{0};
  std::chrono::milliseconds time{0};

  CompileFunction of(const std::string &key) {
    return [this, key]() -> StatusOr<bundle::Program> {
      ++calls;
      std::this_thread::sleep_for(time);
      return programOf(key);
    };
  }
};

struct KernelCacheTest : CacheTest {
  Compiler compiler;

  StatusOr<CachedProgram> get(KernelCache &cache, int number) {
    return cache.get(keyOf(number), compiler.of(keyOf(number)));
  }
  /// The only entry's file.
  fs::path entry() { return BundleStore(folder).list().at(0).path; }
};

} // namespace

TEST_F(KernelCacheTest, CompiledOnceThenFromMemoryThenFromDisk) {
  {
    KernelCache cache({.folder = folder});
    StatusOr<CachedProgram> first = get(cache, 1), second = get(cache, 1);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(*first, *second) << "the same object";
    EXPECT_EQ(**first, programOf(keyOf(1)));
    cache.clearMemory();
    ASSERT_TRUE(get(cache, 1));
    CacheMetrics metrics = cache.metrics();
    EXPECT_EQ(metrics.compiles, 1u);
    EXPECT_EQ(metrics.memoryHits, 1u);
    EXPECT_EQ(metrics.diskHits, 1u);
    EXPECT_EQ(cache.diskProblem(), "");
  }
  KernelCache later({.folder = folder});
  StatusOr<CachedProgram> read = get(later, 1);
  ASSERT_TRUE(read);
  EXPECT_EQ(**read, programOf(keyOf(1)));
  EXPECT_EQ(compiler.calls, 1);
  EXPECT_EQ(leftovers(folder), std::vector<std::string>());
}

TEST_F(KernelCacheTest, WithoutAFolderMemoryAlone) {
  KernelCache cache({.folder = ""});
  ASSERT_TRUE(get(cache, 1) && get(cache, 1));
  EXPECT_EQ(compiler.calls, 1);
  EXPECT_FALSE(fs::exists(folder));
}

TEST_F(KernelCacheTest, ThreadsThatAskForOneKeyCompileOnce) {
  compiler.time = std::chrono::milliseconds(30);
  KernelCache one({.folder = folder}), other({.folder = folder});
  std::barrier start(16);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      StatusOr<CachedProgram> program = get(t % 2 ? one : other, 7);
      right += program && **program == programOf(keyOf(7));
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(right, 16);
  EXPECT_EQ(compiler.calls, 1) << "also among two caches of one folder";
  EXPECT_EQ(one.metrics().joined + other.metrics().joined, 14u);
}

TEST_F(KernelCacheTest, DifferentKeysCompileAtTheSameTime) {
  KernelCache cache({.folder = folder});
  std::barrier both(2); // each compile waits for the other
  auto compile = [&](int number) {
    return cache.get(keyOf(number), [&, number]() -> StatusOr<bundle::Program> {
      both.arrive_and_wait();
      return programOf(keyOf(number));
    });
  };
  std::thread thread([&] { EXPECT_TRUE(compile(1)); });
  EXPECT_TRUE(compile(2));
  thread.join();
}

TEST_F(KernelCacheTest, AFailedCompileIsKeptNowhere) {
  KernelCache cache({.folder = folder});
  auto fail = []() -> StatusOr<bundle::Program> { return invalidArgument("no such mask"); };
  EXPECT_EQ(cache.get(keyOf(1), fail).status().message(), "no such mask");
  EXPECT_TRUE(get(cache, 1)) << "the next call tries again";
  EXPECT_EQ(cache.metrics().failedCompiles, 1u);
  EXPECT_EQ(cache.metrics().compiles, 2u);
}

/// Whatever a compile throws, those who wait for it get an answer and the next call tries again.
TEST_F(KernelCacheTest, ACompileThatThrowsIsAFailedCompileForAllWhoWait) {
  struct Case {
    std::function<void()> raise;
    StatusCode code;
    const char *message;
  };
  for (const Case &c :
       {Case{[] { throw std::runtime_error("out of luck"); }, StatusCode::Internal,
             "ended with an exception: out of luck"},
        Case{[] { throw 7; }, StatusCode::Internal, "ended with an exception of no known kind"},
        Case{[] { throw std::bad_alloc(); }, StatusCode::ResourceExhausted, "no memory"}}) {
    KernelCache cache({.folder = folder});
    std::promise<void> begun;
    auto compile = [&]() -> StatusOr<bundle::Program> {
      begun.set_value();
      while (cache.metrics().joined == 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      c.raise();
      return programOf(keyOf(1));
    };
    auto first = std::async(std::launch::async, [&] { return cache.get(keyOf(1), compile); });
    begun.get_future().wait();
    auto second = std::async(std::launch::async, [&] { return get(cache, 1); });
    for (auto *waiting : {&first, &second}) {
      StatusOr<CachedProgram> result = waiting->get();
      ASSERT_FALSE(result);
      EXPECT_EQ(result.status().code(), c.code);
      EXPECT_NE(result.status().message().find(c.message), std::string::npos)
          << result.status().message();
    }
    EXPECT_TRUE(get(cache, 1)) << "the next call tries again";
    EXPECT_EQ(cache.metrics().failedCompiles, 1u);
    fs::remove_all(folder);
  }
}

TEST_F(KernelCacheTest, EmptyAndWrongProgramsAreNotPublished) {
  KernelCache cache({.folder = folder});
  auto messageFor = [&](auto change) {
    return cache
        .get(keyOf(1),
             [&]() -> StatusOr<bundle::Program> {
               bundle::Program program = programOf(keyOf(1));
               change(program);
               return program;
             })
        .status()
        .message();
  };
  EXPECT_EQ(messageFor([](bundle::Program &p) { p.images[0].bytes.clear(); }),
            fmt::format("the compile for key '{}' returned an empty image", keyOf(1)));
  EXPECT_EQ(messageFor([](bundle::Program &p) { p.kernels.clear(); }),
            fmt::format("the compile for key '{}' returned no kernel", keyOf(1)));
  EXPECT_EQ(
      messageFor([](bundle::Program &p) { p.key = keyOf(2); }),
      fmt::format("the compile for key '{}' returned a program with key '{}'", keyOf(1), keyOf(2)));
  EXPECT_TRUE(BundleStore(folder).list().empty());
}

TEST_F(KernelCacheTest, KeysThatAreNoFileNamesAreRefused) {
  KernelCache cache({.folder = folder});
  for (std::string key : {"", "../x", "a.b", "xyz"})
    EXPECT_EQ(cache.get(key, compiler.of(key)).status().message(),
              fmt::format("'{}' is no cache key; 1 to 128 hexadecimal digits are allowed", key));
  EXPECT_EQ(compiler.calls, 0);
}

TEST_F(KernelCacheTest, DamagedEntriesAreRebuilt) {
  ASSERT_TRUE(BundleStore(folder).publish(programOf(keyOf(1))).ok());
  std::vector<uint8_t> good = *readFile(entry(), 1 << 20);
  std::vector<std::vector<uint8_t>> damaged = {{}, {good.begin(), good.begin() + good.size() / 2}};
  for (size_t at : {size_t{0}, size_t{9}, good.size() / 2, good.size() - 1}) {
    damaged.push_back(good);
    damaged.back()[at] ^= 0x10;
  }
  for (const std::vector<uint8_t> &bytes : damaged) {
    ASSERT_TRUE(writeFileAtomic(entry(), bytes).ok());
    KernelCache cache({.folder = folder});
    StatusOr<CachedProgram> program = get(cache, 1);
    ASSERT_TRUE(program) << program.status().toString();
    EXPECT_EQ(**program, programOf(keyOf(1)));
    EXPECT_EQ(cache.metrics().rejected, 1u);
    EXPECT_EQ(cache.metrics().compiles, 1u);
    EXPECT_FALSE(cache.diskProblem().empty());
    EXPECT_EQ(*readFile(entry(), 1 << 20), good) << "mended";
  }
}

TEST_F(KernelCacheTest, AnEntryUnderAnotherKeyIsForeign) { // A25
  BundleStore store(folder);
  ASSERT_TRUE(store.publish(programOf(keyOf(1))).ok());
  fs::copy_file(entry(), store.folder() + "/" + keyOf(2) + ".bundle");
  KernelCache cache({.folder = folder});
  StatusOr<CachedProgram> program = get(cache, 2);
  ASSERT_TRUE(program);
  EXPECT_EQ((*program)->key, keyOf(2));
  EXPECT_EQ(cache.metrics().rejected, 1u);
  EXPECT_EQ(compiler.calls, 1);
}

// A cache that cannot be written must not stop a server, nor one whose place is taken.
TEST_F(KernelCacheTest, AFolderThatCannotBeUsedCostsOnlyCompiles) {
  std::ofstream(folder.string()) << "a file where the folder should be";
  KernelCache cache({.folder = folder});
  ASSERT_TRUE(get(cache, 1) && get(cache, 1));
  EXPECT_EQ(compiler.calls, 1);
  EXPECT_NE(cache.diskProblem().find(folder), std::string::npos) << cache.diskProblem();
  fs::remove(folder);
}

TEST_F(KernelCacheTest, TheDiskKeepsWhatWasUsedLast) {
  uint64_t each = 0;
  {
    KernelCache cache({.folder = folder});
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(get(cache, i));
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    }
    each = BundleStore(folder).list()[0].bytes;
  }
  KernelCache cache({.folder = folder, .maxDiskBytes = 3 * each});
  ASSERT_TRUE(get(cache, 0)) << "used again";
  std::this_thread::sleep_for(std::chrono::milliseconds(25));
  ASSERT_TRUE(get(cache, 4));
  std::vector<std::string> keys;
  for (const BundleStore::Entry &kept : BundleStore(folder).list())
    keys.push_back(kept.key);
  EXPECT_EQ(keys, (std::vector<std::string>{keyOf(3), keyOf(0), keyOf(4)}));
  EXPECT_EQ(cache.metrics().evicted, 2u);
}

TEST_F(KernelCacheTest, ALimitBelowOneEntryStillServes) {
  KernelCache cache({.folder = folder, .maxDiskBytes = 1});
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(get(cache, i));
  EXPECT_EQ(BundleStore(folder).list().size(), 1u) << "the last one stays";
}

TEST_F(KernelCacheTest, MemoryIsBounded) {
  KernelCache cache({.folder = "", .maxMemoryBytes = 5000});
  StatusOr<CachedProgram> held = get(cache, 0);
  for (int i = 1; i < 10; ++i)
    ASSERT_TRUE(get(cache, i));
  ASSERT_TRUE(get(cache, 9));
  EXPECT_EQ(compiler.calls, 10);
  ASSERT_TRUE(get(cache, 0));
  EXPECT_EQ(compiler.calls, 11) << "had to go";
  EXPECT_EQ(**held, programOf(keyOf(0))) << "but lives while it is used";
}

TEST_F(KernelCacheTest, AsyncCompilesCallBack) {
  compiler.time = std::chrono::milliseconds(5);
  KernelCache cache({.folder = folder, .threads = 3});
  std::vector<std::promise<StatusOr<CachedProgram>>> results(9);
  for (int i = 0; i < 9; ++i)
    cache.getAsync(keyOf(i % 3), compiler.of(keyOf(i % 3)),
                   [&, i](StatusOr<CachedProgram> result) { results[i].set_value(result); });
  for (int i = 0; i < 9; ++i) {
    StatusOr<CachedProgram> result = results[i].get_future().get();
    ASSERT_TRUE(result) << result.status().toString();
    EXPECT_EQ((*result)->key, keyOf(i % 3));
  }
  EXPECT_EQ(compiler.calls, 3);
  bool called = false;
  cache.getAsync(keyOf(0), compiler.of(keyOf(0)), [&](auto) { called = true; });
  EXPECT_TRUE(called) << "what is in memory comes at once";
}

TEST_F(KernelCacheTest, WhatTheEndOfTheCacheCutsOffIsReported) {
  compiler.time = std::chrono::milliseconds(20);
  std::atomic<int> done{0}, cut{0};
  {
    KernelCache cache({.folder = folder, .threads = 1});
    for (int i = 0; i < 5; ++i)
      cache.getAsync(keyOf(i), compiler.of(keyOf(i)), [&](StatusOr<CachedProgram> result) {
        ++done;
        cut += !result && result.status().code() == StatusCode::Unavailable;
      });
  }
  EXPECT_EQ(done, 5) << "each callback once";
  EXPECT_EQ(compiler.calls + cut, 5);
  EXPECT_GE(cut, 3);
}

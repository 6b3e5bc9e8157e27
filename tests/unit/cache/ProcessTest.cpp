// Many processes and one folder, some of them killed in the middle (case A9).
#include "Support.h"

#include "runtime/cache/KeyLock.h"

#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <random>
#include <sys/wait.h>
#include <thread>

using namespace cachetest;

namespace {

constexpr int kProcesses = 8, kShared = 8;

/// A pipe that is closed at the end.
struct Pipe {
  int ends[2];
  Pipe() {
    if (::pipe2(ends, O_CLOEXEC) != 0)
      std::abort();
  }
  ~Pipe() {
    closeRead();
    closeWrite();
  }
  void closeRead() { closeEnd(0); }
  void closeWrite() { closeEnd(1); }
  void closeEnd(int i) {
    if (ends[i] >= 0)
      ::close(ends[i]);
    ends[i] = -1;
  }
  /// Waits for a byte, or until nobody can write any more.
  bool await() {
    char byte;
    return ::read(ends[0], &byte, 1) == 1;
  }
  void signal() {
    if (::write(ends[1], "x", 1) != 1)
      std::abort();
  }
};

/// One line for each compile that began, in a file.
void record(const fs::path &log, const std::string &key) {
  int file = ::open(log.c_str(), O_WRONLY | O_APPEND | O_CREAT, 0600);
  std::string line = key + "\n";
  if (::write(file, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    std::abort();
  ::close(file);
}

std::map<std::string, int> compilesIn(const fs::path &log) {
  std::map<std::string, int> counts;
  std::ifstream in(log);
  for (std::string line; std::getline(in, line);)
    ++counts[line];
  return counts;
}

/// Where in its compiles a process waits to be killed; -1: nowhere.
struct Victim {
  int process = -1, compile = 0;
};

/// Gets the shared keys in an order of its own, then one of its own. Never returns.
[[noreturn]] void runProcess(int index, const fs::path &folder, const Victim &victim, Pipe &start,
                             Pipe &midway) {
  start.closeWrite();
  start.await();
  KernelCache cache({.folder = folder});
  std::vector<int> keys;
  for (int i = 0; i < kShared; ++i)
    keys.push_back((i + index * 3) % kShared);
  keys.push_back(100 + index);
  int compiles = 0;
  for (int number : keys) {
    std::string key = keyOf(number);
    StatusOr<CachedProgram> program = cache.get(key, [&]() -> StatusOr<bundle::Program> {
      record(folder / "log", key);
      if (victim.process == index && compiles++ == victim.compile) {
        midway.signal();
        for (;;)
          ::pause();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return programOf(key);
    });
    if (!program || **program != programOf(key))
      ::_exit(1);
  }
  ::_exit(0);
}

/// Starts all processes at once, kills the victim in mid-compile, and waits.
void runRound(const fs::path &folder, const Victim &victim) {
  Pipe start, midway;
  pid_t children[kProcesses];
  for (int i = 0; i < kProcesses; ++i) {
    children[i] = ::fork();
    ASSERT_GE(children[i], 0);
    if (children[i] == 0)
      runProcess(i, folder, victim, start, midway);
  }
  start.closeWrite();
  if (victim.process >= 0) {
    midway.closeWrite();
    if (midway.await()) // else it had no compile to do
      ::kill(children[victim.process], SIGKILL);
  }
  for (int i = 0; i < kProcesses; ++i) {
    int status = 0;
    ASSERT_EQ(::waitpid(children[i], &status, 0), children[i]);
    bool killed = i == victim.process && WIFSIGNALED(status);
    EXPECT_TRUE(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) << "process " << i;
  }
}

struct ProcessTest : CacheTest {};

} // namespace

TEST_F(ProcessTest, EightProcessesAndAnEmptyCache) {
  for (int round = 0; round < 50; ++round) {
    SCOPED_TRACE(round);
    fs::remove_all(folder);
    fs::create_directories(folder);
    Victim victim;
    if (round % 2)
      victim = {.process = round % kProcesses, .compile = 0};
    runRound(folder, victim);
    std::map<std::string, int> compiles = compilesIn(folder / "log");
    int extra = 0;
    for (const auto &[key, count] : compiles)
      extra += count - 1;
    EXPECT_LE(extra, victim.process >= 0 ? 1 : 0) << "only the killed compile is done again";
    BundleStore store(folder);
    store.collect(uint64_t{1} << 40);
    std::vector<BundleStore::Entry> entries = store.list();
    EXPECT_GE(entries.size(), size_t(kShared + kProcesses - (victim.process >= 0)));
    for (const BundleStore::Entry &entry : entries) {
      StatusOr<bundle::Program> program = store.read(entry.key);
      ASSERT_TRUE(program) << program.status().toString();
      EXPECT_EQ(*program, programOf(entry.key));
    }
    EXPECT_EQ(leftovers(store.folder()), std::vector<std::string>());
    for (int number = 0; number < kShared; ++number) {
      std::optional<KeyLock> lock;
      EXPECT_EQ(KeyLock::tryLock(store.lockPath(keyOf(number)), lock), KeyLock::State::Held);
    }
  }
}

TEST_F(ProcessTest, AWriterKilledAtAnyTimeLeavesNothingThatLoadsWrong) {
  std::mt19937 random(1);
  BundleStore store(folder);
  int whole = 0;
  for (int round = 0; round < 40; ++round) {
    pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      KernelCache cache({.folder = folder});
      for (int i = 0;; ++i) // large, so that most of the time goes into writing
        if (!cache.get(keyOf(round * 1000 + i),
                       [&] { return programOf(keyOf(round * 1000 + i), 1 << 20); }))
          ::_exit(1);
    }
    // Where writing is slow (sanitizers, a busy machine) longer and longer, until one was written.
    uint32_t most = 30000 * (whole ? 1 : 1 + uint32_t(round));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % most));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    for (const BundleStore::Entry &entry : store.list()) {
      StatusOr<bundle::Program> program = store.read(entry.key);
      ASSERT_TRUE(program) << program.status().toString();
      ++whole;
    }
    store.collect(0);
    EXPECT_EQ(leftovers(folder), std::vector<std::string>());
  }
  EXPECT_GT(whole, 0) << "some were written in time";
}

// The parent's threads may hold any lock while it forks.
TEST_F(ProcessTest, AForkedChildUsesTheCacheOnItsOwn) {
  KernelCache cache({.folder = folder, .threads = 2});
  std::atomic<bool> stop{false};
  std::atomic<int> number{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      while (!stop) {
        std::string key = keyOf(1000 + number++ % 50);
        (void)cache.get(key, [&] { return programOf(key); });
        if (number % 50 == 0)
          cache.clearMemory();
      }
    });
  for (int round = 0; round < 20; ++round) {
    pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::alarm(20);
      std::string key = keyOf(round);
      StatusOr<CachedProgram> first = cache.get(key, [&] { return programOf(key); });
      std::atomic<int> called{0};
      cache.getAsync(
          keyOf(7777), [] { return programOf(keyOf(7777)); },
          [&](StatusOr<CachedProgram> result) { called = result ? 1 : 2; });
      while (!called)
        std::this_thread::yield();
      ::_exit(first && called == 1 && cache.metrics().memoryHits == 0 ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  stop = true;
  for (std::thread &thread : threads)
    thread.join();
}

// A process that forks in mid-compile and dies must not leave its lock with the child.
TEST_F(ProcessTest, ALockIsNotInherited) {
  fs::create_directories(folder);
  std::string path = folder / "key.lock";
  Pipe ready, hold;
  pid_t parent = ::fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    std::optional<KeyLock> lock;
    if (KeyLock::tryLock(path, lock) != KeyLock::State::Held)
      ::_exit(1);
    if (::fork() == 0) { // lives on, with the lock's file open
      hold.closeWrite();
      hold.await();
      ::_exit(0);
    }
    ready.signal();
    for (;;)
      ::pause();
  }
  ASSERT_TRUE(ready.await());
  std::optional<KeyLock> lock;
  EXPECT_EQ(KeyLock::tryLock(path, lock), KeyLock::State::Taken);
  ::kill(parent, SIGKILL);
  int status = 0;
  ::waitpid(parent, &status, 0);
  EXPECT_EQ(KeyLock::tryLock(path, lock), KeyLock::State::Held);
}

TEST_F(ProcessTest, PatienceEnds) {
  fs::create_directories(folder);
  BundleStore store(folder);
  ASSERT_TRUE(store.create().ok());
  Pipe ready;
  pid_t holder = ::fork();
  ASSERT_GE(holder, 0);
  if (holder == 0) {
    std::optional<KeyLock> lock;
    (void)KeyLock::tryLock(store.lockPath(keyOf(1)), lock);
    ready.signal();
    for (;;)
      ::pause();
  }
  ASSERT_TRUE(ready.await());
  KernelCache cache({.folder = folder, .patience = std::chrono::milliseconds(50)});
  EXPECT_TRUE(cache.get(keyOf(1), [] { return programOf(keyOf(1)); }));
  ::kill(holder, SIGKILL);
  int status = 0;
  ::waitpid(holder, &status, 0);
}

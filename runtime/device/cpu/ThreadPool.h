// Threads that stay, and a parallel loop over them with little overhead: what
// runs the workers of a kernel.
//
//   ThreadPool pool;
//   pool.parallelFor(workers, [&](uint32_t worker, uint32_t thread) { ... });
//
// Worker indices are handed out one at a time to whichever thread is free, so a
// thread that the system takes away holds up at most one worker. The caller is
// thread 0 and takes part. Idle threads spin for some microseconds, as the next
// kernel usually follows at once, and then sleep.
#pragma once

#include "runtime/base/Status.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace llmopt::runtime {

class ThreadPool {
public:
  /// `threads` with the caller; 0 takes `defaultThreads()`. If the system
  /// refuses to start that many, the pool has fewer.
  explicit ThreadPool(uint32_t threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;

  /// Threads with the caller: `thread` arguments are below this.
  uint32_t size() const { return static_cast<uint32_t>(threads.size()) + 1; }

  /// Calls body(worker, thread) for each worker of [0, workers), and returns
  /// when all have returned. The body must not throw. Called from inside a body
  /// of the same pool, it runs serially on the calling thread, under that
  /// thread's index; a body may use another pool if that one's bodies do not
  /// come back to this. Calls from different threads take turns.
  template <typename Body> void parallelFor(uint32_t workers, Body &&body) {
    using Plain = std::remove_reference_t<Body>;
    auto call = [](void *context, uint32_t worker, uint32_t thread) noexcept {
      (*static_cast<Plain *>(context))(worker, thread);
    };
    run({call, const_cast<void *>(static_cast<const void *>(std::addressof(body)))}, workers);
  }

  /// LLMOPT_THREADS if it is a number from 1 to kMaxThreads, else the
  /// processors that this process may run on.
  static uint32_t defaultThreads();
  /// Refuses an LLMOPT_THREADS that `defaultThreads` would pass over: for programs to
  /// tell their user at the start.
  static Status checkEnvironment();
  static constexpr uint32_t kMaxThreads = 1024;

private:
  struct Job {
    void (*call)(void *context, uint32_t worker, uint32_t thread) noexcept = nullptr;
    void *context = nullptr;
  };

  void run(Job job, uint32_t workers);
  void drain(uint32_t thread);
  void threadMain(uint32_t thread);
  uint32_t awaitWork(uint32_t seen);

  std::mutex callers; ///< held by the thread whose loop is running
  Job job;
  uint32_t jobWorkers = 0;
  /// Loop number (high half) and workers not yet handed out (low half). Taking
  /// a worker is one compare-and-swap of both, so a thread that wakes up late
  /// can never take a worker of a loop that it did not mean; `job` is read only
  /// after a worker was taken, when the loop cannot end before that worker has
  /// run.
  alignas(64) std::atomic<uint64_t> available{0};
  alignas(64) std::atomic<uint32_t> unfinished{0};
  /// Changes when there may be work, or at the end; sleepers wait on it.
  alignas(64) std::atomic<uint32_t> signal{0};
  std::atomic<bool> stopping{false};
  std::vector<std::thread> threads;
};

} // namespace llmopt::runtime

#include "runtime/device/cpu/ThreadPool.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sched.h>
#include <system_error>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace llmopt::runtime {

namespace {

/// 20 to 100 microseconds, by processor: longer than the gap between two
/// kernels, shorter than what another process would miss.
constexpr int kSpins = 2000;

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

/// Which pool's body the current thread is inside of, and under which index.
struct Inside {
  const ThreadPool *pool = nullptr;
  uint32_t thread = 0;
};
thread_local Inside inside;

constexpr uint64_t kWorkersMask = 0xffffffff;

/// The number in LLMOPT_THREADS; 0 where it is not set or is no number of threads.
uint32_t threadsOf(const char *text) {
  uint32_t value = 0;
  const char *end = text ? text + std::strlen(text) : nullptr;
  auto [stop, error] = std::from_chars(text, end, value);
  return error == std::errc() && stop == end && value <= ThreadPool::kMaxThreads ? value : 0;
}

} // namespace

uint32_t ThreadPool::defaultThreads() {
  if (uint32_t value = threadsOf(std::getenv("LLMOPT_THREADS")))
    return value;
  cpu_set_t set;
  CPU_ZERO(&set);
  int count = ::sched_getaffinity(0, sizeof(set), &set) == 0
                  ? CPU_COUNT(&set)
                  : static_cast<int>(std::thread::hardware_concurrency());
  return static_cast<uint32_t>(std::clamp<int>(count, 1, kMaxThreads));
}

Status ThreadPool::checkEnvironment() {
  const char *text = std::getenv("LLMOPT_THREADS");
  if (text && !threadsOf(text))
    return invalidArgument("LLMOPT_THREADS is '{}'; 1 to {} are allowed; unset it for one thread "
                           "a processor",
                           text, kMaxThreads);
  return {};
}

ThreadPool::ThreadPool(uint32_t count) {
  count = std::min(count ? count : defaultThreads(), kMaxThreads);
  try {
    threads.reserve(count - 1);
    for (uint32_t thread = 1; thread < count; ++thread)
      threads.emplace_back([this, thread] { threadMain(thread); });
  } catch (const std::system_error &) {
    // No more threads to be had: the loop runs on those that there are.
  } catch (const std::bad_alloc &) {
  }
}

ThreadPool::~ThreadPool() {
  stopping.store(true);
  signal.fetch_add(1);
  signal.notify_all();
  for (std::thread &thread : threads)
    thread.join();
}

/// Runs workers of the current loop until none is left to take.
void ThreadPool::drain(uint32_t thread) {
  Inside outer = std::exchange(inside, {this, thread});
  uint64_t now = available.load(std::memory_order_acquire);
  while (now & kWorkersMask) {
    if (!available.compare_exchange_weak(now, now - 1, std::memory_order_acq_rel,
                                         std::memory_order_acquire))
      continue;
    uint32_t worker = jobWorkers - static_cast<uint32_t>(now & kWorkersMask);
    job.call(job.context, worker, thread);
    if (unfinished.fetch_sub(1, std::memory_order_acq_rel) == 1)
      unfinished.notify_one();
    now = available.load(std::memory_order_acquire);
  }
  inside = outer;
}

/// Returns the signal's value once it differs from `seen`.
uint32_t ThreadPool::awaitWork(uint32_t seen) {
  for (int spin = 0; spin < kSpins; ++spin) {
    uint32_t now = signal.load(std::memory_order_acquire);
    if (now != seen)
      return now;
    relax();
  }
  signal.wait(seen, std::memory_order_acquire);
  return signal.load(std::memory_order_acquire);
}

void ThreadPool::threadMain(uint32_t thread) {
  uint32_t seen = 0;
  while (true) {
    seen = awaitWork(seen);
    if (stopping.load())
      return;
    drain(thread);
  }
}

void ThreadPool::run(Job newJob, uint32_t workers) {
  bool nested = inside.pool == this;
  if (nested || workers <= 1 || threads.empty()) {
    uint32_t thread = nested ? inside.thread : 0;
    // Serial loops of several callers would share thread 0 and its scratch
    // memory.
    std::unique_lock<std::mutex> turn(callers, std::defer_lock);
    if (!nested)
      turn.lock();
    Inside outer = std::exchange(inside, {this, thread});
    for (uint32_t worker = 0; worker < workers; ++worker)
      newJob.call(newJob.context, worker, thread);
    inside = outer;
    return;
  }
  std::lock_guard<std::mutex> turn(callers);
  job = newJob;
  jobWorkers = workers;
  unfinished.store(workers, std::memory_order_relaxed);
  uint64_t loop = (available.load(std::memory_order_relaxed) >> 32) + 1;
  available.store(loop << 32 | workers, std::memory_order_release);
  signal.fetch_add(1, std::memory_order_release);
  signal.notify_all();
  drain(0);
  for (int spin = 0; spin < kSpins; ++spin) {
    if (unfinished.load(std::memory_order_acquire) == 0)
      return;
    relax();
  }
  while (uint32_t left = unfinished.load(std::memory_order_acquire))
    unfinished.wait(left, std::memory_order_acquire);
}

} // namespace llmopt::runtime

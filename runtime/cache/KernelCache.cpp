#include "runtime/cache/KernelCache.h"

#include "runtime/cache/BundleStore.h"
#include "runtime/cache/KeyLock.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <unistd.h>
#include <vector>

namespace llmopt::runtime {

namespace {

/// What one program takes in memory, near enough.
uint64_t sizeOf(const bundle::Program &program) {
  uint64_t bytes = sizeof(program) + program.ir.size();
  for (const bundle::Image &image : program.images)
    bytes += image.bytes.size();
  return bytes;
}

/// A compile that several threads wait for.
struct Flight {
  std::mutex mutex;
  std::condition_variable finished;
  std::optional<StatusOr<CachedProgram>> result;

  StatusOr<CachedProgram> wait() {
    std::unique_lock lock(mutex);
    finished.wait(lock, [&] { return result.has_value(); });
    return *result;
  }
  void finish(const StatusOr<CachedProgram> &value) {
    {
      std::lock_guard lock(mutex);
      result = value;
    }
    finished.notify_all();
  }
};

/// Programs by key, the one used longest ago first to go. Not for several threads.
class MemoryCache {
public:
  explicit MemoryCache(uint64_t maxBytes) : maxBytes(maxBytes) {}

  CachedProgram find(const std::string &key) {
    auto found = index.find(key);
    if (found == index.end())
      return nullptr;
    order.splice(order.end(), order, found->second);
    return found->second->program;
  }

  void insert(const std::string &key, CachedProgram program) {
    if (index.contains(key))
      return;
    uint64_t size = sizeOf(*program);
    bytes += size;
    order.push_back({key, std::move(program), size});
    index[key] = std::prev(order.end());
    while (bytes > maxBytes && order.size() > 1) {
      bytes -= order.front().bytes;
      index.erase(order.front().key);
      order.pop_front();
    }
  }

private:
  struct Kept {
    std::string key;
    CachedProgram program;
    uint64_t bytes;
  };

  uint64_t maxBytes, bytes = 0;
  std::list<Kept> order;
  std::map<std::string, std::list<Kept>::iterator> index;
};

/// What a compiler must not hand out: it would be kept.
Status checkCompiled(const std::string &key, const bundle::Program &program) {
  if (program.key != key)
    return makeStatus(StatusCode::Internal,
                      "the compile for key '{}' returned a program with key '{}'", key,
                      program.key);
  if (program.kernels.empty())
    return makeStatus(StatusCode::Internal, "the compile for key '{}' returned no kernel", key);
  for (const bundle::Image &image : program.images)
    if (image.bytes.empty())
      return makeStatus(StatusCode::Internal, "the compile for key '{}' returned an empty image",
                        key);
  return {};
}

/// A compile's result, whatever it throws: others wait for it.
StatusOr<bundle::Program> resultOf(const std::string &key, const CompileFunction &compile) try {
  return compile();
} catch (const std::bad_alloc &) {
  return makeStatus(StatusCode::ResourceExhausted, "no memory for the program of key '{}'", key);
} catch (const std::exception &exception) {
  return makeStatus(StatusCode::Internal, "the compile for key '{}' ended with an exception: {}",
                    key, exception.what());
} catch (...) {
  return makeStatus(StatusCode::Internal,
                    "the compile for key '{}' ended with an exception of no known kind", key);
}

} // namespace

/// All that threads share, of one process: a child of a fork gets a new one.
struct KernelCache::State {
  explicit State(const CacheOptions &options)
      : options(options), store(options.folder), memory(options.maxMemoryBytes) {}

  ~State() {
    std::deque<Job> left;
    {
      std::lock_guard lock(mutex);
      stopping = true;
      left.swap(jobs);
    }
    wake.notify_all();
    for (std::thread &thread : threads)
      thread.join();
    for (Job &job : left)
      job.done(makeStatus(StatusCode::Unavailable, "the cache ended before key '{}' was compiled",
                          job.key));
  }

  StatusOr<CachedProgram> get(const std::string &key, const CompileFunction &compile);
  void enqueue(std::string key, CompileFunction compile, Callback done);

  const CacheOptions &options;
  const pid_t process = ::getpid();
  BundleStore store;
  std::mutex mutex;
  MemoryCache memory;
  CacheMetrics counts;
  std::string problem;

private:
  struct Job {
    std::string key;
    CompileFunction compile;
    Callback done;
  };

  StatusOr<CachedProgram> produce(const std::string &key, const CompileFunction &compile);
  std::optional<CachedProgram> fromDisk(const std::string &key);
  StatusOr<CachedProgram> compileNow(const std::string &key, const CompileFunction &compile);
  void publish(const bundle::Program &program);
  void threadMain();
  void count(uint64_t CacheMetrics::*which, uint64_t by = 1) {
    std::lock_guard lock(mutex);
    counts.*which += by;
  }
  void noteProblem(const Status &status) {
    std::lock_guard lock(mutex);
    problem = status.message();
  }

  std::map<std::string, std::shared_ptr<Flight>> flights;
  std::deque<Job> jobs;
  std::condition_variable wake;
  std::vector<std::thread> threads;
  uint32_t idle = 0;
  bool stopping = false;
  std::optional<uint64_t> diskBytes; ///< entries on disk, when last looked at, and own ones
};

StatusOr<CachedProgram> KernelCache::State::get(const std::string &key,
                                                const CompileFunction &compile) {
  if (!isCacheKey(key))
    return invalidArgument("'{}' is no cache key; 1 to 128 hexadecimal digits are allowed", key);
  std::shared_ptr<Flight> flight;
  bool first = false;
  {
    std::lock_guard lock(mutex);
    if (CachedProgram program = memory.find(key)) {
      ++counts.memoryHits;
      return program;
    }
    std::shared_ptr<Flight> &entry = flights[key];
    first = !entry;
    if (first)
      entry = std::make_shared<Flight>();
    else
      ++counts.joined;
    flight = entry;
  }
  if (!first)
    return flight->wait();
  StatusOr<CachedProgram> result = produce(key, compile);
  {
    std::lock_guard lock(mutex);
    try {
      if (result)
        memory.insert(key, *result);
    } catch (const std::bad_alloc &) { // served all the same, and those who wait must not hang
    }
    flights.erase(key);
  }
  flight->finish(result);
  return result;
}

std::optional<CachedProgram> KernelCache::State::fromDisk(const std::string &key) {
  StatusOr<bundle::Program> read = store.read(key);
  if (read) {
    count(&CacheMetrics::diskHits);
    return std::make_shared<const bundle::Program>(*std::move(read));
  }
  if (read.status().code() != StatusCode::NotFound) {
    count(&CacheMetrics::rejected);
    noteProblem(read.status());
  }
  return std::nullopt;
}

/// From disk, or compiled while no other process compiles the same.
StatusOr<CachedProgram> KernelCache::State::produce(const std::string &key,
                                                    const CompileFunction &compile) try {
  if (options.folder.empty())
    return compileNow(key, compile);
  if (std::optional<CachedProgram> program = fromDisk(key))
    return *program;
  if (Status status = store.create(); !status.ok()) {
    noteProblem(status);
    return compileNow(key, compile);
  }
  auto start = std::chrono::steady_clock::now();
  std::chrono::microseconds pause(500);
  std::optional<KeyLock> lock;
  while (KeyLock::tryLock(store.lockPath(key), lock) == KeyLock::State::Taken) {
    if (std::chrono::steady_clock::now() - start > options.patience)
      break;
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::microseconds>(pause * 2, std::chrono::milliseconds(10));
  }
  // Whoever had the lock has most likely published meanwhile.
  if (StatusOr<bundle::Program> read = store.read(key)) {
    count(&CacheMetrics::diskHits);
    return std::make_shared<const bundle::Program>(*std::move(read));
  }
  return compileNow(key, compile);
} catch (const std::bad_alloc &) {
  return makeStatus(StatusCode::ResourceExhausted, "no memory for the program of key '{}'", key);
} catch (const std::exception &exception) { // of the system: locks, folders
  return makeStatus(StatusCode::Internal, "the cache failed on key '{}': {}", key,
                    exception.what());
}

StatusOr<CachedProgram> KernelCache::State::compileNow(const std::string &key,
                                                       const CompileFunction &compile) {
  count(&CacheMetrics::compiles);
  StatusOr<bundle::Program> compiled = resultOf(key, compile);
  Status status = compiled ? checkCompiled(key, *compiled) : compiled.status();
  if (!status.ok()) {
    count(&CacheMetrics::failedCompiles);
    return status;
  }
  if (!options.folder.empty())
    publish(*compiled);
  return std::make_shared<const bundle::Program>(*std::move(compiled));
}

void KernelCache::State::publish(const bundle::Program &program) {
  if (Status status = store.publish(program); !status.ok()) {
    noteProblem(status);
    return;
  }
  // Looking at the whole folder takes long: once, and when the limit is reached.
  bool full;
  {
    std::lock_guard lock(mutex);
    if (diskBytes)
      *diskBytes += sizeOf(program);
    full = !diskBytes || *diskBytes > options.maxDiskBytes;
  }
  if (!full)
    return;
  BundleStore::Collected collected = store.collect(options.maxDiskBytes, program.key);
  std::lock_guard lock(mutex);
  diskBytes = collected.keptBytes;
  counts.evicted += collected.entries;
}

void KernelCache::State::enqueue(std::string key, CompileFunction compile, Callback done) {
  std::unique_lock lock(mutex);
  if (CachedProgram program = memory.find(key)) {
    ++counts.memoryHits;
    lock.unlock();
    done(program);
    return;
  }
  jobs.push_back({std::move(key), std::move(compile), std::move(done)});
  uint32_t most =
      options.threads ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  if (idle < jobs.size() && threads.size() < most)
    threads.emplace_back([this] { threadMain(); });
  lock.unlock();
  wake.notify_one();
}

void KernelCache::State::threadMain() {
  std::unique_lock lock(mutex);
  for (;;) {
    ++idle;
    wake.wait(lock, [&] { return stopping || !jobs.empty(); });
    --idle;
    if (stopping)
      return;
    Job job = std::move(jobs.front());
    jobs.pop_front();
    lock.unlock();
    job.done(get(job.key, job.compile));
    job = {}; // what it holds goes before the lock is taken again
    lock.lock();
  }
}

KernelCache::KernelCache(CacheOptions given) : options(std::move(given)) {
  state = new State(options);
}

KernelCache::~KernelCache() {
  State *own = state.load();
  if (own->process == ::getpid())
    delete own;
}

/// The state of this process. A child of a fork leaves its parent's alone, for good: threads
/// that the child has not got may have held its locks.
KernelCache::State &KernelCache::current() const {
  State *seen = state.load(std::memory_order_acquire);
  if (seen->process == ::getpid())
    return *seen;
  auto own = std::make_unique<State>(options);
  if (state.compare_exchange_strong(seen, own.get()))
    return *own.release();
  return *seen; // another thread of the child was first
}

StatusOr<CachedProgram> KernelCache::get(const std::string &key, const CompileFunction &compile) {
  return current().get(key, compile);
}

void KernelCache::getAsync(const std::string &key, CompileFunction compile, Callback done) {
  current().enqueue(key, std::move(compile), std::move(done));
}

CacheMetrics KernelCache::metrics() const {
  State &own = current();
  std::lock_guard lock(own.mutex);
  return own.counts;
}

std::string KernelCache::diskProblem() const {
  State &own = current();
  std::lock_guard lock(own.mutex);
  return own.problem;
}

void KernelCache::clearMemory() {
  State &own = current();
  std::lock_guard lock(own.mutex);
  own.memory = MemoryCache(options.maxMemoryBytes);
}

} // namespace llmopt::runtime

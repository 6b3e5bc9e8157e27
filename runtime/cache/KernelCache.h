// Compiled specs by key, in memory and on disk: each is compiled once.
//
//   KernelCache cache({.folder = defaultCacheFolder()});
//   StatusOr<CachedProgram> program = cache.get(key, [&] { return compile(spec); });
//
// The key names everything that decides the program's bytes (canonical IR, target, options,
// versions of compilers); who makes it promises that. Threads that ask for the same key at
// the same time, in this and in other processes, wait for one compile. A failed compile is
// reported to all who wait and is kept nowhere: the next call tries again.
//
// The disk is a help and never a hindrance: a folder that is read-only, full or not there
// costs repeated compiles, and `diskProblem` says so.
//
// After a fork, the child's cache starts with an empty memory and its own threads.
#pragma once

#include "runtime/base/Status.h"
#include "runtime/bundle/Program.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace llmopt::runtime {

using CachedProgram = std::shared_ptr<const bundle::Program>;

/// Compiles the program of a key. Must not ask the same cache for the same key. Called by
/// whichever thread asks first; getAsync calls it on a thread of the cache.
using CompileFunction = std::function<StatusOr<bundle::Program>()>;

struct CacheOptions {
  std::string folder; ///< empty: memory only
  uint64_t maxDiskBytes = uint64_t{1} << 30;
  uint64_t maxMemoryBytes = uint64_t{256} << 20; ///< of programs that are kept loaded
  uint32_t threads = 0;                          ///< for getAsync; 0: one for each processor
  /// How long to wait for another process that compiles the key before compiling too.
  std::chrono::milliseconds patience = std::chrono::seconds(60);
};

/// Counts since the cache was made.
struct CacheMetrics {
  uint64_t compiles = 0, failedCompiles = 0;
  uint64_t memoryHits = 0, diskHits = 0;
  uint64_t joined = 0;   ///< calls that waited for another thread's compile
  uint64_t rejected = 0; ///< entries on disk that were damaged, foreign or of another version
  uint64_t evicted = 0;  ///< entries that made room on disk
};

class KernelCache {
public:
  explicit KernelCache(CacheOptions options);
  /// Waits for compiles that run; those that wait to run report Unavailable.
  ~KernelCache();
  KernelCache(const KernelCache &) = delete;
  KernelCache &operator=(const KernelCache &) = delete;

  StatusOr<CachedProgram> get(const std::string &key, const CompileFunction &compile);

  /// Returns at once; `done` is called later on a thread of the cache, or before the return
  /// where the program is in memory.
  using Callback = std::function<void(StatusOr<CachedProgram>)>;
  void getAsync(const std::string &key, CompileFunction compile, Callback done);

  CacheMetrics metrics() const;
  /// Why the disk did not serve last, in words; empty while it does.
  std::string diskProblem() const;
  /// Forgets what is in memory; programs in use live on.
  void clearMemory();

private:
  struct State;
  State &current() const;

  CacheOptions options;
  mutable std::atomic<State *> state;
};

} // namespace llmopt::runtime

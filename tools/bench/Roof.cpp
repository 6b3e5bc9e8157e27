// See Roof.h. Each limit is the best of several short runs on all threads at once.
#include "tools/bench/Roof.h"

#include "runtime/base/AlignedBuffer.h"
#include "runtime/device/cpu/ThreadPool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace llmopt::bench {
namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Runs `work(thread)` on all threads `repeats` times; the shortest wall time. The threads stay, as
/// a kernel's do: a fresh one may wait milliseconds for a core of its own, as long as the work.
double bestTime(unsigned threads, unsigned repeats, const std::function<void(unsigned)> &work) {
  static runtime::ThreadPool pool(threads);
  double best = 1e30;
  for (unsigned r = 0; r < repeats; ++r) {
    auto start = Clock::now();
    pool.parallelFor(threads, [&](uint32_t worker, uint32_t) { work(worker); });
    best = std::min(best, secondsSince(start));
  }
  return best;
}

volatile float sink;

// 24 independent accumulators hide the latency of 4 cycles on two ports with room to
// spare and still fit the 32 registers of AVX-512.
constexpr int kChains = 24;

#if defined(__x86_64__)

__attribute__((target("avx512f"))) void fmaAvx512(long rounds) {
  __m512 sums[kChains], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-4f);
  for (__m512 &sum : sums)
    sum = _mm512_set1_ps(1e-3f);
  for (long r = 0; r < rounds; ++r)
    for (int i = 0; i < kChains; ++i)
      sums[i] = _mm512_fmadd_ps(sums[i], x, y);
  float total = 0;
  for (__m512 sum : sums)
    total += _mm512_reduce_add_ps(sum);
  sink = total;
}

__attribute__((target("avx2,fma"))) void fmaAvx2(long rounds) {
  constexpr int chains = 12; // 16 registers
  __m256 sums[chains], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-4f);
  for (__m256 &sum : sums)
    sum = _mm256_set1_ps(1e-3f);
  for (long r = 0; r < rounds; ++r)
    for (int i = 0; i < chains; ++i)
      sums[i] = _mm256_fmadd_ps(sums[i], x, y);
  __m256 total = sums[0];
  for (int i = 1; i < chains; ++i)
    total = _mm256_add_ps(total, sums[i]);
  sink = total[0];
}

__attribute__((target("avx512f,avx512bf16"))) void dotBf16(long rounds) {
  __m512 sums[kChains];
  __m512bh x = (__m512bh)_mm512_set1_epi16(0x3f80);
  for (__m512 &sum : sums)
    sum = _mm512_setzero_ps();
  for (long r = 0; r < rounds; ++r)
    for (int i = 0; i < kChains; ++i)
      sums[i] = _mm512_dpbf16_ps(sums[i], x, x);
  float total = 0;
  for (__m512 sum : sums)
    total += _mm512_reduce_add_ps(sum);
  sink = total;
}

#endif

void mulAddBaseline(long rounds) {
  typedef float Vec __attribute__((vector_size(16)));
  constexpr int chains = 12;
  Vec sums[chains], x = {0.999f, 0.999f, 0.999f, 0.999f}, y = {1e-4f, 1e-4f, 1e-4f, 1e-4f};
  for (Vec &sum : sums)
    sum = y;
  for (long r = 0; r < rounds; ++r)
    for (int i = 0; i < chains; ++i)
      sums[i] = sums[i] * x + y;
  Vec total = sums[0];
  for (int i = 1; i < chains; ++i)
    total += sums[i];
  sink = total[0];
}

void measureFma(Roof &roof) {
  constexpr long rounds = 1'000'000;
  double flops = 0;
  std::function<void(unsigned)> work;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) {
    roof.isa = "avx512";
    flops = 2.0 * 16 * kChains * rounds;
    work = [](unsigned) { fmaAvx512(rounds); };
  } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    roof.isa = "avx2";
    flops = 2.0 * 8 * 12 * rounds;
    work = [](unsigned) { fmaAvx2(rounds); };
  }
#endif
  if (!work) {
    roof.isa = "baseline";
    flops = 2.0 * 4 * 12 * rounds;
    work = [](unsigned) { mulAddBaseline(rounds); };
  }
  roof.fmaFlops = roof.threads * flops / bestTime(roof.threads, 5, work);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bf16"))
    roof.bf16DotFlops = roof.threads * 4.0 * 16 * kChains * rounds /
                        bestTime(roof.threads, 5, [](unsigned) { dotBf16(rounds); });
#endif
}

/// Half the time in which two threads hand a line to each other and back.
void measureHandOver(Roof &roof) {
  constexpr int rounds = 5000;
  if (roof.threads < 2)
    return;
  double seconds = bestTime(2, 3, [turn = std::make_shared<std::atomic<int>>(0)](unsigned t) {
    for (int i = 0; i < rounds; ++i) {
      while ((turn->load(std::memory_order_acquire) & 1) != int(t)) {
      }
      turn->fetch_add(1, std::memory_order_release);
    }
  });
  roof.handOverSeconds = seconds / (2 * rounds);
}

typedef uint64_t Line __attribute__((vector_size(64)));

/// By the widest loads there are: with those of 16 bytes a core of Emerald Rapids has too few lines
/// under way, and reads two thirds of what it can.
#define LLMOPT_READ_LINES(name, isa)                                                               \
  isa void name(std::span<const Line> lines) {                                                     \
    Line sums[8] = {};                                                                             \
    for (size_t i = 0; i + 8 <= lines.size(); i += 8)                                              \
      for (int u = 0; u < 8; ++u)                                                                  \
        sums[u] ^= lines[i + u];                                                                   \
    for (int u = 1; u < 8; ++u)                                                                    \
      sums[0] ^= sums[u];                                                                          \
    sink = float(sums[0][0]);                                                                      \
  }
#if defined(__x86_64__)
LLMOPT_READ_LINES(readAvx512, __attribute__((target("avx512f"))))
LLMOPT_READ_LINES(readAvx2, __attribute__((target("avx2"))))
#endif
LLMOPT_READ_LINES(readBaseline, )
#undef LLMOPT_READ_LINES

void measureRead(Roof &roof) {
  constexpr size_t bytes = size_t(192) << 20; // a thread's share, beyond any L3 share
  std::vector<runtime::AlignedBuffer> memory(roof.threads);
  std::vector<std::span<Line>> buffers(roof.threads);
  bestTime(roof.threads, 1, [&](unsigned t) {
    memory[t] = runtime::AlignedBuffer(bytes);
    buffers[t] = {reinterpret_cast<Line *>(memory[t].data()), bytes / sizeof(Line)};
    std::ranges::fill(buffers[t], Line{} + t + 1);
  });
  auto read = readBaseline;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2"))
    read = readAvx2;
  if (__builtin_cpu_supports("avx512f"))
    read = readAvx512;
#endif
  double seconds = bestTime(roof.threads, 4, [&](unsigned t) { read(buffers[t]); });
  roof.readBytes = roof.threads * double(bytes) / seconds;
}

} // namespace

Roof measureRoof(unsigned threads) {
  Roof roof;
  roof.threads = std::max(1u, threads);
  measureFma(roof);
  measureHandOver(roof);
  measureRead(roof);
  return roof;
}

} // namespace llmopt::bench

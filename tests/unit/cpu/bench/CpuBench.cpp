// Speed of compiled attention loops beside the machine's own limits, measured in the same
// run: multiply-adds of f32 and bf16 pairs, and reading memory. One thread.
//   cpu-bench [filter]
#include "tests/unit/cpu/Attention.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <immintrin.h>
#include <time.h>

using namespace llmopt::cpu;
using namespace llmopt::cpu::test;

namespace {

/// Time of this thread on the processor: what others take while it waits does not count.
double now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

double seconds(const std::function<void()> &work) {
  double start = now();
  work();
  return now() - start;
}

double best(int repeats, const std::function<void()> &work) {
  double least = 1e9;
  for (int i = 0; i < repeats; ++i)
    least = std::min(least, seconds(work));
  return least;
}

constexpr int kChains = 24, kSteps = 20000;

/// GFLOP/s of independent chains of fused multiply-adds.
__attribute__((target("avx512f"))) double fmaRoof() {
  volatile float sink = 0;
  double time = best(5, [&]() __attribute__((target("avx512f"))) {
    __m512 sums[kChains];
    for (auto &s : sums)
      s = _mm512_set1_ps(1.0f);
    __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
    for (int i = 0; i < kSteps; ++i) {
#pragma clang loop unroll(full)
      for (int c = 0; c < kChains; ++c)
        sums[c] = _mm512_fmadd_ps(sums[c], x, y);
      asm volatile("" : "+v"(x));
    }
    for (auto &s : sums)
      sink = sink + _mm512_reduce_add_ps(s);
  });
  return 32.0 * kChains * kSteps / time * 1e-9;
}

__attribute__((target("avx512f,avx512bf16"))) double dotRoof() {
  volatile float sink = 0;
  double time = best(5, [&]() __attribute__((target("avx512f,avx512bf16"))) {
    __m512 sums[kChains];
    for (auto &s : sums)
      s = _mm512_set1_ps(1.0f);
    __m512i x = _mm512_set1_epi32(0x3f803f80);
    for (int i = 0; i < kSteps; ++i) {
#pragma clang loop unroll(full)
      for (int c = 0; c < kChains; ++c)
        sums[c] = _mm512_dpbf16_ps(sums[c], (__m512bh)x, (__m512bh)x);
      asm volatile("" : "+v"(x));
    }
    for (auto &s : sums)
      sink = sink + _mm512_reduce_add_ps(s);
  });
  return 64.0 * kChains * kSteps / time * 1e-9;
}

/// GB/s of reading 128 MiB.
__attribute__((target("avx512f"))) double readRoof() {
  static std::vector<char> memory(128 << 20, 1);
  volatile int sink = 0;
  double time = best(2, [&]() __attribute__((target("avx512f"))) {
    __m512i sum[4] = {};
    for (size_t i = 0; i + 256 <= memory.size(); i += 256)
      for (int j = 0; j < 4; ++j)
        sum[j] = _mm512_add_epi32(sum[j], _mm512_loadu_si512(memory.data() + i + 64 * j));
    for (auto s : sum)
      sink = sink + _mm512_reduce_add_epi32(s);
  });
  return memory.size() / time * 1e-9;
}

struct Shape {
  const char *name;
  AttentionSpec spec;
  int64_t rows, keys;
};

AttentionSpec spec(int64_t rows, int64_t keys, int64_t d, const char *type, bool causal = false,
                   int64_t page = 0) {
  AttentionSpec s;
  s.tileRows = rows, s.tileKeys = keys, s.d = s.dv = d, s.type = type, s.causal = causal,
  s.page = page;
  return s;
}

} // namespace

int main(int argc, char **argv) {
  const char *filter = argc > 1 ? argv[1] : "";
  const Shape shapes[] = {
      {"prefill f32 d64 192x64", spec(192, 64, 64, "f32"), 2048, 2048},
      {"prefill f32 d128 192x64", spec(192, 64, 128, "f32"), 2048, 2048},
      {"prefill f32 d64 64x64", spec(64, 64, 64, "f32"), 2048, 2048},
      {"prefill f32 d64 32x64", spec(32, 64, 64, "f32"), 2048, 2048},
      {"prefill f32 d128 64x128", spec(64, 128, 128, "f32"), 2048, 2048},
      {"prefill bf16 d64 192x64", spec(192, 64, 64, "bf16"), 2048, 2048},
      {"prefill bf16 d128 192x64", spec(192, 64, 128, "bf16"), 2048, 2048},
      {"prefill bf16 d128 64x64", spec(64, 64, 128, "bf16"), 2048, 2048},
      {"decode bf16 d128 rows 1", spec(1, 64, 128, "bf16"), 1, 1 << 18},
      {"decode bf16 d128 rows 4", spec(4, 64, 128, "bf16"), 4, 1 << 18},
      {"decode bf16 d128 rows 8", spec(8, 64, 128, "bf16"), 8, 1 << 18},
      {"decode bf16 d128 rows 16", spec(16, 64, 128, "bf16"), 16, 1 << 18},
      {"decode paged bf16 d128 rows 4", spec(4, 64, 128, "bf16", false, 16), 4, 1 << 18},
      {"decode f32 d128 rows 1", spec(1, 64, 128, "f32"), 1, 1 << 17},
      {"decode f32 d128 rows 4", spec(4, 64, 128, "f32"), 4, 1 << 17},
      {"decode f16 d128 rows 4", spec(4, 64, 128, "f16"), 4, 1 << 18},
  };
  CpuTargetOptions options = CpuTargetOptions::host();
  printf("%s\n%-32s %8s %8s %9s %7s %9s %9s\n", options.cpu.c_str(), "shape", "compile", "object",
         "GFLOP/s", "share", "GB/s", "share");
  for (const Shape &shape : shapes) {
    if (!std::strstr(shape.name, filter))
      continue;
    auto kernel = Kernel::compile(attentionProgram(shape.spec), options, "attend");
    kernel = Kernel::compile(attentionProgram(shape.spec), options, "attend"); // caches are warm
    if (!kernel)
      return 1;
    AttentionData data(shape.spec, shape.rows, shape.keys);
    bool pairs = shape.spec.type == "bf16" && shape.rows >= 32, decode = shape.rows < 32;
    // In turns: on a shared machine the limit moves, too.
    double roof = 0, bandwidth = 0, time = 1e9;
    for (int round = 0; round < 24; ++round) {
      roof = std::max(roof, pairs ? dotRoof() : fmaRoof());
      bandwidth = std::max(bandwidth, decode ? readRoof() : 1);
      time = std::min(time, best(3, [&] { data.run(*kernel); }));
    }
    double flops = 4.0 * shape.rows * shape.keys * shape.spec.d;
    double bytes = 2.0 * shape.keys * shape.spec.d * (shape.spec.type == "f32" ? 4 : 2);
    if (shape.spec.causal)
      flops /= 2;
    printf("%-32s %5.1f ms %6zu B %9.1f %6.1f%%", shape.name, kernel->compileMs,
           kernel->objectBytes, flops / time * 1e-9, 100 * flops / time * 1e-9 / roof);
    if (decode)
      printf(" %9.1f %8.1f%%", bytes / time * 1e-9, 100 * bytes / time * 1e-9 / bandwidth);
    printf("   (roof %.0f GFLOP/s%s, scratch %.0f KiB)\n", roof,
           decode ? (" " + std::to_string(int(bandwidth)) + " GB/s").c_str() : "",
           kernel->scratchBytes / 1024.0);
  }
}

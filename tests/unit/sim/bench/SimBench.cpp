// How fast the simulator runs a kernel full of matrix products; not a test.
// Time is that of the thread, so that a busy machine does not count.
#include "tests/unit/sim/Nvrtc.h"
#include "tests/unit/sim/Support.h"

#include <algorithm>
#include <ctime>

using namespace llmopt;
using namespace llmopt::sim;

namespace {

double threadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

} // namespace

int main() {
  constexpr int kDim = 128, kRows = 1024, kHeads = 2;
  auto ptx =
      test::compileToPtx(fmt::format("#define DIM {}\n", kDim) + test::kernelSource("tensor.cuh") +
                             test::kernelSource("prefill.cu"),
                         "80");
  if (!ptx) {
    fmt::print("no NVRTC on this machine\n");
    return 0;
  }
  double begin = threadSeconds();
  auto module = loadPtx(*ptx, "prefill.ptx");
  double loaded = threadSeconds() - begin;
  std::vector<uint16_t> q(kRows * kHeads * kDim, 0x3c00), k = q, v = q, out = q;
  std::vector<float> lse(kRows * kHeads);
  GlobalMemory memory;
  for (auto *array : {&q, &k, &v, &out})
    if (!memory.add(array->data(), array->size() * 2, "array", Access::ReadWrite).ok())
      return 1;
  if (!memory.add(lse.data(), lse.size() * 4, "lse", Access::ReadWrite).ok())
    return 1;
  test::Params params;
  params.add(q.data()).add(k.data()).add(v.data()).add(out.data()).add(lse.data());
  params.add(int{kRows}).add(int{kRows}).add(1).add(0.1f).add(1);
  fmt::print("load {:.1f} ms; {} rows of dim {}, causal, on one thread:\n", loaded * 1e3, kRows,
             kDim);
  for (bool strict : {false, true}) {
    double best = 1e30;
    Counters counters;
    Options options;
    options.threads = 1;
    options.strict = strict;
    for (int repeat = 0; repeat < 5; ++repeat) {
      begin = threadSeconds();
      auto result =
          run(**module, memory,
              {"prefill", {kRows / 64, kHeads, 1}, {128, 1, 1}, 5 * 64 * kDim * 2, params.span()},
              options);
      if (!result) {
        fmt::print("{}\n", result.status().toString());
        return 1;
      }
      counters = *result;
      best = std::min(best, threadSeconds() - begin);
    }
    fmt::print("{:<8} {:.3f} s, {:.0f} M lane instructions/s, {:.1f} GFLOP/s of mma\n",
               strict ? "strict" : "relaxed", best,
               static_cast<double>(counters.laneInstructions) / best / 1e6,
               2 * static_cast<double>(counters.mmaMultiplyAdds) / best / 1e9);
  }
  return 0;
}

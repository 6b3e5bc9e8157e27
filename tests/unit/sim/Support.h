// Running PTX in tests: parameters, buffers, one instruction at a time.
#pragma once

#include "runtime/device/sim/Simulator.h"

#include <cstring>
#include <gtest/gtest.h>
#include <type_traits>

namespace llmopt::sim::test {

/// Parameter bytes in order, each aligned to its size.
class Params {
public:
  template <typename T> Params &add(T value) {
    size_t offset = (bytes.size() + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    bytes.resize(offset + sizeof(T));
    std::memcpy(&bytes[offset], &value, sizeof(T));
    return *this;
  }
  std::span<const std::byte> span() const { return bytes; }

private:
  std::vector<std::byte> bytes;
};

/// Memory whose buffers are vectors.
class Arrays : public GlobalMemory {
public:
  template <typename T> Arrays &in(const std::vector<T> &data, const char *name) {
    return add(data, name, Access::ReadOnly);
  }
  template <typename T> Arrays &out(const std::vector<T> &data, const char *name) {
    return add(data, name, Access::ReadWrite);
  }

private:
  template <typename T> Arrays &add(const std::vector<T> &data, const char *name, Access access) {
    EXPECT_TRUE(GlobalMemory::add(data.data(), data.size() * sizeof(T), name, access).ok()) << name;
    return *this;
  }
};

/// Loads PTX that must be right.
std::shared_ptr<const Module> load(std::string_view ptx);

/// A module around one kernel `k(.param .u64 in, .param .u64 out)`: declares
/// registers %p<16>, %h<32> (b16), %r<64>, %f<64>, %d<32> (b64), %fd<16>, loads
/// %d0 = in, %d1 = out and %r0 = thread, and runs `body`.
std::string kernelText(std::string_view body, std::string_view declarations = "",
                       std::string_view target = "sm_90");

/// For a body with `s` in shared memory: %r2 = shared, %d3 = input, %d4 = output address of the
/// thread's word, %r1 = its warp.
inline constexpr const char *kWordAddresses = R"(
  mov.u32 %r63, s;
  shr.u32 %r1, %r0, 5;
  shl.b32 %r2, %r0, 2;
  mul.wide.u32 %d2, %r0, 4;
  add.u64 %d3, %d0, %d2;
  add.u64 %d4, %d1, %d2;
)";

struct RunResult {
  runtime::Status status;
  Fault fault;
  Counters counters;
};

/// Without the checks for what is not set here: registers, memory, orders.
inline constexpr Options kRelaxed = {1, uint64_t{1} << 32, 0, 1, false};

/// Runs kernel `k` of the text on `in` (read-only) and `out`.
template <typename In, typename Out>
RunResult runKernel(std::string_view ptx, const std::vector<In> &in, std::vector<Out> &out,
                    std::array<uint32_t, 3> block = {32, 1, 1},
                    std::array<uint32_t, 3> grid = {1, 1, 1}, uint32_t dynamicShared = 0,
                    Options options = {1}) {
  RunResult result;
  auto module = load(ptx);
  if (!module)
    return result;
  Arrays memory;
  memory.in(in, "in").out(out, "out");
  Params params;
  params.add(in.data()).add(out.data());
  auto counters = run(*module, memory, {"k", grid, block, dynamicShared, params.span()}, options,
                      &result.fault);
  if (counters)
    result.counters = *counters;
  else
    result.status = counters.status();
  return result;
}

} // namespace llmopt::sim::test

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

/// Loads PTX that must be right.
std::shared_ptr<const Module> load(std::string_view ptx);

/// A module around one kernel `k(.param .u64 in, .param .u64 out)`: declares
/// registers %p<16>, %h<32> (b16), %r<64>, %f<64>, %d<32> (b64), %fd<16>, loads
/// %d0 = in, %d1 = out and %r0 = thread, and runs `body`.
std::string kernelText(std::string_view body, std::string_view declarations = "",
                       std::string_view target = "sm_90");

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
  GlobalMemory memory;
  EXPECT_TRUE(memory.add(in.data(), in.size() * sizeof(In), "in", Access::ReadOnly).ok());
  EXPECT_TRUE(memory.add(out.data(), out.size() * sizeof(Out), "out", Access::ReadWrite).ok());
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

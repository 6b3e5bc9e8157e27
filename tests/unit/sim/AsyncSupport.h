// Tests of bulk copies and wgmma: data in one array behind its tensor map.
#pragma once

#include "runtime/device/sim/TensorMap.h"

#include "tests/unit/sim/Support.h"

#include <numeric>

namespace llmopt::sim::test {

/// The kernel's input: a tensor map (at a multiple of 64), then the tensor's bytes.
struct TensorInput {
  static constexpr size_t kMapAt = 64, kDataAt = 256;
  std::vector<uint8_t> storage;
  size_t begin = 0; ///< of the map in `storage`

  explicit TensorInput(size_t bytes) : storage(bytes + kDataAt + 64) {
    auto address = reinterpret_cast<uint64_t>(storage.data());
    begin = (address + 63) / 64 * 64 - address;
    std::iota(data(), data() + bytes, uint8_t{1});
  }
  uint8_t *data() { return storage.data() + begin + kDataAt - kMapAt; }

  void setMap(TensorMap map) {
    map.base = reinterpret_cast<uint64_t>(data());
    auto encoded = encode(map);
    ASSERT_TRUE(encoded.ok()) << encoded.status().toString();
    std::memcpy(storage.data() + begin, encoded->bytes.data(), kTensorMapBytes);
  }
};

/// %d8 = the tensor map, %d9 = the data, %d10 = out + 16 * thread.
inline const std::string kTensorAddresses = R"(
  add.u64 %d8, %d0, 63;
  and.b64 %d8, %d8, -64;
  add.u64 %d9, %d8, 192;
  mul.wide.u32 %d10, %r0, 16;
  add.u64 %d10, %d1, %d10;
)";

/// 4096 bytes of shared memory `s` at a multiple of 1024, and mbarriers `bar`.
inline const std::string kTensorShared =
    ".shared .align 1024 .b8 s[4096];\n.shared .align 8 .b64 bar[4];";

/// Thread 0 initialises `bar` for that many arrivals; all know it.
inline std::string initBarrier(int arrivals) {
  return fmt::format(R"(
  mov.u32 %r1, bar;
  mov.u32 %r2, s;
  setp.eq.u32 %p1, %r0, 0;
  @%p1 mbarrier.init.shared::cta.b64 [%r1], {};
  @%p1 fence.mbarrier_init.release.cluster;
  bar.sync 0;
)",
                     arrivals);
}

/// Waits for a phase of `bar`.
inline std::string waitFor(int parity, const std::string &label = "W") {
  return fmt::format("{}:\n  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], {};\n"
                     "  @!%p2 bra {};\n",
                     label, parity, label);
}

inline std::string with(std::string text, const std::string &what, const std::string &by) {
  size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

} // namespace llmopt::sim::test

// Tests of clusters: a kernel in clusters of two, and what came of it.
#pragma once

#include "tests/unit/sim/AsyncSupport.h"

namespace llmopt::sim::test {

struct Outcome {
  runtime::Status status;
  Fault fault;
  std::vector<uint32_t> out = std::vector<uint32_t>(1024);
  std::string kind() const { return status.ok() ? "" : std::string(toString(fault.kind)); }
};

/// Runs a body in clusters of two along x, with %d4 = out + 4 * (thread of the grid).
inline Outcome execute(const std::string &body, uint32_t blocks = 4, uint32_t threads = 64,
                       uint64_t seed = 0, std::array<uint32_t, 3> cluster = {2, 1, 1},
                       TensorInput *tensor = nullptr) {
  Outcome outcome;
  TensorInput none(64);
  TensorInput &in = tensor ? *tensor : none;
  auto module = load(kernelText(kTensorAddresses + R"(
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mad.lo.u32 %r3, %r1, %r2, %r0;
  mul.wide.u32 %d2, %r3, 4;
  add.u64 %d4, %d1, %d2;
  mov.u32 %r4, %cluster_ctarank;
  xor.b32 %r5, %r4, 1;
)" + body,
                                kTensorShared));
  if (!module)
    return outcome;
  Arrays memory;
  memory.in(in.storage, "in").out(outcome.out, "out");
  Params params;
  params.add(in.storage.data()).add(outcome.out.data());
  Launch launch{"k", {blocks, 1, 1}, {threads, 1, 1}, 0, params.span(), cluster};
  outcome.status = run(*module, memory, launch, {1, 1 << 20, seed}, &outcome.fault).status();
  return outcome;
}

} // namespace llmopt::sim::test

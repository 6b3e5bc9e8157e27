// Control of the substitute libcuda.so.1 that tests put under the runtime. It answers the
// driver's calls on host memory, runs kernels on the simulator, keeps the order of every call,
// and fails on demand.
//
// What it is strict about: device memory cannot be touched from outside (it is unmapped
// between calls) and holds NaN until it is written; work runs when a stream is synchronised and
// not before, so host memory that goes too early is noticed; handles must be live ones; a
// capture allows no waiting. Image.h says what it loads.
//
// A process that does not know it is controlled by its environment:
//
//   LLMOPT_CUDA_LIBRARY=build/tests/lib/libcuda.so.1 llm-opt verify SPEC --device cuda
//
//   FAKE_CUDA_SET=version=11080,major=9     numbers of the device, as fake_cuda_set
//   FAKE_CUDA_FAIL=cuLaunchKernel=700@2     as fake_cuda_fail: call=result@skip, by commas
//   FAKE_CUDA_LOG=FILE                      appends every call to a file
//   FAKE_CUDA_MEMORY=BYTES                  of the device (4 GiB)
//   FAKE_CUDA_BUNDLES=PATH:PATH             where machine code's PTX is looked for, before the
//                                           kernel cache
//   LLMOPT_SIM_STRICT=1                     with the checks of the simulator that take time
#pragma once

#include <cstddef>

extern "C" {
/// The calls since the last `fake_cuda_reset`, one a line, with what matters of their
/// arguments: "cuLaunchKernel attend grid 4 block 128 shared 0".
const char *fake_cuda_log();
/// Forgets log, failures and all handles; the device becomes the standard one: sm_80,
/// 4 multiprocessors, driver 13.0, with pools.
void fake_cuda_reset();
/// Makes a call return `result` once, after `skip` calls of it that succeed. Asynchronous
/// failures (700 to 719) of "cuLaunchKernel" come with the next synchronisation, and stay: the
/// device is lost. So does a fault that the simulator finds.
void fake_cuda_fail(const char *call, int result, int skip);
/// Changes a number: "version", "devices", "major", "minor", "pools", "shared", "units".
void fake_cuda_set(const char *what, int value);
/// Handles and allocations that are alive.
int fake_cuda_live();
}

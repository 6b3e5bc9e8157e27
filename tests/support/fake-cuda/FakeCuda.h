// Control of the substitute libcuda.so.1 that tests put under the runtime. It answers the
// driver's calls on host memory, keeps the order of every call, and fails on demand.
//
// What it is strict about: device memory cannot be touched from outside (it is unmapped
// between calls); work runs when a stream is synchronised and not before, so host memory that
// goes too early is noticed; handles must be live ones. "Machine code" is an x86 object with
// CPU entries (bundle::CpuEntry), run once for each block; PTX images are accepted likewise
// after the eight bytes "//PTX   ".
#pragma once

#include <cstddef>

extern "C" {
/// The calls since the last `fake_cuda_reset`, one a line, with what matters of their
/// arguments: "cuLaunchKernel attend grid 4 block 128 shared 0".
const char *fake_cuda_log();
/// Forgets log, failures and all handles; the device becomes the standard one: sm_80,
/// 4 multiprocessors, driver 13.0, with pools.
void fake_cuda_reset();
/// Makes a call return `result`, after `skip` calls of it that succeed. Asynchronous failures
/// (700 and up) of "cuLaunchKernel" come with the next synchronisation, and stay.
void fake_cuda_fail(const char *call, int result, int skip);
/// Changes a number: "version", "devices", "major", "minor", "pools", "shared", "units".
void fake_cuda_set(const char *what, int value);
/// Handles and allocations that are alive.
int fake_cuda_live();
}

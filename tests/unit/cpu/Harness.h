// Compiles a tile program to an object, loads it and calls it: what the CPU device does,
// in one process.
#pragma once

#include "codegen/cpu/Object.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace llmopt::cpu::test {

/// The feature sets that every test runs with; those that this machine lacks are left out.
struct Isa {
  const char *name;
  const char *features;
};
std::vector<Isa> availableIsas();
CpuTargetOptions optionsFor(const Isa &isa);

/// One kernel in memory.
class Kernel {
public:
  /// Fails the running test and returns null when the program does not compile.
  static std::unique_ptr<Kernel> compile(const std::string &text, const CpuTargetOptions &options,
                                         const std::string &name);
  ~Kernel();

  Kernel &slot(const void *pointer) { return slot(reinterpret_cast<int64_t>(pointer)); }
  Kernel &slot(int64_t value);
  Kernel &slot(float value);
  /// Calls the kernel with the slots given so far.
  int run(uint32_t worker = 0);
  /// Forgets the slots.
  void clear() { slots.clear(); }

  double compileMs = 0;
  int64_t scratchBytes = 0;
  size_t objectBytes = 0;

private:
  Kernel();
  struct Impl;
  std::unique_ptr<Impl> impl;
  std::vector<uint64_t> slots;
};

/// bf16 and f16 as the memory of a test holds them.
uint16_t toBf16(float value);
float fromBf16(uint16_t bits);
uint16_t toF16(float value);
float fromF16(uint16_t bits);

/// Distance in units of the last place of `wanted`, rounded to float.
double ulps(float got, double wanted);

} // namespace llmopt::cpu::test

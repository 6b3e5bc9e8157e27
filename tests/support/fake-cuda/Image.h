// What the substitute driver loads and runs: PTX, and machine code for NVIDIA's chips by the PTX
// that lies beside it in a bundle, on the simulator; x86 objects with CPU entries
// (bundle::CpuEntry), for tests that want a kernel without a compiler.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace fakecuda {

struct Chip {
  uint32_t major = 0, minor = 0, driver = 0; ///< driver: as cuDriverGetVersion gives it
};

struct LaunchShape {
  uint32_t grid[3], block[3], shared;
};

/// A loaded module.
class Image {
public:
  virtual ~Image() = default;
  virtual bool has(const std::string &function) const = 0;
  /// What the driver would refuse at the call.
  virtual int check(const std::string &function, const LaunchShape &shape) const = 0;
  /// Runs all blocks; `fault` says in words what a result other than 0 means.
  virtual int launch(const std::string &function, const LaunchShape &shape,
                     std::span<const uint8_t> params, std::string &fault) const = 0;
};

/// From bytes as cuModuleLoadDataEx gets them: without a size. The result where there is no
/// image, and why.
struct Loaded {
  std::shared_ptr<const Image> image;
  int result = 0;
  std::string log;
};
Loaded loadImage(const uint8_t *bytes, const Chip &chip);

/// What a bundle says of machine code: the chip that it is for, and the PTX beside it.
struct Beside {
  std::string chip, ptx;
};
/// Looks through the bundles that FAKE_CUDA_BUNDLES names (files or folders, by colons) and
/// those that the kernel cache keeps; empty if none has it.
Beside ptxBeside(std::span<const uint8_t> machineCode);

} // namespace fakecuda

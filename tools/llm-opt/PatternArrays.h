// Arrays of a call that have no host memory (harness::Shape::contents), on a device. Inputs hold a
// block of normal numbers over and over: made once on the host, multiplied by copies within the
// device, so that gigabytes cost milliseconds, and another program can make the same.
#pragma once

#include "runtime/device/Arguments.h"
#include "runtime/device/Device.h"
#include "tools/harness/Call.h"

#include <map>

namespace llmopt::cli {

class PatternArrays {
public:
  /// Elements of the block: no multiple of a row or a page, so that neighbours differ.
  static constexpr int64_t kBlock = (int64_t{1} << 20) + 64 * 65;

  struct Array {
    runtime::ArrayRef ref; ///< on the device
    runtime::DeviceMemory memory;
    /// Element i of the memory is element (start + i) % kBlock of the block; results hold NaN.
    int64_t start = 0;
    bool result = false;
  };

  /// Takes the arrays without an address out of `arguments`, and makes them.
  static llvm::Expected<PatternArrays> make(runtime::Stream &stream, const harness::Call &call,
                                            runtime::CallArguments &arguments);
  void addTo(runtime::CallArguments &arguments) const;

  const std::map<std::string, Array> &arrays() const { return placed; }
  /// kBlock elements, standard normal, as they lie in memory.
  static std::vector<uint8_t> block(bundle::ElementType type);

private:
  std::map<std::string, Array> placed;
};

} // namespace llmopt::cli

// A call's host arrays on a device with memory of its own: copied there before the call,
// back after it. On a device with host memory nothing is copied.
//
//   StatusOr<StagedArrays> staged = StagedArrays::upload(*stream, program, arguments);
//   StatusOr<BoundCall> call = BoundCall::bind(loaded, staged->arguments());
//   call->run(*stream); staged->download(*stream);
#pragma once

#include "runtime/device/Arguments.h"
#include "runtime/device/Device.h"

#include <map>
#include <span>
#include <string>
#include <vector>

namespace llmopt::runtime {

/// The host memory of arrays, by name, where more than the elements is to travel: guard
/// zones, say. Must contain the array's elements.
using ArrayStorage = std::map<std::string, std::span<uint8_t>, std::less<>>;

class StagedArrays {
public:
  /// `arguments` and its memory must stay until the stream was synchronised, and so must what is
  /// returned; after a failure no copy is on its way. An array that `storage` does not name
  /// travels from its first element to its last.
  static StatusOr<StagedArrays> upload(Stream &stream, const bundle::Program &program,
                                       const CallArguments &arguments,
                                       const ArrayStorage &storage = {});

  /// As given, with device addresses and the host's as ArrayRef::host.
  const CallArguments &arguments() const { return onDevice; }

  /// Copies the arrays to the device once more: what the host changed since, in the same memory.
  Status refresh(Stream &stream);

  enum class Which : uint8_t {
    Written, ///< results, and pools that the program appends to
    All,     ///< inputs too: to see that a kernel left them alone
  };
  /// Copies arrays back, and waits for it.
  Status download(Stream &stream, Which which = Which::Written);

private:
  struct Copy {
    uint8_t *host;
    DeviceMemory memory;
    bool written;
  };

  Status stage(Stream &stream, const bundle::Program &program, const ArrayStorage &storage);

  CallArguments onDevice;
  std::vector<Copy> copies;
};

/// Bytes from an array's first element to behind its last; 0 when it has none.
uint64_t spannedBytes(const ArrayRef &array);

} // namespace llmopt::runtime

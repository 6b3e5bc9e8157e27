// The caller's side of a call: arrays by pointer, shape and strides, numbers by
// name; and the check of both against what a program wants. For every device.
#pragma once

#include "runtime/base/Status.h"
#include "runtime/bundle/Program.h"
#include "runtime/plan/Plan.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace llmopt::runtime {

/// A caller's array. Strides count elements, as DLPack's do, and
/// are 0 or more.
struct ArrayRef {
  void *data = nullptr; ///< an address of the device that runs the call
  bundle::ElementType type = bundle::ElementType::F32;
  std::vector<int64_t> shape, strides;
  /// The same contents, laid out alike, in host memory; null where `data` is host memory.
  const void *host = nullptr;

  const void *hostData() const { return host ? host : data; }

  /// Rows one after the other.
  static ArrayRef contiguous(void *data, bundle::ElementType type, std::vector<int64_t> shape);
};

using ScalarValue = std::variant<int64_t, double>;

struct CallArguments {
  std::map<std::string, ArrayRef, std::less<>> arrays;
  /// Values of the program's scalars. Those that are not given keep their defaults; one without
  /// default must be given.
  std::map<std::string, ScalarValue, std::less<>> scalars;
};

/// Arrays in the order of Program::buffers. Plan buffers and absent nullable
/// ones have no entry.
using BoundArrays = std::vector<std::optional<ArrayRef>>;

/// Refuses an array that the program does not know.
Status checkNames(const bundle::Program &program, const CallArguments &arguments);

/// Matches arrays to buffers by name and checks rank, element type, static
/// extents and that extents which mean the same thing (batch, tokens, heads,
/// ...) agree. A dimension of a bias or mask that has extent 1 gets stride 0.
StatusOr<BoundArrays> matchArrays(const bundle::Program &program, const CallArguments &arguments);

/// The scalars as kernels read them (8 bytes each) and as mask bounds read
/// them.
struct ScalarTable {
  std::vector<uint64_t> slots;
  ScalarValues values;
};

StatusOr<ScalarTable> resolveScalars(const bundle::Program &program, const CallArguments &arguments,
                                     const BoundArrays &arrays);

/// Index of the only buffer with a role, if its array is present.
const ArrayRef *arrayOf(const bundle::Program &program, const BoundArrays &arrays,
                        bundle::BufferRole role);

/// "f32", and its size.
std::string_view toString(bundle::ElementType type);
uint32_t bytesOf(bundle::ElementType type);

/// "query", "block table", ...: what messages call a role.
std::string_view toString(bundle::BufferRole role);

/// Element `index` of a one-dimensional array of integers (i8, i32, i64, u32), from the host.
int64_t readInteger(const ArrayRef &array, int64_t index);

} // namespace llmopt::runtime

// The global memory that a simulated kernel may touch: buffers of the host, at
// their host addresses. A kernel's access that does not lie wholly in one of
// them is a fault that names the nearest.
#pragma once

#include "runtime/base/Status.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace llmopt::sim {

class Module;

enum class Access : uint8_t { ReadOnly, ReadWrite };

class GlobalMemory {
public:
  struct Buffer {
    uint64_t begin = 0;
    uint64_t end = 0; ///< first address behind it
    std::string name;
    Access access = Access::ReadOnly;
  };

  GlobalMemory();
  ~GlobalMemory();
  GlobalMemory(GlobalMemory &&) noexcept;
  GlobalMemory &operator=(GlobalMemory &&) noexcept;

  /// Lets kernels use [data, data + bytes). The memory stays the caller's and
  /// must live until it is removed. InvalidArgument if it overlaps a buffer that
  /// is there already. One of 0 bytes, at any address, is known by its name alone.
  runtime::Status add(const void *data, size_t bytes, std::string name, Access access);
  /// Takes away the buffer that begins at `data`, an empty one if there is no other; NotFound
  /// without.
  runtime::Status remove(const void *data);

  /// Sorted by address, without empty ones.
  const std::vector<Buffer> &buffers() const { return sorted; }
  /// The buffer that holds all of [address, address + bytes), or null.
  const Buffer *find(uint64_t address, uint64_t bytes) const;
  /// "48 bytes after the end of 'k' (4096 bytes)"; "no buffer is registered".
  std::string describe(uint64_t address) const;

  /// The addresses of the module's own .global and .const variables in this
  /// memory, made and initialised when first asked for and kept (with what
  /// kernels wrote there) as long as this memory lives.
  runtime::StatusOr<const std::vector<uint64_t> *> variables(const Module &module);

private:
  struct Instance;

  std::vector<Buffer> sorted;
  std::vector<Buffer> empty;                               ///< in the order in which they came
  std::map<uint64_t, std::unique_ptr<Instance>> instances; ///< by the program's id
};

} // namespace llmopt::sim

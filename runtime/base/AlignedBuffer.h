// Owned memory that starts at a 64-byte boundary, for parameter blocks, scratch and arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace llmopt::runtime {

/// Memory at a boundary of `alignment` bytes (a power of two up to 2 MiB), to be given to
/// std::free. Large blocks ask the system for huge pages: rows of a paged cache lie far
/// apart, and each page of 4 KiB is a walk of the page table. May throw bad_alloc.
void *allocateAligned(size_t bytes, size_t alignment = 64);

class AlignedBuffer {
public:
  static constexpr size_t kAlignment = 64;

  AlignedBuffer() = default;
  /// May throw bad_alloc.
  explicit AlignedBuffer(size_t bytes)
      : memory(bytes ? static_cast<uint8_t *>(allocateAligned(bytes)) : nullptr), bytes(bytes) {}

  uint8_t *data() const { return memory.get(); }
  size_t size() const { return bytes; }

private:
  struct Free {
    void operator()(uint8_t *p) const { std::free(p); }
  };

  std::unique_ptr<uint8_t, Free> memory;
  size_t bytes = 0;
};

} // namespace llmopt::runtime

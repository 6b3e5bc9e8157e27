// Memory aligned to a cache line, uninitialised, freed at the end of its scope.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace llmopt::runtime {

class AlignedBuffer {
public:
  static constexpr size_t kAlignment = 64;

  AlignedBuffer() = default;
  /// May throw bad_alloc.
  explicit AlignedBuffer(size_t bytes)
      : memory(bytes ? static_cast<uint8_t *>(::operator new(bytes, std::align_val_t(kAlignment)))
                     : nullptr),
        bytes(bytes) {}

  uint8_t *data() const { return memory.get(); }
  size_t size() const { return bytes; }

private:
  struct Free {
    void operator()(uint8_t *p) const { ::operator delete(p, std::align_val_t(kAlignment)); }
  };

  std::unique_ptr<uint8_t, Free> memory;
  size_t bytes = 0;
};

} // namespace llmopt::runtime

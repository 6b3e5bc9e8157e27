// Allocator of arrays that are read at random places: a pool of a million pages has
// 20 MiB of counts alone, and with the system's small pages nearly each look at it would
// miss the translation cache as well.
#pragma once

#include "runtime/base/AlignedBuffer.h"

#include <memory>

namespace llmopt::runtime::kv {

template <typename T> struct LargePages {
  using value_type = T;

  LargePages() = default;
  template <typename U> LargePages(const LargePages<U> &) {}

  T *allocate(size_t count) {
    constexpr size_t kLarge = size_t{256} << 10, kHugePage = size_t{2} << 20;
    size_t bytes = count * sizeof(T);
    return static_cast<T *>(allocateAligned(bytes, bytes < kLarge ? 64 : kHugePage));
  }
  void deallocate(T *memory, size_t) { std::free(memory); }
  bool operator==(const LargePages &) const { return true; }
};

/// Such an array, not initialised: what is not used costs nothing.
template <typename T> class LargeArray {
public:
  LargeArray() = default;
  explicit LargeArray(size_t size) : memory(LargePages<T>().allocate(size)), count(size) {}
  T *data() { return memory.get(); }
  const T *data() const { return memory.get(); }
  size_t size() const { return count; }

private:
  struct Free {
    void operator()(T *memory) const { std::free(memory); }
  };
  std::unique_ptr<T[], Free> memory;
  size_t count = 0;
};

} // namespace llmopt::runtime::kv

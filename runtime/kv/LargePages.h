// Memory for arrays that are read at random places: in pages of 2 MiB where the system
// has them. A pool of a million pages has 20 MiB of counts alone, and with pages of
// 4 KiB nearly each look at it misses the translation cache as well.
#pragma once

#include <cstddef>
#include <new>
#ifdef __linux__
#include <sys/mman.h>
#endif

namespace llmopt::runtime::kv {

template <typename T> struct LargePages {
  using value_type = T;
  static constexpr size_t kPage = size_t{2} << 20;

  LargePages() = default;
  template <typename U> LargePages(const LargePages<U> &) {}

  T *allocate(size_t count) {
    size_t bytes = count * sizeof(T);
    if (bytes < 2 * kPage)
      return static_cast<T *>(::operator new(bytes));
    void *memory = ::operator new(bytes, std::align_val_t(kPage));
#ifdef __linux__
    madvise(memory, bytes, MADV_HUGEPAGE); // a wish; without it all works as well
#endif
    return static_cast<T *>(memory);
  }
  void deallocate(T *memory, size_t count) {
    if (count * sizeof(T) < 2 * kPage)
      ::operator delete(memory);
    else
      ::operator delete(memory, std::align_val_t(kPage));
  }
  bool operator==(const LargePages &) const { return true; }
};

} // namespace llmopt::runtime::kv

// See AlignedBuffer.h.
#include "runtime/base/AlignedBuffer.h"

#include <new>
#include <sys/mman.h>

namespace llmopt::runtime {

void *allocateAligned(size_t bytes, size_t alignment) {
  constexpr size_t kHugePage = size_t(2) << 20;
  bool large = bytes >= 2 * kHugePage || alignment >= kHugePage;
  if (large)
    alignment = kHugePage;
  size_t whole = (bytes + alignment - 1) / alignment * alignment;
  void *memory = whole >= bytes ? std::aligned_alloc(alignment, whole) : nullptr;
  if (!memory)
    throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  if (large)
    (void)madvise(memory, whole, MADV_HUGEPAGE); // a wish: refused, small pages do
#endif
  return memory;
}

} // namespace llmopt::runtime

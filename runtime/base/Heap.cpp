#include "runtime/base/Heap.h"

#include <cstdlib>

namespace llmopt::runtime {

void keepFreedHeap() {
  // The greatest block that the rule heeds, less its own head and rounding.
  constexpr size_t kBytes = (size_t{32} << 20) - 8192;
  [[maybe_unused]] static const bool once = [] {
    void *volatile block = std::malloc(kBytes); // volatile: not left out as unused
    std::free(block);
    return true;
  }();
}

} // namespace llmopt::runtime

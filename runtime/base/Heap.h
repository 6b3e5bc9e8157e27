// What a process does with memory that compilers have freed.
#pragma once

namespace llmopt::runtime {

/// Compilers take and free tens of MB for each kernel. glibc gives the end of its heap back to the
/// system each time, and the next kernel faults it in again, page by page: a fortieth of its
/// compile time. After a block of nearly 32 MB was freed once, glibc keeps 64 MB (its "dynamic mmap
/// threshold", mallopt(3)). So this frees one, never touched, at the first call. Nothing changes
/// where the program has set a threshold of its own, or brings another allocator.
void keepFreedHeap();

} // namespace llmopt::runtime

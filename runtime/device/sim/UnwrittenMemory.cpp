#include "runtime/device/sim/UnwrittenMemory.h"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace llmopt::sim {

namespace {

/// The memory is this file over and over, each page copied when it is written. A system allows some
/// 65000 mappings: 16 MiB each leave room for a TiB.
constexpr size_t kChunk = size_t{16} << 20;

/// The file with every bit set; -1 where there is none.
int chunkFile() {
  static const int file = [] {
    int made = memfd_create("unwritten", MFD_CLOEXEC);
    if (made < 0)
      return -1;
    void *chunk = ftruncate(made, kChunk) == 0
                      ? mmap(nullptr, kChunk, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0)
                      : MAP_FAILED;
    if (chunk == MAP_FAILED) {
      close(made);
      return -1;
    }
    std::memset(chunk, 0xff, kChunk);
    munmap(chunk, kChunk);
    return made;
  }();
  return file;
}

size_t wholeChunks(size_t bytes) { return (bytes + kChunk - 1) / kChunk * kChunk; }

} // namespace

runtime::StatusOr<void *> mapUnwritten(size_t bytes) {
  auto refused = [&] {
    return runtime::makeStatus(runtime::StatusCode::ResourceExhausted,
                               "no {} bytes of address space: {}", bytes, std::strerror(errno));
  };
  size_t whole = wholeChunks(bytes);
  int file = chunkFile();
  if (file < 0 || whole < bytes)
    return refused();
  void *memory =
      mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return refused();
  for (size_t at = 0; at < whole; at += kChunk) {
    void *part = mmap(static_cast<char *>(memory) + at, kChunk, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, 0);
    if (part != MAP_FAILED)
      continue;
    auto status = refused();
    munmap(memory, whole);
    return status;
  }
  return memory;
}

void unmapUnwritten(void *memory, size_t bytes) noexcept { munmap(memory, wholeChunks(bytes)); }

} // namespace llmopt::sim

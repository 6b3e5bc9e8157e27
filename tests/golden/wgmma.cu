// c = a b^T by wgmma, from shared memory in each of its four layouts: block 0 without a swizzle,
// 1, 2 and 3 with those of 128, 64 and 32 bytes, as the descriptors count them. All blocks have the
// same a and b. What is kept of a card tells whether the simulator reads descriptors as it does.
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

constexpr int kRows = 64, kColumns = 16, kDepth = 64; // of a, of c, of the sum
constexpr int kChunk = 8;                             // elements of 16 bytes

struct Layout {
  int swizzle; // 0: none

  /// Elements of a row that lie together.
  __device__ int width() const { return swizzle ? kDepth >> (swizzle - 1) : kChunk; }
  /// Where the 16 bytes from element k of a row lie, in elements.
  __device__ int place(int rows, int row, int k) const {
    const int panel = k / width(), chunk = k % width() / kChunk;
    const int turn = swizzle == 0 ? 0 : row >> (swizzle - 1) & (width() / kChunk - 1);
    return panel * rows * width() + row * width() + (chunk ^ turn) * kChunk;
  }
  /// Of 16 elements of each row, from element k on.
  __device__ u64 descriptor(const u16 *tile, int rows, int k) const {
    const u64 start = static_cast<u64>(__cvta_generic_to_shared(tile)) +
                      2 * (k / width() * rows * width() + k % width());
    const u64 along = swizzle ? 16 : 2 * rows * kChunk; // bytes to the next 8 elements
    const u64 down = 2 * 8 * width();                   // bytes to the next 8 rows
    return (start & 0x3ffff) >> 4 | along >> 4 << 16 | down >> 4 << 32 | u64(swizzle) << 62;
  }
};

__device__ void fill(u16 *tile, const u16 *from, int rows, Layout layout) {
  for (int i = threadIdx.x; i < rows * kDepth / kChunk; i += blockDim.x) {
    const int row = i / (kDepth / kChunk), k = i % (kDepth / kChunk) * kChunk;
    for (int j = 0; j < kChunk; ++j)
      tile[layout.place(rows, row, k) + j] = from[row * kDepth + k + j];
  }
}

extern "C" __global__ void wgmma(const u16 *a, const u16 *b, float *out) {
  __shared__ alignas(1024) u16 first[kRows * kDepth];
  __shared__ alignas(1024) u16 second[kColumns * kDepth];
  const Layout layout = {static_cast<int>(blockIdx.x)};
  fill(first, a, kRows, layout);
  fill(second, b, kColumns, layout);
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();

  float c[8] = {};
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  for (int k = 0; k < kDepth; k += 16)
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, 1, 1, 1, 0, 0;"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]),
                   "+f"(c[6]), "+f"(c[7])
                 : "l"(layout.descriptor(first, kRows, k)),
                   "l"(layout.descriptor(second, kColumns, k)));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]),
                 "+f"(c[7])::"memory");

  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  for (int i = 0; i < 8; ++i)
    out[(blockIdx.x * kRows + row + i / 2 % 2 * 8) * kColumns + column + i / 4 * 8 + i % 2] = c[i];
}

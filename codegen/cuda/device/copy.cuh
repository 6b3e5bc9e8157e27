// Copies from global to shared memory that run by themselves (cp.async).

// Copies `bytes` (0 .. 16) bytes and fills up with zeros; with 0 bytes nothing is read.
__device__ __forceinline__ void copy_chunk(u32 to, const void *from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

// Ends a group of copies; waits count groups.
__device__ __forceinline__ void copy_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most PENDING groups of this thread are under way.
template <int PENDING> __device__ __forceinline__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Begins to copy ROWS rows of COLUMNS elements; the tile's padding becomes zero. A row is
// shared by LANES neighbouring lanes; thread `t` has the addresses of its rows, -1 for a
// row of zeros. Rows that are not contiguous, or not at a multiple of 16 bytes, are copied
// element by element.
template <typename T, int ROWS, int COLUMNS, int LANES, int WARPS, int N, int PITCH, int SPAN>
__device__ __forceinline__ void copy_rows(shared_tile<PITCH, SPAN> to, const T *from,
                                          const i64 (&rows)[N], i64 stride, int columns = COLUMNS) {
  constexpr int run = 16 / sizeof(T), rows_at_once = 32 / LANES * WARPS;
  constexpr int padded_rows = (ROWS + 15) / 16 * 16;
  const int first = threadIdx.x / LANES, lane = threadIdx.x % LANES;
  bool whole = stride == 1;
#pragma unroll
  for (int i = 0; i < N; ++i)
    whole &= rows[i] < 0 || (u64(from + rows[i]) & 15) == 0;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int row = first + i * rows_at_once;
    if (row >= padded_rows)
      break;
    const bool used = row < ROWS && rows[i] >= 0;
    const T *source = from + (used ? rows[i] : 0);
    if (whole) {
#pragma unroll
      for (int j = 0; j < PITCH / 16 / LANES; ++j) {
        const int chunk = lane + j * LANES, left = (columns - chunk * run) * int(sizeof(T));
        copy_chunk(to.at(row, chunk), source + (left > 0 ? chunk * run : 0),
                   used && left > 0 ? (left < 16 ? left : 16) : 0);
      }
    } else {
#pragma unroll 1
      for (int column = lane; column < PITCH / int(sizeof(T)); column += LANES)
        store_shared(element_at<T>(to, row, column),
                     used && column < columns ? source[column * stride] : T{});
    }
  }
}

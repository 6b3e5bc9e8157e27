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

// Copies one element, or a zero for one that is not present and not read. Where rows are not at
// multiples of 16 bytes, all goes this way; one statement, since a branch costs NVRTC more.
template <typename T>
__device__ __forceinline__ void copy_element(u32 to, const T *from, bool present) {
  if constexpr (sizeof(T) == 2)
    asm volatile("{.reg .pred p;\n.reg .b16 x;\n"
                 "setp.ne.s32 p, %2, 0;\nmov.b16 x, 0;\n"
                 "@p ld.global.b16 x, [%1];\nst.shared.b16 [%0], x;}" ::"r"(to),
                 "l"(from), "r"(int(present))
                 : "memory");
  else
    asm volatile("{.reg .pred p;\n.reg .b32 x;\n"
                 "setp.ne.s32 p, %2, 0;\nmov.b32 x, 0;\n"
                 "@p ld.global.b32 x, [%1];\nst.shared.b32 [%0], x;}" ::"r"(to),
                 "l"(from), "r"(int(present))
                 : "memory");
}

// Begins to copy row `row` of COLUMNS elements from `at` on, with LANES neighbouring lanes; zeros
// where it is not present, and in the tile's padding. Elements are `stride` apart. A row that is
// not contiguous, or not at a multiple of 16 bytes, is copied element by element.
template <typename T, int COLUMNS, int LANES, int PITCH, int SPAN>
__device__ __forceinline__ void copy_one_row(shared_tile<PITCH, SPAN> to, int row, const T *from,
                                             bool present, i64 at, i64 stride = 1,
                                             int columns = COLUMNS) {
  constexpr int run = 16 / sizeof(T);
  const int lane = threadIdx.x % LANES;
  const T *source = from + at;
  if (stride != 1 || u64(source) % 16 != 0) {
    const int used = present ? columns : 0;
#pragma unroll 1
    for (int column = lane; column < PITCH / int(sizeof(T)); column += LANES)
      copy_element(element_at<T>(to, row, column), source + column * stride, column < used);
    return;
  }
  const bool full = COLUMNS * int(sizeof(T)) == PITCH && columns >= COLUMNS;
#pragma unroll
  for (int j = 0; j < PITCH / 16 / LANES; ++j) {
    const int chunk = lane + j * LANES, left = (columns - chunk * run) * int(sizeof(T));
    const bool some = full || left > 0;
    copy_chunk(to.at(row, lane, 0, j * LANES), source + lane * run + (some ? j * LANES * run : 0),
               present && some ? (full || left > 16 ? 16 : left) : 0);
  }
}

// The same for a row of each of two arrays, both whole and contiguous, both present or not: of K
// and V. One question and one slow way for both take a fiftieth of a kernel's compile time less.
template <typename T, int COLUMNS, int LANES, int PITCH, int SPAN>
__device__ __forceinline__ void
copy_two_rows(shared_tile<PITCH, SPAN> to, shared_tile<PITCH, SPAN> other_to, int row,
              const T *from, i64 at, const T *other_from, i64 other_at, bool present) {
  constexpr int run = 16 / sizeof(T);
  const int lane = threadIdx.x % LANES;
  const T *source = from + at, *other_source = other_from + other_at;
  if ((u64(source) | u64(other_source)) % 16 != 0) {
    const int used = present ? COLUMNS : 0;
#pragma unroll 1
    for (int column = lane; column < PITCH / int(sizeof(T)); column += LANES) {
      const u32 address = element_at<T>(to, row, column);
      copy_element(address, source + column, column < used);
      copy_element(address + (other_to.base - to.base), other_source + column, column < used);
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < PITCH / 16 / LANES; ++j) {
    const int left = (COLUMNS - (lane + j * LANES) * run) * int(sizeof(T));
    const bool some = COLUMNS * int(sizeof(T)) == PITCH || left > 0;
    const int bytes = present && some ? minimum(left, 16) : 0;
    const int further = lane * run + (some ? j * LANES * run : 0);
    copy_chunk(to.at(row, lane, 0, j * LANES), source + further, bytes);
    copy_chunk(other_to.at(row, lane, 0, j * LANES), other_source + further, bytes);
  }
}

// Addresses of the rows that a thread copies, as one argument.
template <int N> struct row_list {
  i64 at[N];
};

// The slow way of copy_rows. Its text exists once for all copies of a kernel and all rows of a
// thread: addresses move up as rows are done.
template <typename T, int ROWS, int LANES, int WARPS, int N, int PITCH, int SPAN>
__device__ __noinline__ void copy_elements(u32 base, const T *from, row_list<N> rest, i64 stride,
                                           int columns) {
  constexpr int padded_rows = (ROWS + 15) / 16 * 16;
  const shared_tile<PITCH, SPAN> to = {base};
#pragma unroll 1
  for (int row = threadIdx.x / LANES; row < padded_rows; row += 32 / LANES * WARPS) {
    const bool used = row < ROWS && rest.at[0] >= 0;
    const T *source = from + (used ? rest.at[0] : 0);
#pragma unroll 1
    for (int column = threadIdx.x % LANES; column < PITCH / int(sizeof(T)); column += LANES)
      store_shared(element_at<T>(to, row, column),
                   used && column < columns ? source[column * stride] : T{});
#pragma unroll
    for (int i = 0; i + 1 < N; ++i)
      rest.at[i] = rest.at[i + 1];
  }
}

// Begins to copy ROWS rows of COLUMNS elements; the tile's padding becomes zero. A row is
// shared by LANES neighbouring lanes; each thread has the addresses of its own rows, -1 for
// a row of zeros. Elements of a row are `stride` apart. Rows that are not contiguous, or not at a
// multiple of 16 bytes, are copied element by element.
template <typename T, int ROWS, int COLUMNS, int LANES, int WARPS, int N, int PITCH, int SPAN>
__device__ __forceinline__ void copy_rows(shared_tile<PITCH, SPAN> to, const T *from,
                                          const i64 (&rows)[N], i64 stride = 1,
                                          int columns = COLUMNS) {
  constexpr int run = 16 / sizeof(T), rows_at_once = 32 / LANES * WARPS;
  constexpr int padded_rows = (ROWS + 15) / 16 * 16;
  const int first = threadIdx.x / LANES, lane = threadIdx.x % LANES;
  row_list<N> list;
  const T *source[N];
  u32 low_bits = 0; // of all addresses
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const bool inside = N * rows_at_once <= ROWS || first + i * rows_at_once < ROWS;
    list.at[i] = inside ? rows[i] : -1; // a row beyond the tile has no address
    source[i] = from + lane * run + maximum(list.at[i], i64(0));
    low_bits |= u32(u64(source[i]));
  }
  if (stride != 1 || low_bits % 16 != 0) {
    copy_elements<T, ROWS, LANES, WARPS, N, PITCH, SPAN>(to.base, from, list, stride, columns);
    return;
  }
  const bool full = COLUMNS * int(sizeof(T)) == PITCH && columns >= COLUMNS;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int row = first + i * rows_at_once;
    if (N * rows_at_once > padded_rows && row >= padded_rows)
      break;
    const bool used = list.at[i] >= 0;
#pragma unroll
    for (int j = 0; j < PITCH / 16 / LANES; ++j) {
      const int chunk = lane + j * LANES, left = (columns - chunk * run) * int(sizeof(T));
      const bool some = full || left > 0;
      copy_chunk(to.at(first, lane, i * rows_at_once, j * LANES),
                 source[i] + (some ? j * LANES * run : 0),
                 used && some ? (full || left > 16 ? 16 : left) : 0);
    }
  }
}

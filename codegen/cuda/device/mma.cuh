// Matrix products on tensor cores: mma.sync.m16n8k16 with operands from shared memory by
// ldmatrix. Fragments as in the PTX ISA.

template <typename T> __device__ __forceinline__ void mma(float *c, const u32 *a, u32 b0, u32 b1);

// For each T16: bf16; f16
template <> __device__ __forceinline__ void mma<T16>(float *c, const u32 *a, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.T16.T16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 x 8 matrices; lane 8 i + r gives the address of row r of matrix i.
__device__ __forceinline__ void load_matrices(u32 *m, u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}

// Addresses of the chunks 0, 2, 4, ... of a turn of the swizzle, counted from a lane's own; all
// others are constants further on.
template <int PITCH, int SPAN> struct chunk_addresses {
  u32 near[SPAN < 2 ? 1 : SPAN / 2];
  __device__ __forceinline__ void set(shared_tile<PITCH, SPAN> tile, int row, int chunk) {
#pragma unroll
    for (int i = 0; i < (SPAN < 2 ? 1 : SPAN / 2); ++i)
      near[i] = hidden(tile.at(row, chunk + i * 2));
  }
  // `rows` is a multiple of 8, `chunks` of 2.
  __device__ __forceinline__ u32 at(int rows, int chunks) const {
    return near[chunks % SPAN / 2] + (rows * PITCH + chunks / SPAN * SPAN * 16);
  }
};

// A second operand whose row n holds the factors of the product's column n. Of two steps at once,
// the other's chunks lie a turn of the swizzle further on.
template <int PITCH, int SPAN> struct by_rows {
  chunk_addresses<PITCH, SPAN> from;
  static constexpr int apart = SPAN < 2 ? 1 : SPAN / 2, further = apart * 32;
  __device__ __forceinline__ u32 at(int n, int k) const { return from.at(n * 8, k * 2); }
};

// One whose row k holds the factors of the first operand's column k.
template <int PITCH, int SPAN> struct by_columns {
  chunk_addresses<PITCH, SPAN> from;
  static constexpr int apart = 1, further = apart * 16 * PITCH;
  __device__ __forceinline__ u32 at(int n, int k) const { return from.at(k * 16, n); }
};

// For each SECOND, SHARED: by_rows, shared; by_columns, trans.shared
// Its factors of column block n, and of the next if there are two, in step k.
template <int PITCH, int SPAN>
__device__ __forceinline__ void load_two_blocks(u32 *m, const SECOND<PITCH, SPAN> &second, int n,
                                                int k) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.SHARED.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(second.at(n, k))
               : "memory");
}

// For each SECOND, SHARED: by_rows, shared; by_columns, trans.shared
template <int PITCH, int SPAN>
__device__ __forceinline__ void load_block(u32 *m, const SECOND<PITCH, SPAN> &second, int n,
                                           int k) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.SHARED.b16 {%0, %1}, [%2];"
               : "=r"(m[0]), "=r"(m[1])
               : "r"(second.at(n, k)) // of lanes 0 .. 15
               : "memory");
}

// For each SECOND, SHARED: by_rows, shared; by_columns, trans.shared
// For each T16: bf16; f16
// Step k of a product, for the columns of blocks n and n + 1. The four matrices have no other use,
// and NVRTC takes a twentieth less time for a kernel than with a statement for each instruction.
template <int PITCH, int SPAN>
__device__ __forceinline__ void load_and_mma(T16, float *c, const u32 *a,
                                             const SECOND<PITCH, SPAN> &second, int n, int k) {
  asm volatile("{.reg .b32 b<4>;\n"
               "ldmatrix.sync.aligned.m8n8.x4.SHARED.b16 {b0, b1, b2, b3}, [%12];\n"
               "mma.sync.aligned.m16n8k16.row.col.f32.T16.T16.f32 "
               "{%0, %1, %2, %3}, {%8, %9, %10, %11}, {b0, b1}, {%0, %1, %2, %3};\n"
               "mma.sync.aligned.m16n8k16.row.col.f32.T16.T16.f32 "
               "{%4, %5, %6, %7}, {%8, %9, %10, %11}, {b2, b3}, {%4, %5, %6, %7};}"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]),
                 "+f"(c[7])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(second.at(n, k))
               : "memory");
}

// For each SECOND, SHARED: by_rows, shared; by_columns, trans.shared
// For each T16: bf16; f16
// Steps k and k + apart: half as many values are passed from statement to statement, and NVRTC
// takes a twentieth less time again.
template <int PITCH, int SPAN>
__device__ __forceinline__ void load_and_mma_twice(T16, float *c, const u32 *a, const u32 *other,
                                                   const SECOND<PITCH, SPAN> &second, int n,
                                                   int k) {
  asm volatile("{.reg .b32 b<8>;\n"
               "ldmatrix.sync.aligned.m8n8.x4.SHARED.b16 {b0, b1, b2, b3}, [%16];\n"
               "ldmatrix.sync.aligned.m8n8.x4.SHARED.b16 {b4, b5, b6, b7}, [%16 + %17];\n"
               "mma.sync.aligned.m16n8k16.row.col.f32.T16.T16.f32 "
               "{%0, %1, %2, %3}, {%8, %9, %10, %11}, {b0, b1}, {%0, %1, %2, %3};\n"
               "mma.sync.aligned.m16n8k16.row.col.f32.T16.T16.f32 "
               "{%4, %5, %6, %7}, {%8, %9, %10, %11}, {b2, b3}, {%4, %5, %6, %7};\n"
               "mma.sync.aligned.m16n8k16.row.col.f32.T16.T16.f32 "
               "{%0, %1, %2, %3}, {%12, %13, %14, %15}, {b4, b5}, {%0, %1, %2, %3};\n"
               "mma.sync.aligned.m16n8k16.row.col.f32.T16.T16.f32 "
               "{%4, %5, %6, %7}, {%12, %13, %14, %15}, {b6, b7}, {%4, %5, %6, %7};}"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]),
                 "+f"(c[7])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(other[0]), "r"(other[1]),
                 "r"(other[2]), "r"(other[3]), "r"(second.at(n, k)),
                 "n"(SECOND<PITCH, SPAN>::further)
               : "memory");
}

// Where the steps of a first operand come from, M row blocks of 16 rows: registers, or shared
// memory from row `row` on. Warps may cover more rows than there are: with ROWS, blocks from there
// on are the last one once more, whose products nobody reads.
template <int M, int PITCH, int SPAN> struct first_rows {
  chunk_addresses<PITCH, SPAN> block[M];
};

template <int M, int ROWS, int N>
__device__ __forceinline__ const auto &first_source(const u32 (&registers)[N], int) {
  return registers;
}

template <int M, int ROWS, int PITCH, int SPAN>
__device__ __forceinline__ first_rows<M, PITCH, SPAN> first_source(shared_tile<PITCH, SPAN> tile,
                                                                   int row) {
  const int lane = threadIdx.x % 32;
  first_rows<M, PITCH, SPAN> rows;
#pragma unroll
  for (int m = 0; m < M; ++m) {
    const int first = row + m * 16;
    rows.block[m].set(tile, (ROWS > 0 ? minimum(first, ROWS - 16) : first) + lane % 16, lane / 16);
  }
  return rows;
}

// Step k, 16 rows x 16 columns for each block: nothing to do where it is in registers, loaded into
// `a` where it is in shared memory.
template <int M, int N>
__device__ __forceinline__ void load_step(u32 (&)[M][4], const u32 (&)[N], int) {}

template <int M, int PITCH, int SPAN>
__device__ __forceinline__ void load_step(u32 (&a)[M][4], const first_rows<M, PITCH, SPAN> &rows,
                                          int k) {
#pragma unroll
  for (int m = 0; m < M; ++m)
    load_matrices(a[m], rows.block[m].at(0, k * 2));
}

// The registers of block m of that step. None is copied: NVRTC would take a fiftieth more time.
template <int M, int K, int N>
__device__ __forceinline__ const u32 *step_of(const u32 (&)[M][4], const u32 (&registers)[N], int k,
                                              int m) {
  static_assert(N == 4 * M * K, "a fragment has 4 registers a step");
  return registers + (m * K + k) * 4;
}

template <int M, int K, int PITCH, int SPAN>
__device__ __forceinline__ const u32 *step_of(const u32 (&a)[M][4],
                                              const first_rows<M, PITCH, SPAN> &, int, int m) {
  return a[m];
}

// A whole first operand into registers.
template <int M, int K, int ROWS = 0, int PITCH, int SPAN>
__device__ __forceinline__ void load_first_operand(u32 (&registers)[4 * M * K],
                                                   shared_tile<PITCH, SPAN> tile, int row) {
  const first_rows<M, PITCH, SPAN> rows = first_source<M, ROWS>(tile, row);
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int m = 0; m < M; ++m)
      load_matrices(registers + (m * K + k) * 4, rows.block[m].at(0, k * 2));
}

// c += a * second for M blocks of 16 rows, N blocks of 8 columns, K steps of 16. `row` is the
// warp's first row of a, if that is in shared memory, and ROWS its rows if the warps cover more.
template <typename T, int M, int N, int K, int ROWS, typename First, typename Second>
__device__ __forceinline__ void multiply(float (&c)[M * N * 4], const First &a,
                                         const Second &second, int row) {
  const auto &source = first_source<M, ROWS>(a, row);
  constexpr int apart = Second::apart,
                paired = M == 1 && N % 2 == 0 ? K / (2 * apart) * 2 * apart : 0;
  if constexpr (paired > 0) {
#pragma unroll
    for (int i = 0; i < paired / 2; ++i) {
      const int k = i / apart * 2 * apart + i % apart;
      u32 loaded[M][4], other[M][4];
      load_step(loaded, source, k);
      load_step(other, source, k + apart);
#pragma unroll
      for (int n = 0; n < N; n += 2)
        load_and_mma_twice(T{}, &c[n * 4], step_of<M, K>(loaded, source, k, 0),
                           step_of<M, K>(other, source, k + apart, 0), second, n, k);
    }
  }
  if constexpr (paired < K) {
#pragma unroll
    for (int k = paired; k < K; ++k) {
      u32 loaded[M][4];
      load_step(loaded, source, k);
#pragma unroll
      for (int n = 0; n + 1 < N; n += 2) {
        if constexpr (M == 1) {
          load_and_mma(T{}, &c[n * 4], step_of<M, K>(loaded, source, k, 0), second, n, k);
        } else {
          u32 factors[4];
          load_two_blocks(factors, second, n, k);
#pragma unroll
          for (int m = 0; m < M; ++m) {
            const u32 *first = step_of<M, K>(loaded, source, k, m);
            mma<T>(&c[(m * N + n) * 4], first, factors[0], factors[1]);
            mma<T>(&c[(m * N + n + 1) * 4], first, factors[2], factors[3]);
          }
        }
      }
      if constexpr (N % 2 != 0) {
        u32 factors[2];
        load_block(factors, second, N - 1, k);
#pragma unroll
        for (int m = 0; m < M; ++m)
          mma<T>(&c[(m * N + N - 1) * 4], step_of<M, K>(loaded, source, k, m), factors[0],
                 factors[1]);
      }
    }
  }
}

// c += a * b^T: row n of b holds column n of the product.
template <typename T, int M, int N, int K, int ROWS = 0, typename First, int PITCH, int SPAN>
__device__ __forceinline__ void product_transposed(float (&c)[M * N * 4], const First &a,
                                                   shared_tile<PITCH, SPAN> b, int row = 0) {
  const int lane = threadIdx.x % 32;
  by_rows<PITCH, SPAN> second;
  second.from.set(b, lane % 8 + lane / 16 * 8, lane / 8 % 2);
  multiply<T, M, N, K, ROWS>(c, a, second, row);
}

// The lane's number, as a new value for each product: the compiler would else keep all
// addresses of the product in registers through the loop.
__device__ __forceinline__ int lane_for_addresses() {
  int lane = threadIdx.x % 32;
  asm volatile("" : "+r"(lane));
  return lane;
}

// c += a * b: row k of b holds the factors of column k of a.
template <typename T, int M, int N, int K, int ROWS = 0, typename First, int PITCH, int SPAN>
__device__ __forceinline__ void product(float (&c)[M * N * 4], const First &a,
                                        shared_tile<PITCH, SPAN> b, int row = 0) {
  const int lane = lane_for_addresses();
  by_columns<PITCH, SPAN> second;
  second.from.set(b, lane % 16, lane / 16);
  multiply<T, M, N, K, ROWS>(c, a, second, row);
}

// Matrix products on tensor cores: mma.sync.m16n8k16 with operands from shared memory by
// ldmatrix. Fragments as in the PTX ISA.

template <typename T> __device__ __forceinline__ void mma(float *c, const u32 *a, u32 b0, u32 b1);

template <> __device__ __forceinline__ void mma<bf16>(float *c, const u32 *a, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <> __device__ __forceinline__ void mma<f16>(float *c, const u32 *a, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 x 8 matrices; lane 8 i + r gives the address of row r of matrix i.
__device__ __forceinline__ void load_matrices(u32 (&m)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void load_matrices(u32 (&m)[2], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(m[0]), "=r"(m[1])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void load_transposed(u32 (&m)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void load_transposed(u32 (&m)[2], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(m[0]), "=r"(m[1])
               : "r"(address)
               : "memory");
}

// 16 columns: both steps for one block of rows. The four matrices have no other use, and NVRTC
// takes a twentieth less time for a kernel than with a statement for each instruction.
template <typename T>
__device__ __forceinline__ void load_and_mma(float *c, const u32 *a, u32 address);

template <>
__device__ __forceinline__ void load_and_mma<bf16>(float *c, const u32 *a, u32 address) {
  asm volatile("{.reg .b32 b<4>;\n"
               "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {b0, b1, b2, b3}, [%12];\n"
               "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%8, %9, %10, %11}, {b0, b1}, {%0, %1, %2, %3};\n"
               "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%4, %5, %6, %7}, {%8, %9, %10, %11}, {b2, b3}, {%4, %5, %6, %7};}"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]),
                 "+f"(c[7])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(address)
               : "memory");
}

template <> __device__ __forceinline__ void load_and_mma<f16>(float *c, const u32 *a, u32 address) {
  asm volatile("{.reg .b32 b<4>;\n"
               "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {b0, b1, b2, b3}, [%12];\n"
               "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
               "{%0, %1, %2, %3}, {%8, %9, %10, %11}, {b0, b1}, {%0, %1, %2, %3};\n"
               "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
               "{%4, %5, %6, %7}, {%8, %9, %10, %11}, {b2, b3}, {%4, %5, %6, %7};}"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]),
                 "+f"(c[7])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(address)
               : "memory");
}

template <typename T>
__device__ __forceinline__ void load_transposed_and_mma(float *c, const u32 *a, u32 address);

template <>
__device__ __forceinline__ void load_transposed_and_mma<bf16>(float *c, const u32 *a, u32 address) {
  asm volatile("{.reg .b32 b<4>;\n"
               "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {b0, b1, b2, b3}, [%12];\n"
               "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%8, %9, %10, %11}, {b0, b1}, {%0, %1, %2, %3};\n"
               "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%4, %5, %6, %7}, {%8, %9, %10, %11}, {b2, b3}, {%4, %5, %6, %7};}"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]),
                 "+f"(c[7])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(address)
               : "memory");
}

template <>
__device__ __forceinline__ void load_transposed_and_mma<f16>(float *c, const u32 *a, u32 address) {
  asm volatile("{.reg .b32 b<4>;\n"
               "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {b0, b1, b2, b3}, [%12];\n"
               "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
               "{%0, %1, %2, %3}, {%8, %9, %10, %11}, {b0, b1}, {%0, %1, %2, %3};\n"
               "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
               "{%4, %5, %6, %7}, {%8, %9, %10, %11}, {b2, b3}, {%4, %5, %6, %7};}"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]),
                 "+f"(c[7])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(address)
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

// Step k: 16 rows x 16 columns for each block.
template <int M, int K, int N>
__device__ __forceinline__ void first_operand(u32 (&a)[M][4], const u32 (&registers)[N], int k) {
  static_assert(N == 4 * M * K, "a fragment has 4 registers a step");
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      a[m][i] = registers[(m * K + k) * 4 + i];
}

template <int M, int K, int PITCH, int SPAN>
__device__ __forceinline__ void first_operand(u32 (&a)[M][4],
                                              const first_rows<M, PITCH, SPAN> &rows, int k) {
#pragma unroll
  for (int m = 0; m < M; ++m)
    load_matrices(a[m], rows.block[m].at(0, k * 2));
}

// A whole first operand into registers.
template <int M, int K, int ROWS = 0, int PITCH, int SPAN>
__device__ __forceinline__ void load_first_operand(u32 (&registers)[4 * M * K],
                                                   shared_tile<PITCH, SPAN> tile, int row) {
  const first_rows<M, PITCH, SPAN> rows = first_source<M, ROWS>(tile, row);
#pragma unroll
  for (int k = 0; k < K; ++k) {
    u32 a[M][4];
    first_operand<M, K>(a, rows, k);
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        registers[(m * K + k) * 4 + i] = a[m][i];
  }
}

// c += a * b^T for M blocks of 16 rows, N blocks of 8 columns, K steps of 16. Row n of b
// holds column n of the product. `row` is the warp's first row of a, if that is in shared
// memory, and ROWS its rows if the warps cover more.
template <typename T, int M, int N, int K, int ROWS = 0, typename First, int PITCH, int SPAN>
__device__ __forceinline__ void product_transposed(float (&c)[M * N * 4], const First &a,
                                                   shared_tile<PITCH, SPAN> b, int row = 0) {
  const int lane = threadIdx.x % 32;
  const auto &source = first_source<M, ROWS>(a, row);
  chunk_addresses<PITCH, SPAN> second_at;
  second_at.set(b, lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
  for (int k = 0; k < K; ++k) {
    u32 first[M][4];
    first_operand<M, K>(first, source, k);
#pragma unroll
    for (int n = 0; n + 1 < N; n += 2) {
      const u32 address = second_at.at(n * 8, k * 2);
      if constexpr (M == 1) {
        load_and_mma<T>(&c[n * 4], first[0], address);
      } else {
        u32 second[4];
        load_matrices(second, address);
#pragma unroll
        for (int m = 0; m < M; ++m) {
          mma<T>(&c[(m * N + n) * 4], first[m], second[0], second[1]);
          mma<T>(&c[(m * N + n + 1) * 4], first[m], second[2], second[3]);
        }
      }
    }
    if (N % 2) {
      u32 second[2]; // at the addresses of lanes 0 .. 15
      load_matrices(second, second_at.at((N - 1) * 8, k * 2));
#pragma unroll
      for (int m = 0; m < M; ++m)
        mma<T>(&c[(m * N + N - 1) * 4], first[m], second[0], second[1]);
    }
  }
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
  const auto &source = first_source<M, ROWS>(a, row);
  chunk_addresses<PITCH, SPAN> second_at;
  second_at.set(b, lane % 16, lane / 16);
#pragma unroll
  for (int k = 0; k < K; ++k) {
    u32 first[M][4];
    first_operand<M, K>(first, source, k);
#pragma unroll
    for (int n = 0; n + 1 < N; n += 2) {
      const u32 address = second_at.at(k * 16, n);
      if constexpr (M == 1) {
        load_transposed_and_mma<T>(&c[n * 4], first[0], address);
      } else {
        u32 second[4];
        load_transposed(second, address);
#pragma unroll
        for (int m = 0; m < M; ++m) {
          mma<T>(&c[(m * N + n) * 4], first[m], second[0], second[1]);
          mma<T>(&c[(m * N + n + 1) * 4], first[m], second[2], second[3]);
        }
      }
    }
    if (N % 2) {
      u32 second[2]; // at the addresses of lanes 0 .. 15
      load_transposed(second, second_at.at(k * 16, N - 1));
#pragma unroll
      for (int m = 0; m < M; ++m)
        mma<T>(&c[(m * N + N - 1) * 4], first[m], second[0], second[1]);
    }
  }
}

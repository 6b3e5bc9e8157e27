// Matrix products on the plain units, all operands in shared memory. A warp is 4 rows x 8
// columns of threads; a thread has rows `row` + 4 m.

// Four neighbouring elements as floats.
template <typename T> __device__ __forceinline__ void load_four(float (&y)[4], u32 address) {
  u32 low, high;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
               : "=r"(low), "=r"(high)
               : "r"(address)
               : "memory");
  y[0] = to_f32(unpack<T>(low, 0)), y[1] = to_f32(unpack<T>(low, 1));
  y[2] = to_f32(unpack<T>(high, 0)), y[3] = to_f32(unpack<T>(high, 1));
}

template <> __device__ __forceinline__ void load_four<float>(float (&y)[4], u32 address) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(y[0]), "=f"(y[1]), "=f"(y[2]), "=f"(y[3])
               : "r"(address)
               : "memory");
}

// c += a * b^T over K elements; the thread's columns are lane % 8 + 8 n.
template <typename T, int M, int N, int K, int ROWS, int PA, int SA, int PB, int SB>
__device__ __forceinline__ void plain_product_transposed(float (&c)[M * N], shared_tile<PA, SA> a,
                                                         shared_tile<PB, SB> b, int row) {
  constexpr int run = 16 / sizeof(T);
  const int column = threadIdx.x % 8;
#pragma unroll 1
  for (int chunk = 0; chunk < (K + run - 1) / run; ++chunk) {
    float x[M][run];
#pragma unroll
    for (int m = 0; m < M; ++m)
      load_chunk<T>(x[m], a.at(minimum(row + 4 * m, ROWS - 1), chunk));
#pragma unroll
    for (int n = 0; n < N; ++n) {
      float y[run];
      load_chunk<T>(y, b.at(column + 8 * n, chunk));
#pragma unroll
      for (int m = 0; m < M; ++m)
#pragma unroll
        for (int i = 0; i < run; ++i)
          c[m * N + n] = fmaf(x[m][i], y[i], c[m * N + n]);
    }
  }
}

// c += a * b over K elements; the thread's columns are 4 (lane % 8) + 32 n, four each.
template <typename T, int M, int N, int K, int ROWS, int PA, int SA, int PB, int SB>
__device__ __forceinline__ void plain_product(float (&c)[M * N * 4], shared_tile<PA, SA> a,
                                              shared_tile<PB, SB> b, int row) {
  constexpr int run = 16 / sizeof(T);
  const int column = threadIdx.x % 8 * 4;
#pragma unroll 2
  for (int k = 0; k < K; ++k) {
    float x[M];
#pragma unroll
    for (int m = 0; m < M; ++m)
      x[m] = to_f32(load_shared<T>(element_at<T>(a, minimum(row + 4 * m, ROWS - 1), k)));
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if ((column + 32 * n) / run >= PB / 16)
        break;
      float y[4];
      load_four<T>(y, element_at<T>(b, k, column + 32 * n));
#pragma unroll
      for (int m = 0; m < M; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          c[(m * N + n) * 4 + i] = fmaf(x[m], y[i], c[(m * N + n) * 4 + i]);
    }
  }
}

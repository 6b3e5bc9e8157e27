// Rows of memory: where they lie, and single elements of them.

// Page of key `key` + `row` in a page table, -1 from `count` on and for absent pages.
template <int PAGE>
__device__ __forceinline__ int page_of(const int *table, i64 base, i64 key, int row, int count) {
  return row < count ? table[base + (u32(key) + row) / PAGE] : -1;
}

// Address of key `key` + `row` through a page table, -1 from `count` on and in absent pages.
template <int PAGE>
__device__ __forceinline__ i64 paged_row(const int *table, i64 base, i64 key, int row, int count,
                                         i64 offset, i64 page_stride, i64 slot_stride) {
  const int page = page_of<PAGE>(table, base, key, row, count);
  return page < 0 ? -1 : offset + page * page_stride + (u32(key) + row) % PAGE * slot_stride;
}

// 16 bytes of memory from elements of shared memory, which may be floats that are rounded.
template <typename T, typename F, int PITCH, int SPAN>
__device__ __forceinline__ void store_run(T *to, shared_tile<PITCH, SPAN> from, int row,
                                          int column) {
  const int chunk = column * int(sizeof(F)) / 16;
  if constexpr (sizeof(T) == sizeof(F)) {
    store_chunk(to, from.at(row, chunk));
  } else {
    float low[4], high[4];
    load_chunk<F>(low, from.at(row, chunk));
    load_chunk<F>(high, from.at(row, chunk + 1));
    *reinterpret_cast<uint4 *>(to) =
        make_uint4(pack<T>(low[0], low[1]), pack<T>(low[2], low[3]), pack<T>(high[0], high[1]),
                   pack<T>(high[2], high[3]));
  }
}

// Stores ROWS rows of COLUMNS elements F of shared memory as T. A row is shared by LANES
// neighbouring lanes; each thread has the addresses of its own rows, -1 for one that is not
// stored. 16 bytes at a time where a row is contiguous and at a multiple of 16 bytes.
template <typename T, typename F, int ROWS, int COLUMNS, int LANES, int WARPS, int N, int PITCH,
          int SPAN>
__device__ __forceinline__ void store_rows(T *to, const i64 (&rows)[N], i64 stride,
                                           shared_tile<PITCH, SPAN> from) {
  constexpr int run = 16 / sizeof(T);
  i64 rest[N];
#pragma unroll
  for (int i = 0; i < N; ++i)
    rest[i] = rows[i];
#pragma unroll 1
  for (int row = threadIdx.x / LANES; row < ROWS; row += 32 / LANES * WARPS) {
    T *target = to + rest[0];
    const bool whole = stride == 1 && (u64(target) & 15) == 0;
    const int columns = rest[0] < 0 ? 0 : COLUMNS;
#pragma unroll 1
    for (int first = threadIdx.x % LANES * run; first < columns; first += LANES * run) {
      if (whole && first + run <= COLUMNS) {
        store_run<T, F>(target + first, from, row, first);
        continue;
      }
#pragma unroll 1
      for (int i = 0; i < run && first + i < COLUMNS; ++i)
        target[(first + i) * stride] =
            narrow_to<T>(to_f32(load_shared<F>(element_at<F>(from, row, first + i))));
    }
#pragma unroll
    for (int i = 0; i + 1 < N; ++i)
      rest[i] = rest[i + 1];
  }
}

// Four elements of 16 bits, `bytes` apart, of two pairs; one statement, which NVRTC takes less time
// for.
__device__ __forceinline__ void store_apart(void *to, i64 bytes, u32 low, u32 high) {
  asm volatile("{.reg .b16 x<4>;\n.reg .b64 at<3>;\n"
               "mov.b32 {x0, x1}, %2;\nmov.b32 {x2, x3}, %3;\n"
               "add.s64 at0, %0, %1;\nadd.s64 at1, at0, %1;\nadd.s64 at2, at1, %1;\n"
               "st.global.b16 [%0], x0;\nst.global.b16 [at0], x1;\n"
               "st.global.b16 [at1], x2;\nst.global.b16 [at2], x3;}" ::"l"(to),
               "l"(bytes), "r"(low), "r"(high)
               : "memory");
}

// Four neighbouring elements at `to`, `stride` apart; one store where that can be.
template <typename T>
__device__ __forceinline__ void store_four(T *to, i64 stride, float a, float b, float c, float d) {
  const u32 low = pack<T>(a, b), high = pack<T>(c, d);
  if (stride == 1 && u64(to) % (4 * sizeof(T)) == 0)
    *reinterpret_cast<uint2 *>(to) = make_uint2(low, high);
  else
    store_apart(to, stride * i64(sizeof(T)), low, high);
}

template <>
__device__ __forceinline__ void store_four<float>(float *to, i64 stride, float a, float b, float c,
                                                  float d) {
  if (stride == 1 && u64(to) % 16 == 0) {
    *reinterpret_cast<float4 *>(to) = make_float4(a, b, c, d);
  } else {
    to[0] = a, to[stride] = b;
    to[2 * stride] = c, to[3 * stride] = d;
  }
}

// Four neighbouring floats at `to`, a multiple of 16 bytes.
__device__ __forceinline__ void store_aligned(float *to, float a, float b, float c, float d) {
  *reinterpret_cast<float4 *>(to) = make_float4(a, b, c, d);
}

// Two neighbouring elements at `to` and `to + stride`; one store where that can be.
template <typename T>
__device__ __forceinline__ void store_pair(T *to, i64 stride, float first, float second) {
  if (stride == 1 && (u64(to) & 3) == 0) {
    *reinterpret_cast<u32 *>(to) = pack<T>(first, second);
  } else {
    to[0] = narrow_to<T>(first);
    to[stride] = narrow_to<T>(second);
  }
}

template <>
__device__ __forceinline__ void store_pair<float>(float *to, i64 stride, float first,
                                                  float second) {
  if (stride == 1 && (u64(to) & 7) == 0) {
    *reinterpret_cast<float2 *>(to) = make_float2(first, second);
  } else {
    to[0] = first;
    to[stride] = second;
  }
}

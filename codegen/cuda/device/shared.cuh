// Elements of shared memory.

__device__ __forceinline__ u32 shared_address(const void *pointer) {
  return u32(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void store_shared(u32 address, float x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}

__device__ __forceinline__ void store_shared(u32 address, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

__device__ __forceinline__ void store_shared(u32 address, u32 x) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}

__device__ __forceinline__ void store_shared(u32 address, bf16 x) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(x.bits) : "memory");
}

__device__ __forceinline__ void store_shared(u32 address, f16 x) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(x.bits) : "memory");
}

template <typename T> __device__ __forceinline__ T load_shared(u32 address);

template <> __device__ __forceinline__ float load_shared<float>(u32 address) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
  return x;
}

template <> __device__ __forceinline__ bf16 load_shared<bf16>(u32 address) {
  bf16 x;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x.bits) : "r"(address) : "memory");
  return x;
}

template <> __device__ __forceinline__ f16 load_shared<f16>(u32 address) {
  f16 x;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x.bits) : "r"(address) : "memory");
  return x;
}

// The same value. The compiler is not shown how it was made: where constants are added to it, it
// would else look through all of its arithmetic at each of them, a twentieth of a kernel's compile
// time.
__device__ __forceinline__ u32 hidden(u32 value) {
  asm("" : "+r"(value));
  return value;
}

// Address of one element.
template <typename T, int PITCH, int SPAN>
__device__ __forceinline__ u32 element_at(shared_tile<PITCH, SPAN> tile, int row, int column) {
  constexpr int run = 16 / sizeof(T);
  return tile.at(row, column / run) + column % run * int(sizeof(T));
}

// The same `rows` and `columns` further on, which are constants.
template <typename T, int PITCH, int SPAN>
__device__ __forceinline__ u32 element_at(shared_tile<PITCH, SPAN> tile, int row, int column,
                                          int rows, int columns) {
  constexpr int run = 16 / sizeof(T), turn = SPAN * run;
  const int near = column + columns % turn;
  return tile.at(row, near / run, rows, columns / turn * SPAN) + near % run * int(sizeof(T));
}

// A thread's elements of a tile whose rows are not turned: all are constants from its first one.
template <typename T, int PITCH> struct element_addresses {
  u32 first;
  __device__ __forceinline__ u32 at(int rows, int columns) const {
    return first + (rows * PITCH + columns * int(sizeof(T)));
  }
};

template <typename T, int PITCH>
__device__ __forceinline__ element_addresses<T, PITCH> elements_from(shared_tile<PITCH, 1> tile,
                                                                     int row, int column) {
  return {hidden(element_at<T>(tile, row, column))};
}

// A thread's part of two blocks of 16 x 8 of mma's accumulators, side by side, with the first
// element at `rows` and `columns`. One statement for the four stores, which NVRTC takes less time
// for.
template <int PITCH>
__device__ __forceinline__ void store_two_blocks(element_addresses<float, PITCH> to, int rows,
                                                 int columns, const float *x) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};\n"
               "st.shared.v2.f32 [%0 + %9], {%3, %4};\n"
               "st.shared.v2.f32 [%0 + %10], {%5, %6};\n"
               "st.shared.v2.f32 [%0 + %11], {%7, %8};" ::"r"(to.at(rows, columns)),
               "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "f"(x[4]), "f"(x[5]), "f"(x[6]),
               "f"(x[7]), "n"(8 * PITCH), "n"(8 * 4), "n"(8 * PITCH + 8 * 4)
               : "memory");
}

// Element `half` of a word of memory.
template <typename T> __device__ __forceinline__ float word_to_f32(u32 word, int half) {
  return to_f32(unpack<T>(word, half));
}

template <> __device__ __forceinline__ float word_to_f32<float>(u32 word, int) {
  return __uint_as_float(word);
}

// A chunk of 16 bytes as floats.
template <typename T, int N>
__device__ __forceinline__ void load_chunk(float (&x)[N], u32 address) {
  static_assert(N == 16 / sizeof(T), "a chunk has 16 bytes");
  u32 words[4];
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
#pragma unroll
  for (int i = 0; i < N; ++i)
    x[i] = word_to_f32<T>(words[i * 4 / N], i % (N / 4));
}

// 16 bytes of shared memory to memory.
__device__ __forceinline__ void store_chunk(void *to, u32 address) {
  uint4 words;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "r"(address)
               : "memory");
  *static_cast<uint4 *>(to) = words;
}

// Writes zeros around ROWS x COLUMNS elements, up to multiples of 16 of both.
template <typename T, int ROWS, int COLUMNS, int THREADS, int PITCH, int SPAN>
__device__ __forceinline__ void clear_padding(shared_tile<PITCH, SPAN> tile) {
  constexpr int rows = (ROWS + 15) / 16 * 16, columns = PITCH / int(sizeof(T));
  for (int i = threadIdx.x; i < rows * columns; i += THREADS)
    if (i / columns >= ROWS || i % columns >= COLUMNS)
      store_shared(element_at<T>(tile, i / columns, i % columns), T{});
}

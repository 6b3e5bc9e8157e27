// Arithmetic that C++ lacks or says in too many words.

constexpr float infinity = __builtin_bit_cast(float, 0x7f800000);

constexpr float log2_e = 1.44269504f; // log2(e): exponentials are taken to base 2

constexpr float ln_2 = 0.693147181f; // ln(2): and logarithms go back

// 2 to the x, within 2 ulp.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The logarithm to base 2: an absolute error of 2^-22 below 2, a relative one above.
__device__ __forceinline__ float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Division within 2 ulp, over the full range.
__device__ __forceinline__ float divide(float x, float y) {
  float z;
  asm("div.full.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}

// NaN if either is.
__device__ __forceinline__ float max_nan(float x, float y) {
  float z;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}

__device__ __forceinline__ float min_nan(float x, float y) {
  float z;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}

template <typename T> __device__ __forceinline__ T minimum(T x, T y) { return x < y ? x : y; }

template <typename T> __device__ __forceinline__ T maximum(T x, T y) { return x > y ? x : y; }

// Rounds down, also for negative x; y is positive.
template <typename T> __device__ __forceinline__ T floor_div(T x, T y) {
  return x / y - (x % y < 0);
}

template <typename T> __device__ __forceinline__ T ceil_div(T x, T y) {
  return x / y + (x % y > 0);
}

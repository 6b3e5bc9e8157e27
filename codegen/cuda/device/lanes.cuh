// Values of other lanes; combined are those of lanes whose numbers differ in the bits of MASK.

struct combine_max {
  static __device__ __forceinline__ float identity() { return -infinity; }
  static __device__ __forceinline__ float apply(float x, float y) { return max_nan(x, y); }
};

struct combine_sum {
  static __device__ __forceinline__ float identity() { return 0.0f; }
  static __device__ __forceinline__ float apply(float x, float y) { return x + y; }
};

template <typename Combine, int MASK> __device__ __forceinline__ float over_lanes(float x) {
#pragma unroll
  for (int bit = 1; bit < 32; bit *= 2)
    if (MASK & bit)
      x = Combine::apply(x, __shfl_xor_sync(0xffffffffu, x, bit));
  return x;
}

// The value that another lane of the warp has.
template <typename T> __device__ __forceinline__ T from_lane(T x, int from) {
  return __shfl_sync(0xffffffffu, x, from);
}

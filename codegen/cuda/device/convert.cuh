// Between float formats. Narrowing rounds to nearest even.

__device__ __forceinline__ float to_f32(float x) { return x; }

__device__ __forceinline__ float to_f32(bf16 x) { return __uint_as_float(u32(x.bits) << 16); }

__device__ __forceinline__ float to_f32(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}

__device__ __forceinline__ bf16 to_bf16(float x) {
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}

__device__ __forceinline__ f16 to_f16(float x) {
  f16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}

// Two values in one register, `low` in the lower half.
template <typename T> __device__ __forceinline__ u32 pack(float low, float high);

template <> __device__ __forceinline__ u32 pack<bf16>(float low, float high) {
  u32 y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}

template <> __device__ __forceinline__ u32 pack<f16>(float low, float high) {
  u32 y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}

template <typename T> __device__ __forceinline__ u32 pack_bits(T low, T high) {
  return u32(low.bits) | u32(high.bits) << 16;
}

// Element `half` of a packed pair.
template <typename T> __device__ __forceinline__ T unpack(u32 pair, int half) {
  return T{u16(pair >> (16 * half))};
}

template <typename T> __device__ __forceinline__ T narrow_to(float x);

template <> __device__ __forceinline__ float narrow_to<float>(float x) { return x; }

template <> __device__ __forceinline__ bf16 narrow_to<bf16>(float x) { return to_bf16(x); }

template <> __device__ __forceinline__ f16 narrow_to<f16>(float x) { return to_f16(x); }

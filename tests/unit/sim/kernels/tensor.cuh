// PTX wrappers for the test kernels. Put before a kernel's text: NVRTC gets one
// string.
using bf16 = unsigned short;
using u32 = unsigned int;

constexpr int kWarp = 32;

__device__ inline u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

/// Copies 16 bytes, or fills with zeros where `valid` is false.
__device__ inline void copy_async(u32 to, const void *from, bool valid) {
  int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
__device__ inline void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Pending> __device__ inline void wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

__device__ inline void load_matrices(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ inline void load_matrices_transposed(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ inline void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
               "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline u32 round_pair(float low, float high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ inline float exp2_fast(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
__device__ inline float minus_infinity() { return __int_as_float(0xff800000); }

/// Rows of DIM elements in chunks of 16 bytes; the chunk's place depends on the
/// row, so that eight rows of a matrix lie in different banks.
__device__ inline u32 chunk_address(u32 tile, int row, int chunk) {
  return tile + (row * (DIM / 8) + (chunk ^ (row & 7))) * 16;
}

/// A running softmax of two rows of an accumulator.
struct Softmax {
  float highest[2] = {minus_infinity(), minus_infinity()};
  float sum[2] = {0, 0};

  /// Turns scores into weights and scales the output so far.
  template <int Columns, int OutColumns>
  __device__ void step(float (&score)[Columns][4], float (&out)[OutColumns][4], float scale) {
    for (int half = 0; half < 2; ++half) {
      float top = highest[half];
      for (int n = 0; n < Columns; ++n)
        top = fmaxf(top, fmaxf(score[n][2 * half], score[n][2 * half + 1]));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      float base = top == minus_infinity() ? 0.0f : top * scale;
      float shrink = exp2_fast(highest[half] * scale - base);
      highest[half] = top;
      sum[half] *= shrink;
      for (int n = 0; n < OutColumns; ++n) {
        out[n][2 * half] *= shrink;
        out[n][2 * half + 1] *= shrink;
      }
      for (int n = 0; n < Columns; ++n)
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          score[n][i] = exp2_fast(score[n][i] * scale - base);
          sum[half] += score[n][i];
        }
    }
  }

  /// Sums over the four lanes of a row.
  __device__ void finish() {
    for (int half = 0; half < 2; ++half) {
      sum[half] += __shfl_xor_sync(~0u, sum[half], 1);
      sum[half] += __shfl_xor_sync(~0u, sum[half], 2);
    }
  }
};

// C = A * B of floats with tiles that arrive asynchronously, one ahead of the one in use.
#include <cuda_pipeline.h>

constexpr int kTile = 16;

extern "C" __global__ void pipeline(const float4 *a, const float4 *b, float *c, int n) {
  __shared__ float4 left[2][kTile][kTile / 4], right[2][kTile][kTile / 4];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  auto begin = [&](int tile) {
    if (x < kTile / 4) {
      __pipeline_memcpy_async(&left[tile % 2][y][x], &a[((row + y) * n + tile * kTile) / 4 + x],
                              sizeof(float4));
      __pipeline_memcpy_async(&right[tile % 2][y][x], &b[((tile * kTile + y) * n + column) / 4 + x],
                              sizeof(float4));
    }
    __pipeline_commit();
  };
  float sum = 0;
  begin(0);
  for (int tile = 0; tile < n / kTile; ++tile) {
    if (tile + 1 < n / kTile)
      begin(tile + 1);
    else
      __pipeline_commit();
#ifdef MISTAKE
    __pipeline_wait_prior(2);
#else
    __pipeline_wait_prior(1);
#endif
    __syncthreads();
    const float *p = reinterpret_cast<const float *>(left[tile % 2][y]);
    for (int k = 0; k < kTile; ++k)
      sum += p[k] * reinterpret_cast<const float *>(right[tile % 2][k])[x];
    __syncthreads();
  }
  c[(row + y) * n + column + x] = sum;
}

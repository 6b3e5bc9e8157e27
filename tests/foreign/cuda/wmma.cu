// C = 2 A * B with the matrix units, by mma.h: A and C row by row, B column by column. A block of
// two warps makes 16 rows and 32 columns; A goes through shared memory.
#include <mma.h>

using namespace nvcuda;
constexpr int kSize = 16;

extern "C" __global__ void multiply(const half *a, const half *b, float *c, int columns,
                                    int depth) {
  __shared__ __align__(32) half tile[kSize * kSize];
  int row = blockIdx.y * kSize, column = (blockIdx.x * 2 + threadIdx.x / 32) * kSize;
  wmma::fragment<wmma::matrix_a, kSize, kSize, kSize, half, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, kSize, kSize, kSize, half, wmma::col_major> right;
  wmma::fragment<wmma::accumulator, kSize, kSize, kSize, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int k = 0; k < depth; k += kSize) {
    for (int i = threadIdx.x; i < kSize * kSize; i += blockDim.x)
      tile[i] = a[(row + i / kSize) * depth + k + i % kSize];
    __syncthreads();
    wmma::load_matrix_sync(left, tile, kSize);
    wmma::load_matrix_sync(right, b + column * depth + k, depth);
    wmma::mma_sync(sum, left, right, sum);
#ifndef MISTAKE
    __syncthreads();
#endif
  }
  for (int i = 0; i < sum.num_elements; ++i)
    sum.x[i] *= 2;
  wmma::store_matrix_sync(c + row * columns + column, sum, columns, wmma::mem_row_major);
}

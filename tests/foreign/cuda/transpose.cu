// A matrix transposed by way of tiles in shared memory, padded against bank conflicts.
constexpr int kTile = 32, kRows = 8;

extern "C" __global__ void transpose(const float *from, float *to, int rows, int columns) {
  __shared__ float tile[kTile][kTile + 1];
  int column = blockIdx.x * kTile + threadIdx.x;
  for (int i = threadIdx.y; i < kTile; i += kRows) {
    int row = blockIdx.y * kTile + i;
    if (row < rows && column < columns)
      tile[i][threadIdx.x] = from[row * columns + column];
  }
#ifndef MISTAKE
  __syncthreads();
#endif
  int row = blockIdx.y * kTile + threadIdx.x;
  for (int i = threadIdx.y; i < kTile; i += kRows) {
    column = blockIdx.x * kTile + i;
    if (row < rows && column < columns)
      to[column * rows + row] = tile[threadIdx.x][i];
  }
}

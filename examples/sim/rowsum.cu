// Sums of the rows of a matrix, one warp a row, as in rowsum.ptx.
extern "C" __global__ void rowsum(const float *x, float *sums, float scale, unsigned columns) {
  const float *row = x + blockIdx.x * columns;
  float sum = 0;
  for (unsigned column = threadIdx.x; column < columns; column += 32)
    sum += row[column];
  for (int step = 16; step > 0; step /= 2)
    sum += __shfl_xor_sync(0xffffffff, sum, step);
  if (threadIdx.x == 0)
    sums[blockIdx.x] = scale * sum;
}

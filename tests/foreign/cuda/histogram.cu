// How often each byte occurs: a histogram of each block in shared memory, then all of them
// together.
extern "C" __global__ void histogram(const unsigned char *bytes, unsigned *counts, int n) {
  __shared__ unsigned mine[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x)
    mine[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
#ifdef MISTAKE
    ++mine[bytes[i]];
#else
    atomicAdd(&mine[bytes[i]], 1u);
#endif
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x)
    if (mine[i])
      atomicAdd(&counts[i], mine[i]);
}

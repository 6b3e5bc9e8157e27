// Plain CUDA C++ around the functions of plain.inc, which stand before this text.
extern "C" __global__ void run_integers(unsigned long long *out, int ops) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int op = 0; op < ops; ++op)
    out[(unsigned long long)i * ops + op] = integers(i * 3, op);
}

extern "C" __global__ void run_floats(float *out, int ops) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int op = 0; op < ops; ++op)
    out[i * ops + op] = floats(i * 3, op);
}

struct Shape {
  int rows;
  float factor[3];
  long long stride;
};
__constant__ float constants[4] = {1.5f, 2.5f, 3.5f, 4.5f};
__device__ int counters[2] = {7, 0};

__device__ __noinline__ float polynomial(float x, int n, Shape shape) {
  float r = 0;
  for (int i = 0; i < n; ++i)
    r = r * x + shape.factor[i % 3];
  return r;
}

/// Sums a row with a tree in shared memory; the last block to finish notes it.
extern "C" __global__ void sum_rows(const float *in, float *out, int *done, Shape shape) {
  __shared__ float tree[128];
  float sum = 0;
  for (int i = threadIdx.x; i < shape.stride; i += blockDim.x)
    sum += in[blockIdx.x * shape.stride + i];
  tree[threadIdx.x] = sum;
  __syncthreads();
  for (int width = blockDim.x / 2; width > 0; width /= 2) {
    if (threadIdx.x < width)
      tree[threadIdx.x] += tree[threadIdx.x + width];
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    out[blockIdx.x] = polynomial(tree[0], 1 + blockIdx.x % 4, shape) + constants[blockIdx.x % 4];
    __threadfence();
    int arrived = atomicAdd(done, 1);
    if (arrived == gridDim.x - 1)
      done[1] = atomicAdd(&counters[0], 1);
  }
}

/// All blocks wait for each other, twice.
extern "C" __global__ void meet(unsigned *gate, unsigned *out) {
  for (unsigned round = 1; round <= 2; ++round) {
    if (threadIdx.x == 0) {
      atomicAdd(gate + round, blockIdx.x + 1);
      __threadfence();
      atomicAdd(gate, 1);
      while (*(volatile unsigned *)gate < round * gridDim.x)
        ;
    }
    __syncthreads();
    out[(round - 1) * gridDim.x + blockIdx.x] = *(volatile unsigned *)(gate + round);
  }
}

extern "C" __global__ void check(const int *in) { assert(in[threadIdx.x] < 100); }

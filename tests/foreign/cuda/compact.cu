// The odd numbers of an array, in order: a vote gives each thread its place in the warp, a scan in
// shared memory the place of each warp. One block.
extern "C" __global__ void compact(const int *x, int *kept, int *count, int n) {
  __shared__ int ends[32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, before = 0;
  for (int begin = 0; begin < n; begin += blockDim.x) {
    int i = begin + threadIdx.x, value = i < n ? x[i] : 0;
    unsigned odd = __ballot_sync(0xffffffff, value & 1);
    if (lane == 0)
      ends[warp] = __popc(odd);
    __syncthreads();
    if (warp == 0) {
      int end = lane < warps ? ends[lane] : 0;
      for (int step = 1; step < 32; step *= 2) {
        int other = __shfl_up_sync(0xffffffff, end, step);
        end += lane >= step ? other : 0;
      }
      if (lane < warps)
        ends[lane] = end;
    }
    __syncthreads();
    int place = before + (warp ? ends[warp - 1] : 0) + __popc(odd & ((1u << lane) - 1));
    if (value & 1)
      kept[place] = value;
    before += ends[warps - 1];
#ifndef MISTAKE
    __syncthreads(); // before the next round's counts
#endif
  }
  if (threadIdx.x == 0)
    *count = before;
}

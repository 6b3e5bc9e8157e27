// One query row for each sequence over a paged cache; the rows of a group of
// heads share a block, whose keys are a split of the sequence. `merge` puts the
// splits together. Caches are [page][slot][kv head][DIM].
constexpr int kKeys = 64;

extern "C" __global__ void __launch_bounds__(128)
    decode(const bf16 *__restrict__ q, const bf16 *__restrict__ k, const bf16 *__restrict__ v,
           const int *__restrict__ table, const int *__restrict__ lengths,
           float *__restrict__ partial, float *__restrict__ partial_lse, int group, int max_pages,
           int page, float scale) {
  extern __shared__ __align__(128) unsigned char memory[];
  u32 tile_q = shared_address(memory), tile_k = tile_q + 16 * DIM * 2,
      tile_v = tile_k + kKeys * DIM * 2;
  float *merge_max = (float *)(memory + (16 + 2 * kKeys) * DIM * 2), *merge_sum = merge_max + 64,
        *merge_out = merge_sum + 64;
  int split = blockIdx.x, splits = gridDim.x, kv_head = blockIdx.y, kv_heads = gridDim.y;
  int sequence = blockIdx.z, warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  int heads = kv_heads * group, length = lengths[sequence];
  int tiles = (length + kKeys - 1) / kKeys;
  int begin = tiles * split / splits, end = tiles * (split + 1) / splits;

  for (int i = threadIdx.x; i < 16 * (DIM / 8); i += blockDim.x) {
    int row = i / (DIM / 8), chunk = i % (DIM / 8);
    const bf16 *from = q + ((long)sequence * heads + kv_head * group + min(row, group - 1)) * DIM;
    copy_async(chunk_address(tile_q, row, chunk), from + chunk * 8, row < group);
  }
  float acc[DIM / 8][4] = {};
  Softmax softmax;
  for (int t = begin; t < end; ++t) {
    for (int i = threadIdx.x; i < kKeys * (DIM / 8); i += blockDim.x) {
      int row = i / (DIM / 8), chunk = i % (DIM / 8), key = t * kKeys + row;
      bool valid = key < length;
      long slot = 0;
      if (valid)
        slot = (long)table[sequence * max_pages + key / page] * page + key % page;
      long at = (slot * kv_heads + kv_head) * DIM + chunk * 8;
      copy_async(chunk_address(tile_k, row, chunk), k + at, valid);
      copy_async(chunk_address(tile_v, row, chunk), v + at, valid);
    }
    commit();
    wait<0>();
    __syncthreads();
    float score[2][4] = {};
#pragma unroll
    for (int kk = 0; kk < DIM / 16; ++kk) {
      u32 a[4], b[4];
      load_matrices(a, chunk_address(tile_q, lane % 16, 2 * kk + lane / 16));
      load_matrices(
          b, chunk_address(tile_k, warp * 16 + lane % 8 + lane / 16 * 8, 2 * kk + lane / 8 % 2));
      multiply(score[0], a, b[0], b[1]);
      multiply(score[1], a, b[2], b[3]);
    }
    for (int n = 0; n < 2; ++n)
      for (int i = 0; i < 4; ++i)
        if (t * kKeys + warp * 16 + n * 8 + lane % 4 * 2 + i % 2 >= length)
          score[n][i] = minus_infinity();
    softmax.step(score, acc, scale);
    u32 p[4] = {round_pair(score[0][0], score[0][1]), round_pair(score[0][2], score[0][3]),
                round_pair(score[1][0], score[1][1]), round_pair(score[1][2], score[1][3])};
#pragma unroll
    for (int n = 0; n < DIM / 16; ++n) {
      u32 b[4];
      load_matrices_transposed(b, chunk_address(tile_v, warp * 16 + lane % 16, 2 * n + lane / 16));
      multiply(acc[2 * n], p, b[0], b[1]);
      multiply(acc[2 * n + 1], p, b[2], b[3]);
    }
    __syncthreads(); // the tiles are read; the next ones may come
  }
  wait<0>();
  softmax.finish();
  for (int half = 0; half < 2; ++half) {
    int row = lane / 4 + 8 * half;
    if (lane % 4 == 0) {
      merge_max[warp * 16 + row] = softmax.highest[half];
      merge_sum[warp * 16 + row] = softmax.sum[half];
    }
    for (int n = 0; n < DIM / 8; ++n)
      for (int i = 0; i < 2; ++i)
        merge_out[(warp * 16 + row) * DIM + n * 8 + lane % 4 * 2 + i] = acc[n][2 * half + i];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < group * DIM; i += blockDim.x) {
    int row = i / DIM, column = i % DIM;
    float top = minus_infinity(), sum = 0, value = 0;
    for (int w = 0; w < 4; ++w)
      top = fmaxf(top, merge_max[w * 16 + row]);
    for (int w = 0; w < 4; ++w) {
      float weight =
          top == minus_infinity() ? 0 : exp2_fast((merge_max[w * 16 + row] - top) * scale);
      sum += merge_sum[w * 16 + row] * weight;
      value += merge_out[(w * 16 + row) * DIM + column] * weight;
    }
    long at = ((long)sequence * heads + kv_head * group + row) * splits + split;
    partial[at * DIM + column] = sum > 0 ? value / sum : 0;
    if (column == 0)
      partial_lse[at] = sum > 0 ? top * scale + log2f(sum) : minus_infinity();
  }
}

extern "C" __global__ void merge(const float *__restrict__ partial,
                                 const float *__restrict__ partial_lse, bf16 *__restrict__ out,
                                 int splits) {
  long row = blockIdx.x;
  float top = minus_infinity(), sum = 0, value = 0;
  for (int s = 0; s < splits; ++s)
    top = fmaxf(top, partial_lse[row * splits + s]);
  for (int s = 0; s < splits; ++s) {
    float weight = top == minus_infinity() ? 0 : exp2_fast(partial_lse[row * splits + s] - top);
    sum += weight;
    value += weight * partial[(row * splits + s) * DIM + threadIdx.x];
  }
  float result = sum > 0 ? value / sum : 0;
  out[row * DIM + threadIdx.x] = (bf16)(round_pair(result, 0) & 0xffff);
}

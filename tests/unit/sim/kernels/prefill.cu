// A FlashAttention-like forward: 64 query rows a block, 16 a warp; KV tiles of
// 64 rows in two buffers; tensors are [row][head][DIM].
constexpr int kRows = 64;

__device__ inline void load_tile(u32 tile, const bf16 *from, int first, int count, long stride) {
  for (int i = threadIdx.x; i < kRows * (DIM / 8); i += blockDim.x) {
    int row = i / (DIM / 8), chunk = i % (DIM / 8);
    bool valid = first + row < count;
    copy_async(chunk_address(tile, row, chunk),
               from + (valid ? first + row : 0) * stride + chunk * 8, valid);
  }
}

extern "C" __global__ void __launch_bounds__(128)
    prefill(const bf16 *__restrict__ q, const bf16 *__restrict__ k, const bf16 *__restrict__ v,
            bf16 *__restrict__ out, float *__restrict__ lse, int query_rows, int key_rows,
            int group, float scale, int causal) {
  extern __shared__ __align__(128) unsigned char memory[];
  constexpr u32 kTileBytes = kRows * DIM * 2;
  u32 tile_q = shared_address(memory), tile_k = tile_q + kTileBytes,
      tile_v = tile_k + 2 * kTileBytes;
  int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  int first_row = blockIdx.x * kRows, head = blockIdx.y, heads = gridDim.y;
  int kv_heads = heads / group, kv_head = head / group, diagonal = key_rows - query_rows;
  q += head * DIM;
  k += kv_head * DIM;
  v += kv_head * DIM;
  int visible = causal ? min(key_rows, first_row + kRows + diagonal) : key_rows;
  int tiles = (visible + kRows - 1) / kRows;

  load_tile(tile_q, q, first_row, query_rows, (long)heads * DIM);
  load_tile(tile_k, k, 0, key_rows, (long)kv_heads * DIM);
  load_tile(tile_v, v, 0, key_rows, (long)kv_heads * DIM);
  commit();
  float acc[DIM / 8][4] = {};
  Softmax softmax;
  for (int t = 0; t < tiles; ++t) {
    u32 now_k = tile_k + (t & 1) * kTileBytes, now_v = tile_v + (t & 1) * kTileBytes;
    wait<0>();
    __syncthreads();
    if (t + 1 < tiles) {
      load_tile(tile_k + (~t & 1) * kTileBytes, k, (t + 1) * kRows, key_rows, (long)kv_heads * DIM);
      load_tile(tile_v + (~t & 1) * kTileBytes, v, (t + 1) * kRows, key_rows, (long)kv_heads * DIM);
    }
    commit();
    float score[kRows / 8][4] = {};
#pragma unroll
    for (int kk = 0; kk < DIM / 16; ++kk) {
      u32 a[4];
      load_matrices(a, chunk_address(tile_q, warp * 16 + lane % 16, 2 * kk + lane / 16));
#pragma unroll
      for (int n = 0; n < kRows / 16; ++n) {
        u32 b[4];
        load_matrices(
            b, chunk_address(now_k, n * 16 + lane % 8 + lane / 16 * 8, 2 * kk + lane / 8 % 2));
        multiply(score[2 * n], a, b[0], b[1]);
        multiply(score[2 * n + 1], a, b[2], b[3]);
      }
    }
    int row = first_row + warp * 16 + lane / 4, column = t * kRows + lane % 4 * 2;
    for (int n = 0; n < kRows / 8; ++n)
      for (int i = 0; i < 4; ++i) {
        int key = column + n * 8 + i % 2, query = row + i / 2 * 8;
        if (key >= key_rows || (causal && key > query + diagonal))
          score[n][i] = minus_infinity();
      }
    softmax.step(score, acc, scale);
#pragma unroll
    for (int kk = 0; kk < kRows / 16; ++kk) {
      u32 p[4] = {round_pair(score[2 * kk][0], score[2 * kk][1]),
                  round_pair(score[2 * kk][2], score[2 * kk][3]),
                  round_pair(score[2 * kk + 1][0], score[2 * kk + 1][1]),
                  round_pair(score[2 * kk + 1][2], score[2 * kk + 1][3])};
#pragma unroll
      for (int n = 0; n < DIM / 16; ++n) {
        u32 b[4];
        load_matrices_transposed(b, chunk_address(now_v, kk * 16 + lane % 16, 2 * n + lane / 16));
        multiply(acc[2 * n], p, b[0], b[1]);
        multiply(acc[2 * n + 1], p, b[2], b[3]);
      }
    }
  }
  softmax.finish();
  for (int half = 0; half < 2; ++half) {
    int row = first_row + warp * 16 + lane / 4 + 8 * half;
    if (row >= query_rows)
      continue;
    float sum = softmax.sum[half], inverse = sum > 0 ? 1.0f / sum : 0.0f;
    bf16 *to = out + ((long)row * heads + head) * DIM + lane % 4 * 2;
    for (int n = 0; n < DIM / 8; ++n)
      *(u32 *)(to + n * 8) = round_pair(acc[n][2 * half] * inverse, acc[n][2 * half + 1] * inverse);
    if (lane % 4 == 0)
      lse[(long)row * heads + head] = (softmax.highest[half] * scale + log2f(sum)) * 0.69314718056f;
  }
}

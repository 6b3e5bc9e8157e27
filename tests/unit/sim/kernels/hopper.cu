// Attention of sm_90a for the simulator's tests: one warp copies tiles with the bulk
// copy engine, two warpgroups multiply them with wgmma, mbarriers hand tiles over, and
// the result leaves through a bulk store. Head dimension 64, bf16. Lines that end in a
// tag in brackets are what the tests take away or change, one at a time.
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

constexpr int kDim = 64, kRows = 64, kKeys = 64, kStages = 2, kConsumers = 2;
constexpr u32 kTileBytes = kKeys * kDim * 2;
constexpr int kWarpsOfGroup = 4;

struct alignas(64) TensorMap {
  char bytes[128];
};

/// Shared memory; every tile begins a swizzle pattern.
struct Tiles {
  u16 q[kConsumers][kRows * kDim]; // and the result
  u16 k[kStages][kKeys * kDim];
  u16 v[kStages][kKeys * kDim];
};
struct Barriers {
  u64 q;
  u64 kFull[kStages], vFull[kStages], kEmpty[kStages], vEmpty[kStages];
};

__device__ u32 sharedAddress(const void *p) {
  return static_cast<u32>(__cvta_generic_to_shared(p));
}

// mbarriers.
__device__ void initBarrier(u64 *barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(sharedAddress(barrier)),
               "r"(arrivals)
               : "memory");
}
__device__ void arrive(u64 *barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(sharedAddress(barrier)) : "memory");
}
__device__ void expectBytes(u64 *barrier, u32 bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(sharedAddress(barrier)),
      "r"(bytes)
      : "memory");
}
__device__ void wait(u64 *barrier, u32 parity) {
  asm volatile("{\n"
               ".reg .pred done;\n"
               "AGAIN:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@!done bra AGAIN;\n"
               "}" ::"r"(sharedAddress(barrier)),
               "r"(parity)
               : "memory");
}

// Bulk copies.
__device__ void loadTile(void *to, const TensorMap *map, int head, int row, u64 *barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(sharedAddress(to)),
               "l"(map), "r"(0), "r"(head), "r"(row), "r"(sharedAddress(barrier))
               : "memory");
}
__device__ void storeTile(const TensorMap *map, int head, int row, const void *from) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group "
               "[%0, {%1, %2, %3}], [%4];" ::"l"(map),
               "r"(0), "r"(head), "r"(row), "r"(sharedAddress(from))
               : "memory");
}

// Matrix products. Rows of 128 bytes, swizzled; 8 of them every 1024 bytes.
__device__ u64 descriptor(const void *tile, u32 offset) {
  u64 address = (sharedAddress(tile) + offset) & 0x3ffff;
  return address >> 4 | u64{1} << 16 | u64{1024 >> 4} << 32 | u64{1} << 62;
}
#define R8(n)                                                                                      \
  "%" #n "0,%" #n "1,%" #n "2,%" #n "3,%" #n "4,%" #n "5,%" #n "6,%" #n "7,%" #n "8,%" #n "9"
#define SUMS "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9," R8(1) "," R8(2) ",%30,%31}"
#define F4(x, i) "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3])
#define F32(x) F4(x, 0), F4(x, 4), F4(x, 8), F4(x, 12), F4(x, 16), F4(x, 20), F4(x, 24), F4(x, 28)

/// sums = a * transposed b (+ sums): 64 x 64, of 16 columns of a.
__device__ void multiplyShared(float (&sums)[32], u64 a, u64 b, int add) {
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " SUMS
               ", %32, %33, add, 1, 1, 0, 0;\n}"
               : F32(sums)
               : "l"(a), "l"(b), "r"(add)
               : "memory");
}
/// sums += a * b, with a in registers and 16 rows of b.
__device__ void multiplyRegisters(float (&sums)[32], const u32 (&a)[4], u64 b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " SUMS
               ", {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
               : F32(sums)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
               : "memory");
}

__device__ float power2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ u32 pack(float low, float high) {
  u32 both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
/// Of the four lanes that hold a row.
template <typename F> __device__ float reduce(float x, F f) {
  x = f(x, __shfl_xor_sync(0xffffffff, x, 1));
  return f(x, __shfl_xor_sync(0xffffffff, x, 2));
}

struct Problem {
  int queries, keys, headsPerKv, causal;
  float scale; ///< times log2(e)
};

__device__ void produce(Tiles &tiles, Barriers &bars, const TensorMap *q, const TensorMap *k,
                        const TensorMap *v, int head, int kvHead, int firstRow, int count) {
  expectBytes(&bars.q, kConsumers * kTileBytes); // [expect-q]
  for (int i = 0; i < kConsumers; ++i)
    loadTile(tiles.q[i], q, head, firstRow + i * kRows, &bars.q);
  for (int t = 0; t < count; ++t) {
    int s = t % kStages;
    u32 parity = (t / kStages & 1) ^ 1;
    wait(&bars.kEmpty[s], parity);           // [wait-k-empty]
    expectBytes(&bars.kFull[s], kTileBytes); // [expect-k]
    loadTile(tiles.k[s], k, kvHead, t * kKeys, &bars.kFull[s]);
    wait(&bars.vEmpty[s], parity);           // [wait-v-empty]
    expectBytes(&bars.vFull[s], kTileBytes); // [expect-v]
    loadTile(tiles.v[s], v, kvHead, t * kKeys, &bars.vFull[s]);
  }
}

/// One for each warp tells that it is done with a tile.
__device__ void release(u64 *barrier) {
  if (threadIdx.x % 32 == 0) // [release-lane]
    arrive(barrier);
}

__device__ void softmaxTile(float (&s)[32], float (&o)[32], float (&top)[2], float (&sum)[2],
                            float scale) {
  for (int half = 0; half < 2; ++half) {
    float most = top[half];
    for (int i = 2 * half; i < 32; i += 4)
      most = fmaxf(most, fmaxf(s[i], s[i + 1]));
    most = reduce(most, [](float a, float b) { return fmaxf(a, b); });
    float base = most == -__int_as_float(0x7f800000) ? 0.0f : most * scale;
    float keep = power2(top[half] * scale - base);
    top[half] = most;
    sum[half] *= keep;
    for (int i = 2 * half; i < 32; i += 4)
      for (int j = i; j < i + 2; ++j) {
        o[j] *= keep;
        s[j] = power2(s[j] * scale - base);
        sum[half] += s[j];
      }
  }
}

__device__ void consume(Tiles &tiles, Barriers &bars, const TensorMap *out, float *lse, int head,
                        int firstRow, int group, int count, const Problem &p) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % kWarpsOfGroup;
  int row = firstRow + group * kRows + warp * 16 + lane / 4;
  float o[32] = {}, top[2], sum[2] = {};
  top[0] = top[1] = -__int_as_float(0x7f800000);
  wait(&bars.q, 0); // [wait-q]
  for (int t = 0; t < count; ++t) {
    int stage = t % kStages;
    u32 parity = t / kStages & 1;
    float s[32];
    wait(&bars.kFull[stage], parity);                       // [wait-k]
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); // [fence-s]
#pragma unroll
    for (int i = 0; i < kDim / 16; ++i)
      multiplyShared(s, descriptor(tiles.q[group], i * 32), descriptor(tiles.k[stage], i * 32), i);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); // [commit-s]
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); // [wait-s]
    release(&bars.kEmpty[stage]);                                  // [release-k]

    int limit = p.causal ? min(p.keys, row + p.keys - p.queries + 1) : p.keys;
    int limitBelow = p.causal ? min(p.keys, limit + 8) : p.keys;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      int key = t * kKeys + i / 4 * 8 + lane % 4 * 2 + i % 2;
      if (key >= (i & 2 ? limitBelow : limit))
        s[i] = -__int_as_float(0x7f800000);
    }
    softmaxTile(s, o, top, sum, p.scale);

    wait(&bars.vFull[stage], parity); // [wait-v]
    u32 weights[kKeys / 16][4];
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i)
      for (int j = 0; j < 4; ++j)
        weights[i][j] = pack(s[8 * i + 2 * j], s[8 * i + 2 * j + 1]);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); // [fence-o]
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i)
      multiplyRegisters(o, weights[i], descriptor(tiles.v[stage], i * 16 * 128));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); // [commit-o]
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); // [wait-o]
    release(&bars.vEmpty[stage]);                                  // [release-v]
  }

  // The result takes the place of the queries, whose rows only this warp has read.
  char *tile = reinterpret_cast<char *>(tiles.q[group]);
  for (int half = 0; half < 2; ++half) {
    float total = reduce(sum[half], [](float a, float b) { return a + b; });
    float inverse = total > 0 ? 1 / total : 0;
    int r = warp * 16 + lane / 4 + 8 * half;
    for (int i = 0; i < 8; ++i) {
      u32 both = pack(o[4 * i + 2 * half] * inverse, o[4 * i + 2 * half + 1] * inverse);
      *reinterpret_cast<u32 *>(tile + r * 128 + ((i ^ (r & 7)) << 4) + lane % 4 * 4) = both;
    }
    int global = row + 8 * half;
    if (global < p.queries && lane % 4 == 0)
      lse[head * p.queries + global] = top[half] * p.scale + log2f(total);
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");   // [fence-proxy]
  asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); // [sync-result]
  if (threadIdx.x % 128 == 0) {
    storeTile(out, head, firstRow + group * kRows, tile);
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); // [wait-store]
  }
}

extern "C" __global__ void __launch_bounds__(128 * (kConsumers + 1))
    attention(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
              const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap out,
              float *lse, const Problem p) {
  extern __shared__ __align__(1024) char memory[];
  __shared__ Barriers bars;
  Tiles &tiles = *reinterpret_cast<Tiles *>(memory);
  int group = threadIdx.x / 128, head = blockIdx.y, firstRow = blockIdx.x * kConsumers * kRows;
  int last = firstRow + kConsumers * kRows;
  int keys = p.causal ? min(p.keys, max(0, last + p.keys - p.queries)) : p.keys;
  int count = (keys + kKeys - 1) / kKeys;
  if (threadIdx.x == 0) {
    initBarrier(&bars.q, 1);
    for (int s = 0; s < kStages; ++s) {
      initBarrier(&bars.kFull[s], 1);
      initBarrier(&bars.vFull[s], 1);
      initBarrier(&bars.kEmpty[s], kConsumers * kWarpsOfGroup); // [count-k]
      initBarrier(&bars.vEmpty[s], kConsumers * kWarpsOfGroup); // [count-v]
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); // [fence-init]
  }
  __syncthreads(); // [sync-init]
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0)
      produce(tiles, bars, &q, &k, &v, head, head / p.headsPerKv, firstRow, count);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    consume(tiles, bars, &out, lse, head, firstRow, group - 1, count, p);
  }
}

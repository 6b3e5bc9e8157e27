// Plain types. The text includes nothing, so that NVRTC has nothing to read but it.

typedef unsigned char u8;

typedef unsigned short u16;

typedef unsigned int u32;

typedef unsigned long long u64;

typedef signed char i8;

typedef long long i64;

struct bf16 {
  u16 bits;
};

struct f16 {
  u16 bits;
};

// A tile in shared memory: rows PITCH bytes apart, 16-byte chunks turned within groups of
// SPAN by the row, so that eight rows' chunks of one column lie in different banks.
template <int PITCH, int SPAN> struct shared_tile {
  u32 base;
  static constexpr int chunks = PITCH / 16;
  __device__ __forceinline__ u32 at(int row, int chunk) const {
    return base + row * PITCH + ((chunk ^ (row / (8 / SPAN) % SPAN)) * 16);
  }
  // The tile from `rows` (a multiple of 8) on.
  __device__ __forceinline__ shared_tile from_row(int rows) const { return {base + rows * PITCH}; }
};

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
  // `rows` and `chunks`, constants, further on. 8 rows or SPAN chunks further on a chunk is turned
  // alike: what is a multiple of them is added to the address, and only the rest turns with it.
  __device__ __forceinline__ u32 at(int row, int chunk, int rows, int chunks) const {
    return at(row + rows % 8, chunk + chunks % SPAN) + rows / 8 * 8 * PITCH +
           chunks / SPAN * SPAN * 16;
  }
  // The tile from `rows` (a multiple of 8) on.
  __device__ __forceinline__ shared_tile from_row(int rows) const { return {base + rows * PITCH}; }
};

// Words of a plan's records: the pieces of work that the host made out of the lengths. A record has
// `words` of them.
struct work_item {
  enum : int { first_row, row_count, kv_head, sequence, key_begin, key_end, partial_slot, flags };
  enum : int { words = 8 };
  // A value of flags: rows of several sequences against keys that they share. `sequence` is then a
  // record of its own for those keys: its query_base is 0, its table that of one of the sequences.
  enum : int { mixed_sequences = 1 };
};

// A query token: its number from its sequence's query_base on (with mixed sequences: from the start
// of the whole array), its position among the keys.
struct row_entry {
  enum : int { query, position };
  enum : int { words = 2 };
};

struct sequence_record {
  enum : int { query_base, key_base, query_len, key_len, table_base, batch };
  enum : int { words = 8 };
};

// A row whose keys several work items shared: results lie at partial rows first_partial,
// first_partial + stride, ..., `count` of them.
struct merge_item {
  enum : int { row, kv_head, sequence, first_partial, count, stride };
  enum : int { words = 8 };
};

// Rows of memory: where they lie, and single elements of them.

// Address of key `key` + `row` through a page table, -1 from `count` on and in absent pages.
template <int PAGE>
__device__ __forceinline__ i64 paged_row(const int *table, i64 base, i64 key, int row, i64 count,
                                         i64 offset, i64 page_stride, i64 slot_stride) {
  if (row >= count)
    return -1;
  const u32 position = u32(key) + row;
  const int page = table[base + position / PAGE];
  return page < 0 ? -1 : offset + page * page_stride + position % PAGE * slot_stride;
}

// Two neighbouring elements at `to` and `to + stride`; one store where that can be.
template <typename T>
__device__ __forceinline__ void store_pair(T *to, i64 stride, float first, float second) {
  if (stride == 1 && (u64(to) & 3) == 0) {
    *reinterpret_cast<u32 *>(to) = pack<T>(first, second);
  } else {
    to[0] = narrow_to<T>(first);
    to[stride] = narrow_to<T>(second);
  }
}

template <>
__device__ __forceinline__ void store_pair<float>(float *to, i64 stride, float first,
                                                  float second) {
  if (stride == 1 && (u64(to) & 7) == 0) {
    *reinterpret_cast<float2 *>(to) = make_float2(first, second);
  } else {
    to[0] = first;
    to[stride] = second;
  }
}

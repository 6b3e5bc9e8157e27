// What the oracle reads: plain views of arrays and the run-time numbers, by name.
#pragma once

#include "dialect/reference/Formats.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <map>
#include <string>

namespace llmopt::reference {

/// A view of an array; strides count elements and may be anything.
struct Array {
  ElementType type = ElementType::F32;
  llvm::SmallVector<int64_t, 5> shape, strides;
  void *data = nullptr;

  int64_t rank() const { return int64_t(shape.size()); }
  int64_t offset(llvm::ArrayRef<int64_t> index) const {
    int64_t sum = 0;
    for (size_t d = 0; d < index.size(); ++d)
      sum += index[d] * strides[d];
    return sum;
  }
  double at(llvm::ArrayRef<int64_t> index) const { return load(data, type, offset(index)); }
  /// An element of an i64 array, all its bits.
  int64_t wordAt(llvm::ArrayRef<int64_t> index) const {
    return static_cast<const int64_t *>(data)[offset(index)];
  }
  /// at(), where a dimension of extent 1 answers for every index.
  double broadcastAt(llvm::ArrayRef<int64_t> index) const {
    int64_t sum = 0;
    for (size_t d = 0; d < index.size(); ++d)
      sum += shape[d] == 1 ? 0 : index[d] * strides[d];
    return load(data, type, sum);
  }
};

/// The operands of a call. Array names: q, k, v (dense and ragged forms); k_pool and
/// v_pool, or kv_pool when interleaved; block_table, or kv_indptr and kv_indices; kv_len,
/// cu_seqlens_q, cu_seqlens_kv; arg0 ... argN (the op's `args`, rank 0 for a scalar);
/// new_k, new_v, slots (append); partials, partial_lse (merge).
struct Inputs {
  std::map<std::string, Array> arrays;
  /// Numbers by name: overrides of the op's literals (see literalNumbers() in Context.h),
  /// and `userN`, the function's scalar argument N where a region reads it.
  std::map<std::string, double> numbers;

  const Array *find(const std::string &name) const {
    auto it = arrays.find(name);
    return it == arrays.end() ? nullptr : &it->second;
  }
};

} // namespace llmopt::reference

// Arrays of one call with storage of their own, surrounded by guard zones.
#pragma once

#include "dialect/reference/Array.h"
#include "dialect/reference/Rows.h"
#include "runtime/base/AlignedBuffer.h"
#include "llvm/Support/Error.h"

#include <algorithm>
#include <span>

namespace llmopt::harness {

using reference::ElementType;

enum class StrideStyle : uint8_t {
  Packed, ///< row-major, no gaps
  Padded, ///< a gap of 8 elements after every dimension; the innermost stride is 1
  Odd,    ///< as Padded with gaps of 3: rows start at odd addresses
  Inner2, ///< as Packed with every second element of the memory
};

/// Memory at 64-byte boundaries, as devices want it.
template <typename T> struct AlignedAllocator {
  using value_type = T;
  AlignedAllocator() = default;
  template <typename U> AlignedAllocator(const AlignedAllocator<U> &) {}
  T *allocate(size_t n) {
    return static_cast<T *>(runtime::allocateAligned(std::max<size_t>(n, 1) * sizeof(T)));
  }
  void deallocate(T *p, size_t) { std::free(p); }
  bool operator==(const AlignedAllocator &) const { return true; }
};
using Bytes = std::vector<uint8_t, AlignedAllocator<uint8_t>>;

/// An array of a call. Gaps and guard zones of an input hold NaN; those of an output a
/// canary, and its elements a NaN that says "never written".
class HostArray {
public:
  enum class Access : uint8_t { In, Out, InOut };
  enum class Memory : uint8_t { Own, None };

  HostArray(std::string name, ElementType type, llvm::ArrayRef<int64_t> shape,
            Access access = Access::In, StrideStyle style = StrideStyle::Packed,
            Memory memory = Memory::Own);

  std::string name;
  ElementType type;
  llvm::SmallVector<int64_t, 5> shape, strides;
  Access access;

  /// False for Memory::None: a shape whose elements are somewhere else.
  bool hasMemory() const { return !bytes.empty(); }
  /// Null without memory.
  void *data() { return hasMemory() ? bytes.data() + kGuard : nullptr; }
  const void *data() const { return hasMemory() ? bytes.data() + kGuard : nullptr; }
  /// The memory with its guard zones.
  std::span<uint8_t> storage() { return bytes; }
  reference::Array view() const;
  int64_t elements() const;
  double get(llvm::ArrayRef<int64_t> index) const { return view().at(index); }
  void set(llvm::ArrayRef<int64_t> index, double value) {
    reference::store(data(), type, view().offset(index), value);
  }
  /// Sets every element in row-major order, where there is memory.
  template <typename F> void fill(F value) {
    if (!hasMemory())
      return;
    forEach([&](int64_t offset) { reference::store(data(), type, offset, value()); });
  }

  /// Ends generation: remembers what an input holds (a copy of an in-out array).
  void seal();
  /// Puts an in-out array back to what it was when sealed.
  void restore() { bytes = before; }
  /// The array as it was when sealed.
  reference::Array original() const;
  /// What was written that should not have been, in words; empty if nothing. Elements
  /// of an output whose first index is at least `firstUnwritten` should be untouched.
  std::string damage(int64_t firstUnwritten) const;
  /// The bytes of the elements alone, in row-major order.
  std::vector<uint8_t> elementBytes() const;

private:
  static constexpr size_t kGuard = 256;
  static constexpr uint8_t kCanary = 0xA5, kNever = 0xFF; // 0xFF.. is a NaN in every float format
  template <typename F> void forEach(F visit) const;

  Bytes bytes, before;
  uint64_t hash = 0;
};

/// A whole call: arrays by name (see reference::Inputs; outputs are `o` and `lse`) and
/// run-time numbers that differ from the spec's.
struct Call {
  std::vector<HostArray> arrays;
  std::map<std::string, double> numbers;
  int64_t rows = 0; ///< rows of the first dimension of `o` that are due; the rest is padding
  /// Where the kernels change what they do: whoever runs the call says it, and check() looks
  /// there when it cannot look at every row.
  reference::Boundaries boundaries;

  HostArray *find(llvm::StringRef name);
  const HostArray *find(llvm::StringRef name) const { return const_cast<Call *>(this)->find(name); }
  /// Views of the arrays as they were before the run.
  reference::Inputs inputs() const;
};

template <typename F> void HostArray::forEach(F visit) const {
  if (elements() == 0)
    return;
  llvm::SmallVector<int64_t, 5> index(shape.size(), 0);
  for (;;) {
    int64_t offset = 0;
    for (size_t d = 0; d < index.size(); ++d)
      offset += index[d] * strides[d];
    visit(offset);
    size_t d = index.size();
    while (d > 0 && ++index[d - 1] == shape[d - 1])
      index[--d] = 0;
    if (d == 0)
      return;
  }
}

} // namespace llmopt::harness

// Case folders as ONNX publishes them: model.onnx with one attention node, and
// test_data_set_N/ with input_*.pb and output_*.pb. A loaded case says what to compile,
// with which arrays to call it, and what must come out; how it is run is not its affair.
#pragma once

#include "tools/import/Onnx.h"

#include <memory>
#include <new>

namespace llmopt::importer {

/// Memory at 64-byte boundaries, as devices want it.
template <typename T> struct AlignedAllocator {
  using value_type = T;
  static constexpr std::align_val_t kAlignment{64};
  AlignedAllocator() = default;
  template <typename U> AlignedAllocator(const AlignedAllocator<U> &) {}
  T *allocate(size_t n) { return static_cast<T *>(::operator new(n * sizeof(T), kAlignment)); }
  void deallocate(T *p, size_t) { ::operator delete(p, kAlignment); }
  bool operator==(const AlignedAllocator &) const { return true; }
};
using AlignedBytes = std::vector<uint8_t, AlignedAllocator<uint8_t>>;

/// A view of shared storage; strides count elements.
struct NamedArray {
  std::string name; ///< "q", "k", "v", "kv_len", "arg0", "o"
  DataType type = DataType::F32;
  std::vector<int64_t> shape, strides;
  std::shared_ptr<AlignedBytes> storage;

  void *data() const { return storage->data(); }
  int64_t elements() const;
  double at(const std::vector<int64_t> &index) const;
};

/// An output of the model: where it stands after the call and what it must be.
struct ExpectedOutput {
  std::string name; ///< the model's name: "Y", "present_key", ...
  /// In the model's shape; shares storage with an array of the call.
  NamedArray got;
  Tensor want;
  /// |got - want| <= absolute + relative * |want|; NaN matches NaN, infinities match
  /// themselves. Both 0 for copies.
  double absolute = 0, relative = 0;
};

struct OutputMismatch {
  int64_t count = 0;  ///< elements out of tolerance
  double worst = 0;   ///< largest error among all elements that are finite
  int64_t first = -1; ///< row-major index of the first element out of tolerance
  double got = 0, want = 0;
};

struct ConformanceCase {
  std::string name; ///< "<folder>" or "<folder>/test_data_set_N" where there are more
  /// Why the case cannot count as passed; empty where it can. With a reason the rest is
  /// empty, except for a node of which only some outputs are missing.
  std::string skipReason;
  std::string ir;
  std::string function;           ///< of `ir`, takes the arrays
  std::vector<NamedArray> arrays; ///< inputs and "o", which holds NaN
  std::vector<ExpectedOutput> outputs;

  const NamedArray *find(std::string_view array) const;
};

/// One entry for each data set, in the order of their numbers.
StatusOr<std::vector<ConformanceCase>> loadConformanceCases(const std::string &folder);

/// Compares an output after the call. `count` 0: it conforms.
OutputMismatch compare(const ExpectedOutput &output);

} // namespace llmopt::importer

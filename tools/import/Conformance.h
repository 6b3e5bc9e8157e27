// Case folders as ONNX publishes them: model.onnx with one attention node, and
// test_data_set_N/ with input_*.pb and output_*.pb. A loaded case says what to compile,
// with which arrays to call it, and what must come out; how it is run is not its affair.
#pragma once

#include "tools/import/Onnx.h"

#include <memory>

namespace llmopt::importer {

/// A view of shared storage; strides count elements.
struct NamedArray {
  std::string name; ///< "q", "k", "v", "kv_len", "arg0", "o"
  DataType type = DataType::F32;
  std::vector<int64_t> shape, strides;
  std::shared_ptr<std::vector<uint8_t>> storage;

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

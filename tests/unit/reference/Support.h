// A spec from its text with arrays bound to it, for tests of the oracle.
#pragma once

#include "dialect/reference/Cache.h"
#include "dialect/reference/Tolerance.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <deque>
#include <gtest/gtest.h>

namespace llmopt::reference {

/// Parses the function's text; the context lives as long as the program.
mlir::OwningOpRef<mlir::ModuleOp> parse(const std::string &text);

class Bound {
public:
  explicit Bound(const std::string &text);

  attn::AttentionOp attention;
  attn::MergeOp merge;
  attn::AppendOp append;
  Inputs inputs;

  /// A packed array; values in row-major order, repeated as often as needed.
  Array &bind(const std::string &name, ElementType type, llvm::ArrayRef<int64_t> shape,
              std::vector<double> values);
  template <typename F>
  Array &bindFrom(const std::string &name, ElementType type, llvm::ArrayRef<int64_t> shape,
                  F value) {
    Array &array = bind(name, type, shape, {0});
    int64_t count = 1;
    for (int64_t extent : shape)
      count *= extent;
    for (int64_t i = 0; i < count; ++i)
      store(array.data, type, i, value(i));
    return array;
  }

  RowResult row(int64_t batch, int64_t query, int64_t head = 0, Mode mode = Mode::Rounded);
  /// The text of the error that evaluating the row gives; empty if it gives none.
  std::string rowError(int64_t batch, int64_t query, int64_t head = 0);

private:
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::deque<std::vector<uint8_t>> storage;
};

/// Dense attention of one sequence and `heads` heads (one KV head, d = 1, f32) with the
/// given clauses. Q = 1, K of key j = scores[j], scale 1: the scaled score is scores[j];
/// V is one-hot, so that the output is the weights.
Bound weightsOf(const std::string &clauses, int64_t queries, const std::vector<double> &scores,
                int64_t heads = 1, const std::string &args = "",
                const std::string &parameters = "");

/// "#" for each key with a weight, "." for the others.
std::string seenBy(Bound &bound, int64_t query, int64_t head = 0);

} // namespace llmopt::reference

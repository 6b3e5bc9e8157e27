// The oracle: attention evaluated in float64 from the attn op itself, row by row, as
// the dialect's text defines it. Slow, small, meant to be checked by eye.
//
//   s_j = scale (q . k_j); s_j = modifications in the written order; keys hidden by the
//   mask and keys with s_j = -inf are unseen; p_j = exp(s_j - m) / sum; o = sum p_j v_j.
//   A row that sees no key gives 0 and an LSE of -inf. A sink logit joins the sum of
//   the output's denominator, once, and not the LSE.
#pragma once

#include "dialect/reference/Context.h"
#include "dialect/reference/Scores.h"

namespace llmopt::reference {

struct Row {
  int64_t batch = 0;
  int64_t query = 0; ///< index in its sequence
  int64_t head = 0;  ///< query head
  bool operator==(const Row &) const = default;
};

struct RowResult {
  std::vector<double> output; ///< exact
  double lse = 0;             ///< exact; without the sink
  int64_t visible = 0;        ///< keys that count, n
  double absSum = 0;          ///< largest component of sum p |v|
  double maxOutput = 0;       ///< largest |output|

  // Filled by Mode::Rounded only.
  /// The output once more with the spec's roundings: scores in float32, P relative to
  /// the row's maximum in V's format (f16, bf16), output in the element type.
  std::vector<double> rounded;
  /// What float32 scores may cost: see Tolerance.h for the derivation.
  double scoreError = 0, lseScoreError = 0;
  /// Float32 cannot tell whether a score is infinite: see Overflow in Tolerance.h.
  bool mayOverflow = false;
  /// Expected size of the error by rounding P: u sqrt(sum p^2 v^2), largest component.
  double roundingError = 0;
  /// One partial came through unchanged (merge): the bits of `rounded` are due.
  bool exactBits = false;
};

/// Lengths of the batch that `inputs` describe.
struct Lengths {
  std::vector<int64_t> queries, keys; ///< by sequence
  int64_t heads = 0;
};
llvm::Expected<Lengths> lengthsOf(attn::AttentionOp op, const Inputs &inputs);

/// Evaluates chosen rows. Fails where a visible key lies on no page (-1, or beyond the
/// table) and where an array is missing; nothing invisible is ever read.
llvm::Expected<std::vector<RowResult>> evaluate(attn::AttentionOp op, const Inputs &inputs,
                                                llvm::ArrayRef<Row> rows, Mode mode = Mode::Exact);

/// For each key of sequence `batch`, whether the mask shows it to any query and head.
llvm::Expected<std::vector<bool>> seenKeys(attn::AttentionOp op, const Inputs &inputs,
                                           int64_t batch);

/// Where a row lies in output and LSE: (batch, query, head), or (token, head) if ragged.
llvm::Expected<std::vector<llvm::SmallVector<int64_t, 4>>>
rowIndices(attn::AttentionOp op, const Inputs &inputs, llvm::ArrayRef<Row> rows);

} // namespace llmopt::reference

// The oracle of the two small ops: merge of partial results, append to a paged cache.
#pragma once

#include "dialect/reference/Reference.h"

namespace llmopt::reference {

/// Rows of attn.merge: `Row::batch` counts rows of (T, H), `query` is ignored. Partials
/// with an LSE of -inf count for nothing, whatever their output holds.
llvm::Expected<std::vector<RowResult>> evaluate(attn::MergeOp op, const Inputs &inputs, llvm::ArrayRef<Row> rows,
                                                Mode mode = Mode::Exact);

/// Executes attn.append on the pools of `inputs` (which are written). Rows whose slot is
/// negative are skipped; a slot beyond the pool is an error, found before any write.
llvm::Error execute(attn::AppendOp op, const Inputs &inputs);

} // namespace llmopt::reference

// The oracle's score modifications.
#pragma once

#include "dialect/reference/Context.h"

#include <functional>

namespace llmopt::reference {

enum class Mode {
  Exact,   ///< float64 throughout
  Rounded, ///< every float operation rounded to float32
};

/// Maps the scaled score of a pair to the modified one.
using ScoreFunction = std::function<double(double score, const Pair &, Mode)>;

/// All score modifications of the op, in the written order; null when it has none.
llvm::Expected<ScoreFunction> compileScores(const Context &context);

/// Teaches the oracle a score attribute of another dialect, by its TypeID.
using ScoreCompiler = std::function<llvm::Expected<ScoreFunction>(mlir::Attribute, const Context &)>;
void registerScore(mlir::TypeID kind, ScoreCompiler compiler);

} // namespace llmopt::reference

// Shapes to try: the hard ones that peers got wrong, and random ones.
#pragma once

#include "tools/harness/Check.h"

namespace llmopt::harness {

struct Case {
  std::string name;
  Shape shape;
  /// A second call whose outputs must have the same bits (A1, A27), if there is one.
  std::optional<Shape> twin;
};

/// The list behind `verify --cases hard`. Which cases there are depends on the spec's
/// forms: ragged queries of several lengths, pages, a window.
std::vector<Case> hardCases(const Spec &spec);

/// Shapes of a few sequences; the products q k and p v take at most `mostProducts`
/// multiplications, which the oracle does in about 0.1 to 0.3 s for 2^23 with modifications.
std::vector<Case> randomShapes(const Spec &spec, int64_t count, uint64_t seed,
                               int64_t mostProducts = 1 << 23);

/// Runs a call on some device: fills the outputs of its arrays, and its boundaries.
using Runner = std::function<llvm::Error(Call &)>;

/// Generates, runs and checks a case, and its twin. An error means that the case could
/// not be run or judged, which no case excuses; a wrong result is in the report.
llvm::Expected<Report> runCase(const Spec &spec, const Case &c, const Runner &run);

} // namespace llmopt::harness

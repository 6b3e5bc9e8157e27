// Emits a mask's predicate or a score modification into a block and runs it: an
// interpreter of the few scalar ops that may occur.
#pragma once

#include "tests/unit/attn/MaskSpec.h"

#include "mlir/IR/Block.h"
#include "mlir/IR/Builders.h"

namespace llmopt::attn::test {

/// Scalars of a run: integers are exact, floats are computed as f32.
struct Scalar {
  int64_t integer = 0;
  float real = 0;
};

/// A block with one argument for each thing that a PairEmitter tells.
class ScalarProgram {
public:
  ScalarProgram(const ParsedMask &mask);

  /// The emitter to emit with; then the program's result is set.
  PairEmitter &emitter();
  void setResult(mlir::Value value) { result = value; }

  Scalar run(const Row &row, int key, float element, float score) const;
  mlir::Value score() const; ///< the score before modification

  ~ScalarProgram();

private:
  class Emitter;
  const ParsedMask &mask;
  std::unique_ptr<mlir::Block> block;
  mlir::OpBuilder builder;
  std::unique_ptr<Emitter> emit;
  mlir::Value result;
};

class EmittedMask {
public:
  explicit EmittedMask(const ParsedMask &mask);
  bool sees(const Row &row, int key) const;

private:
  ScalarProgram program;
};

} // namespace llmopt::attn::test

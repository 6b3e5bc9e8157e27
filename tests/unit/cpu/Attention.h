// A flash-attention tile program with the shape that attn-to-tile gives, its data, and a
// double reference.
#pragma once

#include "tests/unit/cpu/Harness.h"

#include <random>

namespace llmopt::cpu::test {

struct AttentionSpec {
  int64_t tileRows = 64, tileKeys = 64; ///< a tile of scores
  int64_t d = 64, dv = 64;
  std::string type = "f32"; ///< of Q, K, V and O
  bool causal = false;
  bool batchInvariant = false;
  int64_t page = 0; ///< keys in pages of this size; 0: one after another
};

/// Kernel `attend`; slots q, k, v, o, lse, table, rows, keys, scale * log2(e).
std::string attentionProgram(const AttentionSpec &spec);

/// Arrays for `rows` queries over `keys` keys, with NaN wherever nothing may be read.
class AttentionData {
public:
  AttentionData(const AttentionSpec &spec, int64_t rows, int64_t keys, unsigned seed = 1);
  /// Runs the kernel.
  void run(Kernel &kernel);
  /// Largest errors of O and LSE against double, over every `step`-th row.
  std::pair<double, double> errors(int64_t step = 1) const;
  float output(int64_t row, int64_t column) const { return read(o, row * spec.dv + column); }
  float lse(int64_t row) const { return lses[row]; }

private:
  std::vector<uint16_t> narrow(const std::vector<float> &values) const;
  float read(const std::vector<float> &values, size_t i) const;
  int64_t keySlot(int64_t key) const;

  AttentionSpec spec;
  int64_t rows, keys;
  float scale;
  std::vector<float> q, k, v; ///< as rounded to the type
  std::vector<float> o, lses;
  std::vector<uint16_t> qNarrow, kNarrow, vNarrow, oNarrow;
  std::vector<int32_t> table;
};

} // namespace llmopt::cpu::test

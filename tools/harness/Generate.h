// From a spec and a shape to a whole call: random data, shuffled pages, and garbage
// wherever the semantics says that nobody may look.
#pragma once

#include "tools/harness/Call.h"
#include "tools/harness/Spec.h"

namespace llmopt::harness {

enum class Fill : uint8_t {
  Random,        ///< normal Q, K and V
  ZeroQuery,     ///< Q = 0: without a score modification the output is the mean of V
  OneHotValue,   ///< V of key j is 1 in component j mod Dv, else 0: shows the weights
  ConstantValue, ///< V is 1 + KV head throughout: shows a mix-up of heads
  Opposed,       ///< Q > 0 > K: all logits are large and negative (with the magnitudes)
};

enum class Garbage : uint8_t { Zero, NaN, Infinity, NegInfinity, Mixed };

/// What the spec's types leave open. Extents that they fix win over a shape: fit().
struct Shape {
  std::vector<int64_t> queryLengths, keyLengths;         ///< by sequence
  int64_t heads = 4, kvHeads = 2, qkDim = 64, vDim = 64; ///< for dynamic extents
  uint64_t seed = 1;
  /// Overrides of the spec's literals, and userN: see reference::Inputs::numbers.
  std::map<std::string, double> numbers;

  bool farNumbers = false; ///< integers with a value a head: beyond every position, or below all

  Fill fill = Fill::Random;
  double queryMagnitude = 1, keyMagnitude = 1;
  StrideStyle strides = StrideStyle::Packed; ///< of Q, K, V, pools, masks, biases, O
  int64_t paddedTokens = 0;                  ///< rows after the last sequence of ragged arrays

  Garbage garbage = Garbage::NaN;                    ///< in unused slots, pages and padded rows
  bool garbageInKeys = true, garbageInValues = true; ///< else zeros there
  bool hideUnseen = false;  ///< pages whose keys no row sees get -1 in the table
  bool spoilUnseen = false; ///< keys that no row sees hold garbage too
  bool shufflePages = true;
  int64_t sparePages = 3, spareColumns = 2;
  /// So many keys, in whole pages, lie in the same pages for all sequences, as far as all have
  /// that many (that the call does not append).
  int64_t sharedKeys = 0;

  /// False: arrays of elements (Q, K, V, pools, new keys, results) have a shape and no memory. For
  /// whoever wants times alone and fills them on the device: random numbers take longer than
  /// kernels.
  bool contents = true;

  int64_t partials = 3; ///< attn.merge: N; queryLengths tells T (its sum)

  bool operator==(const Shape &) const = default;
};

/// The shape with the extents that the spec's types fix, and lengths that its forms
/// allow: a dense query has one length for the whole batch, dense K and V without
/// `sequences` have one key length.
llvm::Expected<Shape> fit(const Spec &spec, Shape shape);

/// A call of `spec`. Deterministic in the shape; data of valid elements depends on the
/// seed, not on garbage, page order or strides.
llvm::Expected<Call> generate(const Spec &spec, const Shape &shape);

} // namespace llmopt::harness

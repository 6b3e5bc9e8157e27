// What each dimension of an array means, by the array's role. Extents with the
// same meaning must agree, and where the program fixes the value (heads, d_qk,
// ...) they must equal it. Private to the argument check.
#pragma once

#include "runtime/device/Arguments.h"

namespace llmopt::runtime {

enum class Dimension : uint8_t {
  Any, ///< nothing to compare
  Batch,
  BatchPlusOne,
  Query,      ///< queries of a dense sequence
  QueryToken, ///< queries of all ragged sequences
  QueryHead,
  Key,      ///< keys of a dense sequence
  KeyToken, ///< keys of all ragged sequences
  KvHead,
  DQk,
  DV,
  Page,
  PageSize,
  Appended, ///< tokens to append
  Splits,   ///< partials to merge
  Count,
};

/// Meanings of a buffer's dimensions; empty when its role or rank says nothing.
std::vector<Dimension> dimensionsOf(const bundle::Program &program, const bundle::Buffer &buffer);

/// Checks all arrays against each other and the program's facts.
Status checkDimensions(const bundle::Program &program, const BoundArrays &arrays);

/// Extent that some array gives a dimension.
std::optional<int64_t> extentOf(const bundle::Program &program, const BoundArrays &arrays,
                                Dimension dimension);

} // namespace llmopt::runtime

// Asynchronous stores and reductions of registers (st.async, red.async).
#pragma once

#include "runtime/device/sim/decode/InstDecoder.h"

namespace llmopt::sim {

/// The rest of st.async and of red.async.
runtime::Status decodeAsyncStore(InstDecoder &decoder);
runtime::Status decodeAsyncReduction(InstDecoder &decoder);

} // namespace llmopt::sim

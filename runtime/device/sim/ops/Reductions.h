// What becomes of a value in memory and an operand: of atom, red, red.async and
// cp.reduce.async.bulk (PTX ISA 9.7.13.5, 9.7.9.25.4.2).
#pragma once

#include "runtime/device/sim/ptx/Ast.h"

#include <cstdint>
#include <string_view>

namespace llmopt::sim {

enum class AtomicOp : uint8_t { Add, Min, Max, And, Or, Xor, Exch, Cas, Inc, Dec };

/// Their modifiers, in that order.
inline constexpr std::string_view kAtomicNames[] = {"add", "min",  "max", "and", "or",
                                                    "xor", "exch", "cas", "inc", "dec"};

/// The new value of memory; `compare` is for cas only. Bits of the element, from the lowest on.
using Combine = uint64_t (*)(uint64_t old, uint64_t operand, uint64_t compare);

/// Null where the ISA has no atom of that kind.
Combine atomicOf(AtomicOp op, ptx::Type type);

/// The same where the value is in global memory: add.f32 takes and gives subnormals as zeros there
/// ("current implementation").
Combine onGlobal(Combine combine);

/// Null where the ISA has no cp.reduce.async.bulk of that kind to global memory; or, `shared`, to
/// shared memory, where red.async has the same ones.
Combine reductionOf(AtomicOp op, ptx::Type type, bool shared);

} // namespace llmopt::sim

// Random valid specs for `llm-opt fuzz` and for property tests.
#pragma once

#include <cstdint>
#include <string>

namespace llmopt::harness {

/// The attn IR text of a module with one function, `@fuzz`. Deterministic in the seed,
/// and valid: forms of Q and KV, element types, head counts and groups (odd ones too),
/// d 1 to 288 and now and then up to 576, with d_v of its own, extents open or fixed, masks
/// composed to depth 3 with literal and run-time numbers (an operand may serve several clauses),
/// score modifications in any order, sink, LSE, split and schedule clauses, page sizes and layouts;
/// now and then an append before the attention, or a merge. Small enough for a CPU: with
/// randomShapes() the oracle takes less than 0.3 s.
std::string randomSpec(uint64_t seed);

} // namespace llmopt::harness

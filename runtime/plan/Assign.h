// Deals work items to workers. Private to the planner.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace llmopt::runtime {

/// Worker of each item, given the items' costs (positive) in their natural
/// order. Items that are long against the mean load go by the
/// longest-processing-time rule; short ones fill up the workers in natural
/// order, so that neighbours, which read the same keys, stay together.
std::vector<uint32_t> assignItems(std::span<const double> costs, uint32_t workers);

} // namespace llmopt::runtime

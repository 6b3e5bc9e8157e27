// A prefix of four pages while others take its pages one by one: tokens that are still
// hit after each. Also used to show that the opposite order is noticed.
#pragma once

#include <cstdint>
#include <vector>

namespace kvtest {

std::vector<uint32_t> hitsWhilePrefixIsEvicted();

} // namespace kvtest

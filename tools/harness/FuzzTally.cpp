#include "tools/harness/FuzzTally.h"

#include <algorithm>
#include <fmt/format.h>

using namespace llmopt::harness;

int64_t FuzzTally::refusedSpecs() const {
  int64_t sum = 0;
  for (const auto &[reason, specs] : refused)
    sum += specs;
  return sum;
}

int64_t FuzzTally::mostRefused(int64_t count) { return std::max<int64_t>(1, count / 20); }

std::string FuzzTally::objection(int64_t count) const {
  int64_t sum = refusedSpecs();
  if (!sum || failed)
    return "";
  if (!passed)
    return fmt::format("no spec ran, all {} were refused: {}", sum, refused.begin()->first);
  if (sum <= mostRefused(count))
    return "";
  auto common = std::max_element(refused.begin(), refused.end(),
                                 [](const auto &a, const auto &b) { return a.second < b.second; });
  return fmt::format("{} of {} specs were refused; {} may be; {} of them: {}", sum, count,
                     mostRefused(count), common->second, common->first);
}

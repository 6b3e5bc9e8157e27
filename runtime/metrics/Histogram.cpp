#include "runtime/metrics/Histogram.h"

#include <algorithm>
#include <cmath>

using namespace llmopt::runtime;

uint64_t Histogram::firstOf(size_t bucket) {
  if (bucket < (size_t(2) << kSubBits))
    return bucket;
  size_t shift = (bucket >> kSubBits) - 1;
  return uint64_t(bucket - (shift << kSubBits)) << shift;
}

void Histogram::add(const Histogram &other) {
  for (size_t i = 0; i < kBuckets; ++i)
    buckets[i] += other.buckets[i];
  total += other.total;
  valueSum += other.valueSum;
  largest = std::max(largest, other.largest);
  smallest = std::min(smallest, other.smallest);
}

void Histogram::clear() {
  std::fill(buckets.begin(), buckets.end(), 0);
  total = largest = 0;
  smallest = ~uint64_t(0);
  valueSum = 0;
}

double Histogram::quantile(double q) const {
  if (!total)
    return 0;
  uint64_t rank = uint64_t(std::ceil(std::clamp(q, 0.0, 1.0) * double(total)));
  rank = std::clamp<uint64_t>(rank, 1, total);
  uint64_t seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += buckets[i];
    if (seen < rank)
      continue;
    double middle = (double(firstOf(i)) + double(firstOf(i + 1) - 1)) / 2;
    return std::clamp(middle, double(smallest), double(largest));
  }
  return double(largest);
}

uint64_t Histogram::countUpTo(uint64_t bound) const {
  if (bound >= kLargest)
    return total;
  size_t end = bucketOf(bound + 1); // the first bucket that is not wholly below
  uint64_t count = 0;
  for (size_t i = 0; i < end; ++i)
    count += buckets[i];
  return count;
}

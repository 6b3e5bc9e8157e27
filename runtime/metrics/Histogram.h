// A histogram of non-negative integers (nanoseconds, tokens) whose quantiles are exact up
// to 1/256 of the value, in constant memory and without allocation after construction.
//
// Values below 256 have a bucket each; above, each power of two is cut into 128 buckets of
// equal width, as in HdrHistogram. A quantile is the middle of its bucket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace llmopt::runtime {

class Histogram {
public:
  Histogram() : buckets(kBuckets) {}

  void record(uint64_t value) { record(value, 1); }
  void record(uint64_t value, uint64_t times) {
    value = value < kLargest ? value : kLargest;
    buckets[bucketOf(value)] += times;
    total += times;
    valueSum += double(value) * double(times);
    largest = value > largest ? value : largest;
    smallest = value < smallest ? value : smallest;
  }
  void add(const Histogram &other);
  void clear();

  uint64_t count() const { return total; }
  double sum() const { return valueSum; }
  double mean() const { return total ? valueSum / double(total) : 0; }
  uint64_t min() const { return total ? smallest : 0; }
  uint64_t max() const { return largest; }
  /// The least value v such that at least q of all values are <= v, within 1/256 of it;
  /// q in [0, 1]. 0 when nothing was recorded.
  double quantile(double q) const;
  /// Values up to `bound`; those of the bucket that holds the bound count as above it,
  /// unless it is the bucket's last.
  uint64_t countUpTo(uint64_t bound) const;

  /// Larger values count as this: 2^48 ns are three days.
  static constexpr uint64_t kLargest = (uint64_t(1) << 48) - 1;

private:
  static constexpr int kSubBits = 7;
  static constexpr size_t kBuckets = size_t(48 - kSubBits + 1) << kSubBits;
  static size_t bucketOf(uint64_t value) {
    if (value < (2u << kSubBits))
      return size_t(value);
    int shift = 63 - __builtin_clzll(value) - kSubBits;
    return (size_t(shift) << kSubBits) + size_t(value >> shift);
  }
  static uint64_t firstOf(size_t bucket); ///< least value of a bucket

  std::vector<uint64_t> buckets;
  uint64_t total = 0, largest = 0, smallest = ~uint64_t(0);
  double valueSum = 0;
};

} // namespace llmopt::runtime

// Random numbers that are the same on every machine and with every standard library.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

namespace llmopt::harness {

/// SplitMix64, seeded by a number and a name: each array has a stream of its own, so
/// that changing one array of a call leaves the others alone.
class Random {
public:
  explicit Random(uint64_t seed, std::string_view name = "", uint64_t index = 0) : state(seed) {
    for (char c : name)
      state = (state ^ uint8_t(c)) * 0x100000001b3;
    state ^= index * 0x9e3779b97f4a7c15;
    next();
  }

  uint64_t next() {
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  /// lo ... hi, both included.
  int64_t integer(int64_t lo, int64_t hi) { return lo + int64_t(next() % uint64_t(hi - lo + 1)); }
  double uniform() { return double(next() >> 11) * 0x1p-53; } ///< [0, 1)
  bool chance(double probability) { return uniform() < probability; }
  double normal() {
    double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(6.283185307179586 * uniform());
  }
  template <typename List> auto pick(const List &list) {
    return *(std::begin(list) + int64_t(next() % uint64_t(std::size(list))));
  }

private:
  uint64_t state;
};

} // namespace llmopt::harness

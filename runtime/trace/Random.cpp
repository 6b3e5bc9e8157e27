#include "runtime/trace/Formats.h"

#include <charconv>
#include <numbers>

using namespace llmopt::runtime;

uint64_t trace::Random::bits() { // SplitMix64
  uint64_t x = state += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

double trace::Random::normal() {
  double radius = std::sqrt(2 * exponential());
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

double trace::Random::gamma(double shape) {
  if (shape < 1) // a gamma variable of shape + 1 times u^(1/shape)
    return gamma(shape + 1) * std::pow(uniform(), 1 / shape);
  double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    double x = normal(), v = 1 + c * x;
    if (v <= 0)
      continue;
    v = v * v * v;
    if (std::log(uniform()) < 0.5 * x * x + d - d * v + d * std::log(v))
      return d * v;
  }
}

bool trace::parseNumber(std::string_view text, int64_t &value) {
  const char *end = text.data() + text.size();
  auto result = std::from_chars(text.data(), end, value);
  return result.ec == std::errc() && result.ptr == end;
}

bool trace::parseNumber(std::string_view text, double &value) {
  const char *end = text.data() + text.size();
  auto result = std::from_chars(text.data(), end, value);
  return result.ec == std::errc() && result.ptr == end && std::isfinite(value);
}

// One function for each trace format. The reader stands after the first line, which is
// given apart because the format was told from it.
#pragma once

#include "runtime/trace/LineReader.h"
#include "runtime/trace/Trace.h"

#include <cmath>

namespace llmopt::runtime::trace {

StatusOr<Trace> readJsonLines(LineReader &reader, std::string_view first, uint64_t limit);
StatusOr<Trace> readAzure(LineReader &reader, std::string_view header, uint64_t limit);
StatusOr<Trace> readArxiv(LineReader &reader, std::string_view header, const TraceOptions &options);
StatusOr<Trace> sampleServeGen(const std::string &ratesPath, const std::string &lengthsPath,
                               const TraceOptions &options);

inline constexpr std::string_view kAzureHeader = "TIMESTAMP,ContextTokens,GeneratedTokens";
inline constexpr std::string_view kArxivHeader = "num_prefill_tokens,num_decode_tokens";
inline constexpr std::string_view kServeGenHeader = "client,time_s,rate_per_s";

/// In order of arrival; equal arrivals stay in the file's order.
void sortByArrival(std::vector<TraceRequest> &requests);

/// Numbers from a seed, alike on every machine (the distributions of <random> are not).
class Random {
public:
  explicit Random(uint64_t seed) : state(seed) {}
  uint64_t bits();
  double uniform() { return (double(bits() >> 11) + 0.5) * 0x1p-53; } ///< in (0, 1)
  double exponential() { return -std::log(uniform()); }
  double normal();
  double gamma(double shape); ///< scale 1; Marsaglia and Tsang 2000

private:
  uint64_t state;
};

/// Cuts `line` at commas into exactly N fields; false when it has another number.
template <size_t N> bool split(std::string_view line, std::string_view (&fields)[N]) {
  for (size_t i = 0; i < N; ++i) {
    size_t comma = line.find(',');
    if ((comma == std::string_view::npos) != (i + 1 == N))
      return false;
    fields[i] = line.substr(0, comma);
    line.remove_prefix(comma == std::string_view::npos ? line.size() : comma + 1);
  }
  return true;
}

/// A whole field as a number; false where it is none or does not fit.
bool parseNumber(std::string_view text, int64_t &value);
bool parseNumber(std::string_view text, double &value);

} // namespace llmopt::runtime::trace

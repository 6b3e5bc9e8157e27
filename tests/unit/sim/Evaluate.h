// One instruction on a table of inputs: what instruction tests are made of.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace llmopt::sim::test {

/// Inputs (bits, as many as the instruction has) and the expected result.
struct Row {
  std::vector<uint64_t> in;
  uint64_t out = 0;
};

/// Results of "OP d, a, b, ...;", one thread for each row of inputs. Types are
/// those of registers: "b16", "b32", "b64", "f32", "f64", "pred" (0 or 1).
/// An OP that contains "$d" is taken as the whole text, with $d, $a, $b, $c, $e
/// for the registers.
std::vector<uint64_t> evaluate(const std::string &op, const std::string &result,
                               const std::vector<std::string> &sources,
                               const std::vector<std::vector<uint64_t>> &inputs);

/// Expects the results of the table; failures name instruction and row.
void expectRows(const std::string &op, const std::string &result,
                const std::vector<std::string> &sources, const std::vector<Row> &rows);

inline uint64_t bits(float x) { return std::bit_cast<uint32_t>(x); }
inline uint64_t bits(double x) { return std::bit_cast<uint64_t>(x); }
inline uint64_t bits(int32_t x) { return static_cast<uint32_t>(x); }
inline uint64_t bits(int64_t x) { return static_cast<uint64_t>(x); }
inline float toFloat(uint64_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x)); }
inline double toDouble(uint64_t x) { return std::bit_cast<double>(x); }

inline constexpr uint64_t kNan = 0x7fffffff;   ///< the NaN of f32 results
inline constexpr uint64_t kQuiet = 0x7fc12345; ///< some NaN as an input
inline constexpr uint64_t kInf = 0x7f800000;
inline constexpr uint64_t kNegInf = 0xff800000;
inline constexpr uint64_t kNegZero = 0x80000000;
inline constexpr uint64_t kTiny = 0x00000001;      ///< 2^-149
inline constexpr uint64_t kSubnormal = 0x007fffff; ///< the largest one
inline constexpr uint64_t kNormal = 0x00800000;    ///< 2^-126
inline constexpr uint64_t kLargest = 0x7f7fffff;

} // namespace llmopt::sim::test

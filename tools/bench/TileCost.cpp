#include "tools/bench/TileCost.h"

#include "tools/llm-opt/Prepare.h"
#include "tools/llm-opt/SpecFile.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

namespace llmopt::bench {
namespace {

/// K and V of one head in some cache, and beyond all caches.
constexpr int64_t kKeysInCache = 4096, kKeysInMemory = 262144;

/// One sequence with as many queries as the only kernel's tile has rows: one item, all keys.
std::string specOf(const std::string &type, int64_t d, int64_t rows) {
  return fmt::format(
      "func.func @tiles(%q: tensor<?x1x{0}x{1}>, %kv: !attn.kv_cache<1x{0}x{1}, page = 16>, "
      "%seq: !attn.sequences) -> tensor<?x1x{0}x{1}> {{\n"
      "  %o = attn.attention %q, %kv, %seq schedule(rows = {2}) : tensor<?x1x{0}x{1}>, "
      "!attn.kv_cache<1x{0}x{1}, page = 16>, !attn.sequences -> tensor<?x1x{0}x{1}>\n"
      "  return %o : tensor<?x1x{0}x{1}>\n}}\n",
      d, type, rows);
}

struct TileCost {
  double microseconds, units; ///< of one tile: measured, and the bundle's number
};

/// The least processor time of 7 rounds, so that what else the machine does counts little.
llvm::Expected<TileCost> measure(const std::string &type, int64_t d, int64_t rows, int64_t keys) {
  std::unique_ptr<cli::SpecFile> file = cli::SpecFile::parse(specOf(type, d, rows), "tiles");
  if (!file)
    return llvm::createStringError("the benchmark's spec does not parse");
  llvm::Expected<cli::Prepared> prepared = cli::prepare(file->specs().front());
  if (!prepared)
    return prepared.takeError();
  harness::Shape shape;
  shape.queryLengths = {rows};
  shape.keyLengths = {keys};
  llvm::Expected<cli::PreparedCall> ready = cli::prepareCall(prepared->spec, shape);
  if (!ready)
    return ready.takeError();
  const bundle::Kernel &kernel = prepared->runner->program().kernels.front();
  unsigned repeats = unsigned(std::max<int64_t>(1, 400 * kKeysInCache / ((rows + 8) * keys)));
  double best = 1e30;
  for (int round = 0; round < 7; ++round) {
    // What is not a run of the kernel (binding, the plan) cancels.
    double times[2];
    for (unsigned times1 : {0u, 1u}) {
      double start = processorSeconds();
      if (llvm::Error error = prepared->runner->run(ready->call, nullptr, 1 + times1 * repeats))
        return error;
      times[times1] = processorSeconds() - start;
    }
    best = std::min(best, (times[1] - times[0]) / repeats);
  }
  return TileCost{best * 1e6 * kernel.tileKeys / double(keys), kernel.costPerTile};
}

} // namespace

double processorSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

llvm::Error printTileCosts(const std::string &filter) {
  fmt::print("us of one core for a tile of {} and {} keys in all\n", kKeysInCache, kKeysInMemory);
  fmt::print("{:<6}{:>5}{:>6}{:>10}{:>10}{:>16}\n", "type", "d", "rows", "cache", "memory",
             "bundle's cost");
  for (const char *type : {"bf16", "f16", "f32"})
    for (int64_t d : {64, 128})
      for (int64_t rows : {1, 4, 8, 16, 64, 192}) {
        std::string name = fmt::format("{} d{} {} rows", type, d, rows), line;
        double units = 0;
        for (auto [place, keys] : {std::pair("cache", kKeysInCache), {"memory", kKeysInMemory}}) {
          if (fmt::format("{} {}", name, place).find(filter) == std::string::npos) {
            line += fmt::format("{:>10}", "");
            continue;
          }
          llvm::Expected<TileCost> cost = measure(type, d, rows, keys);
          if (!cost)
            return cost.takeError();
          units = cost->units;
          line += fmt::format("{:>10.2f}", cost->microseconds);
        }
        if (units > 0)
          fmt::print("{:<6}{:>5}{:>6}{}{:>16.2f}\n", type, d, rows, line, units);
      }
  return llvm::Error::success();
}

} // namespace llmopt::bench

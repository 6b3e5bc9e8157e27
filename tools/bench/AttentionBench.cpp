// attention-bench: attention on the CPU beside the machine's limits, which are measured in
// the same run. Prints a line a case: time, rate, share of the limit and the mark that the
// project holds itself to. Packing and page gather count; planning does not: the plan of a batch is
// made once, as a server would for all layers of a step.
#include "runtime/bundle/BundleIO.h"
#include "runtime/device/cpu/CpuProgram.h"
#include "runtime/device/cpu/ThreadPool.h"
#include "tools/bench/Roof.h"
#include "tools/bench/TileCost.h"
#include "tools/llm-opt/Prepare.h"
#include "tools/llm-opt/SpecFile.h"
#include "tools/llm-opt/Work.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <chrono>
#include <tuple>

namespace llmopt::cli {
namespace {

struct Case {
  std::string name;
  std::string spec; ///< IR text with one function
  std::vector<int64_t> queries, keys;
  enum class Limit { Fma, Bf16Dot, Read } limit;
  double mark = 0; ///< share of the limit to reach; 0: none
};

std::string tensor(const std::string &extents, int64_t heads, int64_t d, const std::string &type) {
  return fmt::format("tensor<{}x{}x{}x{}>", extents, heads, d, type);
}

/// Dense (1, L, H, D) attention.
std::string denseSpec(int64_t heads, int64_t d, const std::string &type, const std::string &mask) {
  std::string t = tensor("?x?", heads, d, type);
  return fmt::format(
      "func.func @bench(%q: {0}, %k: {0}, %v: {0}) -> {0} {{\n"
      "  %o = attn.attention %q, %k, %v {1} : {0}, {0}, {0} -> {0}\n  return %o : {0}\n}}\n",
      t, mask);
}

std::string pagedSpec(int64_t heads, int64_t kvHeads, int64_t d, const std::string &type,
                      int64_t page, const std::string &mask, const std::string &layout = "") {
  std::string t = tensor("?", heads, d, type);
  std::string cache =
      fmt::format("!attn.kv_cache<{}x{}x{}, page = {}{}>", kvHeads, d, type, page, layout);
  return fmt::format("func.func @bench(%q: {0}, %kv: {1}, %seq: !attn.sequences) -> {0} {{\n"
                     "  %o = attn.attention %q, %kv, %seq {2} : {0}, {1}, !attn.sequences -> {0}\n"
                     "  return %o : {0}\n}}\n",
                     t, cache, mask);
}

std::vector<Case> prefillCases() {
  std::vector<Case> cases;
  for (int64_t d : {64, 128}) {
    double mark = d == 64 ? 0.75 : 0.70;
    auto add = [&](const std::string &name, std::string spec, Case::Limit limit, double share) {
      cases.push_back(
          {fmt::format("prefill {} d{}", name, d), std::move(spec), {2048}, {2048}, limit, share});
    };
    add("f32 dense", denseSpec(8, d, "f32", ""), Case::Limit::Fma, mark);
    add("f32 dense causal", denseSpec(8, d, "f32", "mask(causal)"), Case::Limit::Fma, 0.85 * mark);
    add("f32 paged16", pagedSpec(8, 8, d, "f32", 16, ""), Case::Limit::Fma, 0.9 * mark);
    add("f32 paged16 causal", pagedSpec(8, 8, d, "f32", 16, "mask(causal)"), Case::Limit::Fma, 0);
    add("bf16 dense", denseSpec(8, d, "bf16", ""), Case::Limit::Bf16Dot, 0.60);
  }
  return cases;
}

std::vector<Case> decodeCases() {
  std::vector<Case> cases;
  auto add = [&](const std::string &name, int64_t heads, int64_t kvHeads, int64_t page,
                 std::vector<int64_t> keys, double mark, bool headMajor = false) {
    std::vector<int64_t> queries(keys.size(), 1);
    cases.push_back({"decode bf16 d128 " + name + (headMajor ? " head-major" : ""),
                     pagedSpec(heads, kvHeads, 128, "bf16", page, "mask(causal)",
                               headMajor ? ", head_major" : ""),
                     queries, std::move(keys), Case::Limit::Read, mark});
  };
  std::vector<int64_t> even(16, 4096), skewed(16, 128);
  skewed[0] = 65536;
  add("MHA 16x4096", 4, 4, 16, even, 0.60);
  add("GQA4 16x4096", 16, 4, 16, even, 0.60);
  add("GQA8 16x4096", 32, 4, 16, even, 0.60);
  add("GQA4 65536+15x128", 16, 4, 16, skewed, 0.55);
  add("GQA4 65536+15x128 page 1", 16, 4, 1, skewed, 0.55);
  add("MHA 16x4096", 4, 4, 16, even, 0.60, true);
  add("GQA4 16x4096", 16, 4, 16, even, 0.60, true);
  add("GQA8 16x4096", 32, 4, 16, even, 0.60, true);
  add("GQA4 65536+15x128", 16, 4, 16, skewed, 0.55, true);
  return cases;
}

llvm::Error runCase(const Case &one) {
  std::unique_ptr<SpecFile> file = SpecFile::parse(one.spec, one.name);
  if (!file)
    return llvm::createStringError("the benchmark's spec does not parse");
  mlir::func::FuncOp function = file->specs().front();
  llvm::Expected<Prepared> prepared = prepare(function);
  if (!prepared)
    return prepared.takeError();
  harness::Shape wanted;
  wanted.queryLengths = one.queries;
  wanted.keyLengths = one.keys;
  llvm::Expected<PreparedCall> ready = prepareCall(prepared->spec, wanted);
  if (!ready)
    return ready.takeError();
  Work work = workOf(prepared->runner->program(), ready->shape, ready->call);
  double amount = one.limit == Case::Limit::Read ? work.keyBytes + work.queryBytes : work.flops;
  auto limitOf = [&](const bench::Roof &roof) {
    return one.limit == Case::Limit::Read      ? roof.readBytes
           : one.limit == Case::Limit::Bf16Dot ? roof.bf16DotFlops
                                               : roof.fmaFlops;
  };
  // A shared machine's speed changes within seconds: each round is compared with the limit
  // right before and after it, and the middle one counts.
  struct Round {
    double share, rate, limit, seconds;
  };
  std::vector<Round> rounds;
  unsigned threads = runtime::ThreadPool::defaultThreads();
  double before = limitOf(bench::measureRoof(threads));
  for (int r = 0; r < 5; ++r) {
    RunFigures figures;
    if (llvm::Error error = prepared->runner->run(ready->call, &figures, 5))
      return error;
    double after = limitOf(bench::measureRoof(threads)), limit = (before + after) / 2;
    double rate = amount / figures.run;
    rounds.push_back({limit > 0 ? rate / limit : 0, rate, limit, figures.run});
    before = after;
  }
  llvm::sort(rounds, [](const Round &x, const Round &y) {
    return std::tie(x.share, x.rate) < std::tie(y.share, y.rate);
  });
  const Round &middle = rounds[rounds.size() / 2];
  fmt::print("{:<38}{:>10.2f} ms{:>9.1f} {:<8}", one.name, middle.seconds * 1e3, middle.rate / 1e9,
             one.limit == Case::Limit::Read ? "GB/s" : "GFLOP/s");
  if (middle.limit > 0)
    fmt::print("{:>4.0f} % of {:.1f} ({:.0f} to {:.0f} %)", middle.share * 100, middle.limit / 1e9,
               rounds.front().share * 100, rounds.back().share * 100);
  if (one.mark > 0 && middle.limit > 0)
    fmt::print("   mark {:.0f} %: {}", one.mark * 100,
               middle.share >= one.mark ? "reached" : "missed");
  fmt::print("\n");
  return llvm::Error::success();
}

struct Milliseconds {
  double wall = 1e30, processor = 1e30;
};

/// The least of each.
Milliseconds millisecondsOf(const std::function<void()> &work, int repeats) {
  Milliseconds best;
  for (int r = 0; r < repeats; ++r) {
    auto start = std::chrono::steady_clock::now();
    double busy = bench::processorSeconds();
    work();
    std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
    best.wall = std::min(best.wall, spent.count());
    best.processor = std::min(best.processor, (bench::processorSeconds() - busy) * 1e3);
  }
  return best;
}

/// Spec to callable, and saved object to callable.
llvm::Error runLatency() {
  std::string text = pagedSpec(32, 8, 128, "bf16", 16, "mask(causal)");
  llvm::Error failure = llvm::Error::success();
  std::vector<uint8_t> saved;
  Milliseconds compile = millisecondsOf(
      [&] {
        std::unique_ptr<SpecFile> file = SpecFile::parse(text, "latency");
        llvm::Expected<std::unique_ptr<Runner>> runner = Runner::compile(file->specs().front());
        if (runner)
          saved = bundle::serialize((*runner)->program());
        else
          failure = llvm::joinErrors(std::move(failure), runner.takeError());
      },
      5);
  if (failure)
    return failure;
  Milliseconds load = millisecondsOf(
      [&] {
        runtime::StatusOr<bundle::Program> program = bundle::deserialize(saved);
        if (program)
          (void)runtime::CpuProgram::load(std::move(*program));
      },
      5);
  auto print = [](const char *what, const Milliseconds &spent, int mark) {
    fmt::print("{:<38}{:>10.1f} ms   mark {} ms; {:.1f} ms of processor time\n", what, spent.wall,
               mark, spent.processor);
  };
  print("spec text to callable, bf16 d128", compile, 100);
  print("saved bundle to callable", load, 5);
  return llvm::Error::success();
}

int run(int argc, char **argv) {
  CLI::App app{"Attention on the CPU beside the machine's limits", "attention-bench"};
  std::string filter;
  app.add_option("FILTER", filter, "only cases whose name holds this");
  bool tileCosts = false;
  app.add_flag("--tiles", tileCosts,
               "only what a key tile costs, by rows (\"bf16 d128 8 rows\", \"... rows cache\"); "
               "LLMOPT_THREADS=1 for it");
  CLI11_PARSE(app, argc, argv);
  if (runtime::Status status = runtime::ThreadPool::checkEnvironment(); !status.ok())
    return fail("bench", status.message());
  if (tileCosts) {
    llvm::Error error = bench::printTileCosts(filter);
    return error ? fail("tiles", std::move(error)) : 0;
  }
  bench::Roof roof = bench::measureRoof(runtime::ThreadPool::defaultThreads());
  fmt::print("{} threads, {}: FMA {:.0f} GFLOP/s, ", roof.threads, roof.isa, roof.fmaFlops / 1e9);
  if (roof.bf16DotFlops > 0)
    fmt::print("bf16 dot {:.0f} GFLOP/s, ", roof.bf16DotFlops / 1e9);
  fmt::print("read {:.1f} GB/s", roof.readBytes / 1e9);
  if (roof.handOverSeconds > 0)
    fmt::print(", a line from thread to thread {:.0f} ns", roof.handOverSeconds * 1e9);
  fmt::print("\n");
  std::vector<Case> cases = prefillCases(), decode = decodeCases();
  cases.insert(cases.end(), decode.begin(), decode.end());
  for (const Case &one : cases)
    if (one.name.find(filter) != std::string::npos)
      if (llvm::Error error = runCase(one))
        return fail(one.name, std::move(error));
  if (llvm::Error error = runLatency())
    return fail("latency", std::move(error));
  return 0;
}

} // namespace
} // namespace llmopt::cli

int main(int argc, char **argv) { return llmopt::cli::run(argc, argv); }

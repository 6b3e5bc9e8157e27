// llm-opt fuzz: random valid specs, compiled and held against the oracle.
#include "tools/harness/Cases.h"
#include "tools/harness/SpecGenerator.h"
#include "tools/llm-opt/Command.h"
#include "tools/llm-opt/Options.h"
#include "tools/llm-opt/Place.h"
#include "tools/llm-opt/Runner.h"
#include "tools/llm-opt/SpecFile.h"
#include "tools/llm-opt/Validators.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <map>

namespace llmopt::cli {
namespace {

struct Tally {
  int64_t passed = 0, failed = 0, cases = 0;
  std::map<std::string, int64_t> refused; ///< reason -> specs
};

uint64_t specSeed(uint64_t seed, int64_t n) { return seed * 1000003 + n; }

/// One spec: empty when it passed or was refused, else what went wrong.
std::string tryOne(uint64_t seed, int64_t shapes, const Place &place, Tally &tally) {
  std::string text = harness::randomSpec(seed);
  std::unique_ptr<SpecFile> file = SpecFile::parse(text, fmt::format("spec {}", seed));
  if (!file)
    return "the generated spec does not parse";
  mlir::func::FuncOp function = specsOf(file->module()).front();
  llvm::Expected<harness::Spec> spec = harness::specOf(function);
  if (!spec)
    return llvm::toString(spec.takeError());
  llvm::Expected<std::unique_ptr<Runner>> runner = Runner::compile(function, place);
  if (!runner) {
    ++tally.refused[llvm::toString(runner.takeError())];
    return "";
  }
  for (const harness::Case &one : harness::randomShapes(*spec, shapes, seed)) {
    llvm::Expected<harness::CaseResult> result =
        harness::runCase(*spec, one, [&](harness::Call &call) { return (*runner)->run(call); });
    if (!result)
      return fmt::format("case '{}': {}", one.name, llvm::toString(result.takeError()));
    ++tally.cases;
    if (!result->report.passed)
      return fmt::format("case '{}': {}", one.name, result->report.failure);
  }
  ++tally.passed;
  return "";
}

} // namespace

int fuzzCommand(int argc, char **argv) {
  CLI::App app{"Compile and run random valid specs and compare with the oracle", "llm-opt fuzz"};
  uint64_t seed = 1;
  int64_t first = 0, count = 100, shapes = 2, print = -1;
  std::string device = "auto";
  bool json = false, keepGoing = false;
  app.add_option("--seed", seed, "of all specs; spec n has a seed made of this one and n")
      ->check(notNegative());
  app.add_option("--first", first, "number of the first spec, to run a part of a seed's specs")
      ->check(notNegative());
  app.add_option("--count", count, "specs")->check(positive());
  app.add_option("--shapes", shapes, "random shapes for each spec")->check(positive());
  app.add_option("--device", device, kDeviceHelp);
  app.add_flag("--keep-going", keepGoing, "go on after a miss");
  app.add_flag("--json", json, "print the result as JSON");
  app.add_option("--print", print, "only print spec number N");
  if (std::optional<int> code = parseOptions(app, argc, argv))
    return *code;
  if (print >= 0) {
    fmt::print("{}", harness::randomSpec(specSeed(seed, print)));
    return 0;
  }
  llvm::Expected<Place> place = openPlace(device, /*cached=*/false);
  if (!place)
    return fail("fuzz", place.takeError());
  Tally tally;
  for (int64_t n = first; n < first + count && (keepGoing || !tally.failed); ++n) {
    std::string problem = tryOne(specSeed(seed, n), shapes, *place, tally);
    if (problem.empty())
      continue;
    ++tally.failed;
    fmt::print(stderr, "llm-opt fuzz: --seed {} spec {}: {}\n{}\n", seed, n, problem,
               harness::randomSpec(specSeed(seed, n)));
  }
  int64_t refused = 0;
  for (const auto &[reason, specs] : tally.refused)
    refused += specs;
  if (!tally.passed && !tally.failed) {
    fmt::print(stderr, "llm-opt fuzz: no spec ran, all {} were refused: {}\n", refused,
               tally.refused.begin()->first);
    return 1;
  }
  if (json) {
    nlohmann::json result = {{"passed", tally.passed},
                             {"failed", tally.failed},
                             {"cases", tally.cases},
                             {"refused", tally.refused}};
    fmt::print("{}\n", result.dump());
  } else {
    for (const auto &[reason, specs] : tally.refused)
      fmt::print("refused {}: {}\n", specs, reason);
    fmt::print("{} specs passed on {} cases, {} refused, {} failed\n", tally.passed, tally.cases,
               refused, tally.failed);
  }
  return tally.failed ? 1 : 0;
}

} // namespace llmopt::cli

// llm-opt verify: a spec on a device against the float64 oracle, on random and on hard
// shapes, all of them with one compiled program.
#include "tools/harness/Cases.h"
#include "tools/llm-opt/Command.h"
#include "tools/llm-opt/Options.h"
#include "tools/llm-opt/Place.h"
#include "tools/llm-opt/Prepare.h"
#include "tools/llm-opt/Replays.h"
#include "tools/llm-opt/ShapeOption.h"
#include "tools/llm-opt/SpecFile.h"
#include "tools/llm-opt/Validators.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace llmopt::cli {
namespace {

struct Options {
  std::vector<std::string> specs;
  std::string device = "auto", function, cases = "random";
  std::string shape;
  uint64_t seed = 1;
  int64_t count = 20;
  bool json = false, graph = false;
};

struct Outcome {
  int64_t passed = 0, failed = 0, refused = 0;
};

std::string describe(const harness::Report &report) {
  double share =
      report.rowsTotal ? 100.0 * double(report.rowsChecked) / double(report.rowsTotal) : 100;
  return fmt::format("{} of {} rows ({:.3g} %), worst error {:.3f} of the tolerance",
                     report.rowsChecked, report.rowsTotal, share, report.worst);
}

llvm::Expected<std::vector<harness::Case>> casesOf(const harness::Spec &spec,
                                                   const Options &options) {
  if (!options.shape.empty()) {
    llvm::Expected<harness::Shape> shape = parseShape(options.shape, options.seed);
    if (!shape)
      return shape.takeError();
    // Dense arrays have one length for all: what would run is not what was asked for.
    llvm::Expected<harness::Shape> fitted = harness::fit(spec, *shape);
    if (!fitted)
      return fitted.takeError();
    if (lengthsText(*fitted) != lengthsText(*shape))
      return llvm::createStringError(
          fmt::format("--shape {}: the spec's types have no such lengths; the nearest that they "
                      "have is {}",
                      lengthsText(*shape), lengthsText(*fitted)));
    harness::Case given;
    given.name = "given shape";
    given.shape = std::move(*shape);
    return std::vector<harness::Case>{std::move(given)};
  }
  std::vector<harness::Case> cases = harness::randomShapes(spec, options.count, options.seed);
  if (options.cases == "hard") {
    std::vector<harness::Case> hard = harness::hardCases(spec);
    cases.insert(cases.end(), hard.begin(), hard.end());
  }
  return cases;
}

void print(const Options &options, const std::string &spec, const std::string &name,
           const harness::Shape &shape, const harness::CaseResult &result) {
  const harness::Report &report = result.report;
  if (options.json) {
    nlohmann::json line = {{"spec", spec},
                           {"case", name},
                           {"query_lengths", shape.queryLengths},
                           {"key_lengths", shape.keyLengths},
                           {"passed", report.passed},
                           {"refused", result.refused},
                           {"rows_checked", report.rowsChecked},
                           {"rows", report.rowsTotal},
                           {"worst", report.worst},
                           {"worst_lse", report.worstLse},
                           {"failure", report.failure}};
    fmt::print("{}\n", line.dump());
    return;
  }
  const char *word = result.refused ? "refused" : report.passed ? "ok" : "FAILED";
  fmt::print("  {:<8}{:<40} {}, {}\n", word, name, lengthsText(shape),
             result.refused ? "not run" : describe(report));
  if (!report.passed)
    fmt::print("          {}\n", report.failure);
}

llvm::Error verifySpec(mlir::func::FuncOp function, const std::string &path, const Options &options,
                       const Place &place, Outcome &outcome) {
  llvm::Expected<Prepared> prepared = prepare(function, place);
  if (!prepared)
    return prepared.takeError();
  const auto &[spec, runner] = *prepared;
  llvm::Expected<std::vector<harness::Case>> cases = casesOf(spec, options);
  if (!cases)
    return cases.takeError();
  std::string name = fmt::format("{} @{}", path, function.getName().str());
  if (!options.json)
    fmt::print("{} ({})\n", name, runner->compileText());
  for (const harness::Case &one : *cases) {
    llvm::Expected<harness::Shape> shape = harness::fit(spec, one.shape);
    if (!shape)
      return llvm::createStringError(
          fmt::format("{}: case '{}': {}", name, one.name, llvm::toString(shape.takeError())));
    llvm::Expected<harness::CaseResult> result =
        options.graph ? runReplays(spec, one, *runner)
                      : harness::runCase(spec, one, [&](harness::Call &call) {
                          return prepared->runner->run(call);
                        });
    if (!result)
      return llvm::createStringError(
          fmt::format("{}: case '{}': {}", name, one.name, llvm::toString(result.takeError())));
    print(options, name, one.name, *shape, *result);
    ++(result->refused ? outcome.refused : result->report.passed ? outcome.passed : outcome.failed);
  }
  return llvm::Error::success();
}

} // namespace

int verifyCommand(int argc, char **argv) {
  CLI::App app{"Run a spec on random and hard inputs and compare with the float64 oracle",
               "llm-opt verify"};
  Options options;
  app.add_option("SPEC", options.specs, "attn IR files, or - for standard input")->required();
  app.add_option("--device", options.device, kDeviceHelp);
  app.add_option("--func", options.function, "the spec function; default: all of a file");
  CLI::Option *shape = app.add_option("--shape", options.shape, kShapeHelp);
  app.add_option("--seed", options.seed, "of the random data and shapes")->check(notNegative());
  app.add_option("--count", options.count, "random shapes, all on one compiled program (20)")
      ->check(positive());
  app.add_option("--cases", options.cases, "random, or hard: the shapes that break kernels as well")
      ->excludes(shape);
  app.add_flag("--graph", options.graph,
               "capture the launches of each case, and replay them for its batch and for others "
               "of the same size: shorter, with padding");
  app.add_flag("--json", options.json, "one JSON object a case");
  app.footer("A row is one query token and one of its heads; of large cases a sample is checked.\n"
             "Each row has a tolerance that follows from the number formats, the keys it sees and\n"
             "the size of its scores (dialect/reference/Tolerance.h has the rule and why).\n"
             "'worst error 0.3 of the tolerance': no element was off by more than 30 % of what\n"
             "its row allows. Above 1 a case fails, and llm-opt exits with 1.");
  if (std::optional<int> code = parseOptions(app, argc, argv))
    return *code;
  llvm::Expected<Place> place = openPlace(options.device, /*cached=*/true);
  if (!place)
    return fail("verify", place.takeError());
  if (options.cases != "random" && options.cases != "hard")
    return fail("verify",
                fmt::format("--cases is '{}'; random and hard can be had", options.cases));
  Outcome outcome;
  for (const std::string &path : options.specs) {
    std::unique_ptr<SpecFile> file = SpecFile::open(path);
    std::vector<mlir::func::FuncOp> specs =
        file ? file->specs(options.function) : std::vector<mlir::func::FuncOp>();
    if (specs.empty())
      return 1;
    for (mlir::func::FuncOp spec : specs)
      if (llvm::Error error = verifySpec(spec, path, options, *place, outcome))
        return fail("verify", std::move(error));
  }
  if (!options.json)
    fmt::print("{} passed, {} failed{}\n", outcome.passed, outcome.failed,
               outcome.refused ? fmt::format(", {} refused", outcome.refused) : "");
  return outcome.failed ? 1 : 0;
}

} // namespace llmopt::cli

// The mutation suite: makes wrong kernels of right ones and counts which of them the simulator
// catches: by a fault, by wrong numbers, or by a gate that generated kernels are held to
// (sim-gates): K and V bytes, tiles visited and tiles masked as the plan predicts, and no bank
// conflict of ldmatrix and cp.async.
//
//   mutants [--seed HEX] [--each N] [--clean N] [--op NAME] [--verbose]
//   mutants --sites    how many places each rule changes, and in how many kinds of lines
//
// Runs the unmutated kernels in some orders (3), then draws N mutants (5) of each operator. Exit
// code 1 if fewer than 95 % of those that are not proven equivalent (equivalent.txt) are caught, if
// more than 10 % are excused, if an operator has fewer than N sites or one of its rules none, or if
// an unmutated kernel has a fault; 77 without NVRTC.
#include "codegen/compile/Compile.h"
#include "codegen/cuda/nvrtc/Nvrtc.h"
#include "runtime/device/sim/SimDevice.h"
#include "tests/mutants/Operators.h"
#include "tests/mutants/Specs.h"
#include "tests/support/Compiler.h"
#include "tools/harness/Cases.h"
#include "tools/llm-opt/Options.h"
#include "tools/llm-opt/Runner.h"
#include "tools/llm-opt/Traffic.h"
#include "tools/llm-opt/Work.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <random>
#include <regex>
#include <set>

namespace llmopt::mutants {
namespace {

using test::valueOf;

struct Outcome {
  enum class Kind { Survived, Fault, Numbers, Gate } kind = Kind::Survived;
  std::string detail;
};

class Subject {
public:
  Subject(const Given &given, mlir::MLIRContext &context)
      : name(given.name), shapes(given.shapes()),
        module(mlir::parseSourceString<mlir::ModuleOp>(given.spec, &context)) {
    if (!module)
      throw std::runtime_error("a spec does not parse");
    spec = valueOf(harness::findSpec(*module));
    auto function = llvm::cast<mlir::func::FuncOp>(spec.function);
    CompileOptions options = valueOf(optionsFor("cuda:sm_80"));
    options.ptxOnly = true;
    program = valueOf(compileSpec(function, options));
    checkCosts();
    splitTexts(valueOf(stageText(function, Stage::Cuda, options)));
  }

  std::string name;
  /// The texts of the kernels, in the program's order.
  std::vector<std::string> texts;
  const std::string &entry(size_t kernel) const { return program.kernels[kernel].entry; }

  /// Runs all shapes with another PTX for one kernel (none: as compiled).
  Outcome judge(std::optional<size_t> kernel, const std::string &ptx, uint64_t seed,
                uint32_t orders);

private:
  void splitTexts(const std::string &all);
  void checkCosts() const;
  /// Runs one shape.
  Outcome judge(cli::Runner &runner, runtime::SimDevice &device, const harness::Shape &shape);

  std::vector<harness::Shape> shapes;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  harness::Spec spec;
  bundle::Program program;
};

/// What a proof in equivalent.txt rests on: which rows the planner gives to which kernel.
void Subject::checkCosts() const {
  std::map<uint32_t, double> costs;
  for (const bundle::Kernel &kernel : program.kernels)
    if (kernel.kind == bundle::KernelKind::Attend)
      costs[kernel.tileRows] = kernel.costPerTile;
  if (costs.size() != 2 || 2 * costs[16] <= costs[64])
    throw std::runtime_error(
        "equivalent.txt: a tile of 16 rows does not cost more than half of one "
        "of 64 rows any more in spec " +
        name);
}

void Subject::splitTexts(const std::string &all) {
  size_t begin = std::string::npos;
  for (const bundle::Kernel &kernel : program.kernels) {
    size_t at = all.find("// " + kernel.entry + ", for ");
    if (at == std::string::npos)
      throw std::runtime_error("no text of kernel " + kernel.entry);
    if (begin != std::string::npos)
      texts.push_back(all.substr(begin, at - begin));
    begin = at;
  }
  texts.push_back(all.substr(begin));
}

Outcome Subject::judge(std::optional<size_t> kernel, const std::string &ptx, uint64_t seed,
                       uint32_t orders) {
  bundle::Program changed = program;
  if (kernel) {
    std::vector<uint32_t> images = changed.kernels[*kernel].otherImages;
    images.push_back(changed.kernels[*kernel].image);
    for (uint32_t image : images)
      if (changed.images[image].format == bundle::ImageFormat::Ptx)
        changed.images[image].bytes.assign(ptx.begin(), ptx.end());
  }
  sim::Options options;
  options.seed = seed;
  options.orders = orders;
  options.stepBudget = 20'000'000;
  auto device = runtime::SimDevice::create(*runtime::CudaArch::parse("sm_80"), options);
  std::unique_ptr<cli::Runner> runner =
      valueOf(cli::Runner::load({std::move(changed)}, {.device = device, .cache = nullptr}));
  device->startProfiling();
  for (const harness::Shape &shape : shapes)
    if (Outcome outcome = judge(*runner, *device, shape); outcome.kind != Outcome::Kind::Survived)
      return outcome;
  return {};
}

Outcome Subject::judge(cli::Runner &runner, runtime::SimDevice &device,
                       const harness::Shape &shape) {
  harness::Call call = valueOf(harness::generate(spec, valueOf(harness::fit(spec, shape))));
  cli::RunFigures figures;
  if (llvm::Error error = runner.run(call, &figures))
    return {Outcome::Kind::Fault, llvm::toString(std::move(error))};
  harness::Report report = valueOf(harness::check(spec, call));
  if (!report.passed)
    return {Outcome::Kind::Numbers, report.failure};
  cli::Profiles profiles = device.takeProfiles();
  cli::Prediction predicted = cli::predict(program, figures.plan, call);
  double keys = cli::trafficOf(program, profiles).keys;
  if (keys != predicted.keyBytes)
    return {Outcome::Kind::Gate,
            fmt::format("{} bytes of K and V; the plan predicts {}", keys, predicted.keyBytes)};
  cli::TileClasses tiles;
  for (const cli::TileClasses &each : predicted.tiles)
    tiles.full += each.full, tiles.partial += each.partial;
  if (double(figures.tilesVisited) != tiles.visited() ||
      double(figures.tilesPredicated) != tiles.partial)
    return {Outcome::Kind::Gate,
            fmt::format("{} tiles, {} of them masked; the plan predicts {} and {}",
                        figures.tilesVisited, figures.tilesPredicated, tiles.visited(),
                        tiles.partial)};
  // Heads of 64 elements: a multiple of what the banks take at once.
  double conflicts = cli::matrixConflicts(profiles);
  if (conflicts > 1)
    return {Outcome::Kind::Gate, fmt::format("bank conflicts: {:.3f} of the ideal", conflicts)};
  return {};
}

/// Mutants that cannot be told from the original, each with its proof.
struct Excuse {
  std::string op, kernels, line, next;
};

std::vector<Excuse> readExcuses() {
  std::vector<Excuse> excuses;
  std::ifstream file(LLMOPT_SOURCE_DIR "/tests/mutants/equivalent.txt");
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.starts_with("#") || line.starts_with(" "))
      continue;
    // The last part is all that is left: a line of text may have a bar.
    std::array<std::string, 4> parts;
    for (size_t i = 0; i < 3; ++i) {
      size_t bar = line.find(" | ");
      if (bar == std::string::npos)
        throw std::runtime_error("equivalent.txt: four parts are wanted in '" + line + "'");
      parts[i] = line.substr(0, bar);
      line.erase(0, bar + 3);
    }
    excuses.push_back({parts[0], parts[1], parts[2], line});
  }
  return excuses;
}

std::string trimmed(std::string text) {
  text.erase(0, text.find_first_not_of(' '));
  return text;
}

/// A line with # for the numbers of names, which change with what stands before it.
std::string unnumbered(const std::string &line) {
  static const std::regex numbers("_\\d+\\b");
  return std::regex_replace(trimmed(line), numbers, "_#");
}

struct Suite {
  std::shared_ptr<const cuda::Nvrtc> nvrtc;
  std::vector<std::unique_ptr<Subject>> subjects;
  std::vector<Excuse> excuses = readExcuses();
  uint64_t seed = 1, cleanSeeds = 3;
  size_t each = 5;
  bool verbose = false;

  /// Code of the texts as they are, by subject and kernel.
  std::map<std::pair<size_t, size_t>, std::string> originals;
  size_t made = 0, excused = 0, skipped = 0;
  bool isShort = false; ///< an operator has too few sites
  std::map<Outcome::Kind, size_t> outcomes;

  /// PTX without the line table, which a mutant's line may change.
  std::optional<std::string> compile(const std::string &text) const {
    auto kernel = nvrtc->compile(
        {.text = text, .name = "mutant.cu", .arch = "compute_80", .options = {}, .lineInfo = true});
    return kernel ? std::optional(kernel->ptx) : std::nullopt;
  }
  static std::string code(const std::string &ptx) {
    std::string kept;
    std::istringstream in(ptx);
    for (std::string line; std::getline(in, line);)
      if (line.find(".loc") == std::string::npos && !line.starts_with("//"))
        kept += line + "\n";
    return kept;
  }

  static bool matches(const Excuse &excuse, const Subject &subject, const Mutant &mutant) {
    return excuse.op == mutant.op && excuse.line == unnumbered(mutant.before) &&
           (excuse.kernels == "*" ||
            subject.entry(mutant.kernel).find(excuse.kernels + "_") != std::string::npos) &&
           (unnumbered(mutant.after).starts_with(excuse.next) ||
            unnumbered(mutant.now) == excuse.next);
  }
  bool excusedBy(const Subject &subject, const Mutant &mutant) const {
    return std::ranges::any_of(excuses,
                               [&](const Excuse &e) { return matches(e, subject, mutant); });
  }
  /// An excuse that no mutant of today's texts needs; none is right.
  const Excuse *staleExcuse() const {
    for (const Excuse &excuse : excuses) {
      bool found = false;
      for (const auto &subject : subjects)
        found |= std::ranges::any_of(mutantsOf(excuse.op, subject->texts),
                                     [&](const Mutant &m) { return matches(excuse, *subject, m); });
      if (!found)
        return &excuse;
    }
    return nullptr;
  }

  /// Prints the sites of every rule if wanted; false if one has none: it is for other texts.
  bool checkRules(bool print) const;
  void run(const std::string &op);
  void judge(Subject &subject, const Mutant &mutant, const std::string &ptx);
};

bool Suite::checkRules(bool print) const {
  struct Sites {
    size_t count = 0;
    std::set<std::string> kinds;
  };
  std::map<std::pair<std::string, std::string>, Sites> rules;
  for (const std::string &op : operators()) {
    for (const std::string &rule : rulesOf(op))
      rules[{op, rule}];
    for (const auto &subject : subjects)
      for (const Mutant &mutant : mutantsOf(op, subject->texts)) {
        Sites &sites = rules[{op, mutant.rule}];
        ++sites.count;
        sites.kinds.insert(unnumbered(mutant.before) + unnumbered(mutant.now));
      }
  }
  bool allLive = true;
  for (const auto &[rule, sites] : rules) {
    allLive &= sites.count > 0;
    if (print || !sites.count)
      fmt::print("{:<15}{:>4} sites, {:>2} kinds: {}\n", rule.first, sites.count,
                 sites.kinds.size(), rule.second);
  }
  return allLive;
}

void Suite::judge(Subject &subject, const Mutant &mutant, const std::string &ptx) {
  Outcome outcome = subject.judge(mutant.kernel, ptx, 0, 1);
  if (outcome.kind == Outcome::Kind::Survived)
    outcome = subject.judge(mutant.kernel, ptx, seed | 1, 2);
  ++made;
  bool survived = outcome.kind == Outcome::Kind::Survived;
  bool isExcused = survived && excusedBy(subject, mutant);
  if (isExcused)
    ++excused;
  else
    ++outcomes[outcome.kind];
  constexpr const char *kNames[] = {"ESCAPED", "fault", "numbers", "gate"};
  fmt::print("{:<15}{:<9}{} {}:{} '{}'\n", mutant.op,
             isExcused ? "excused" : kNames[int(outcome.kind)], subject.name,
             subject.entry(mutant.kernel), mutant.line, trimmed(mutant.before));
  if (survived && !isExcused)
    fmt::print("    now '{}', before '{}'\n", trimmed(mutant.now), trimmed(mutant.after));
  if (verbose && !survived)
    fmt::print("    {}\n", outcome.detail);
  std::fflush(stdout);
}

void Suite::run(const std::string &op) {
  struct Site {
    size_t subject;
    Mutant mutant;
  };
  std::vector<Site> sites;
  for (size_t i = 0; i < subjects.size(); ++i)
    for (Mutant &mutant : mutantsOf(op, subjects[i]->texts))
      sites.push_back({i, std::move(mutant)});
  std::mt19937_64 random(seed * 31 + std::hash<std::string>()(op) % 1000);
  std::shuffle(sites.begin(), sites.end(), random);
  // One of each kind before the second of any: many lines are the same but for their numbers.
  std::vector<Site> ordered, again;
  std::set<std::string> kinds;
  for (Site &site : sites) {
    std::string kind = unnumbered(site.mutant.before) + unnumbered(site.mutant.now);
    (kinds.insert(kind).second ? ordered : again).push_back(std::move(site));
  }
  size_t repeated = again.size();
  std::ranges::move(again, std::back_inserter(ordered));
  size_t done = 0;
  for (size_t i = 0; i < ordered.size(); ++i) {
    const Site &site = ordered[i];
    if (done == each)
      return;
    // What is proven to change nothing is drawn once.
    if (i >= ordered.size() - repeated && excusedBy(*subjects[site.subject], site.mutant)) {
      ++skipped;
      continue;
    }
    Subject &subject = *subjects[site.subject];
    std::optional<std::string> ptx = compile(site.mutant.text);
    std::string &original = originals[{site.subject, site.mutant.kernel}];
    if (original.empty())
      original = code(compile(subject.texts[site.mutant.kernel]).value_or(""));
    // Text that does not compile, or in a function that is not used, is no mutant.
    if (!ptx || code(*ptx) == original)
      continue;
    judge(subject, site.mutant, *ptx);
    ++done;
  }
  isShort |= done < each;
  if (done < each)
    fmt::print("{}: only {} sites\n", op, done);
}

int runSuite(Suite &suite, const std::string &only, bool onlySites) {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  // Outlives the subjects, whose modules belong to it.
  static mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  for (const Given &given : givenSpecs())
    suite.subjects.push_back(std::make_unique<Subject>(given, context));
  if (bool live = suite.checkRules(onlySites); onlySites || !live)
    return live ? 0 : 1;
  if (const Excuse *stale = suite.staleExcuse()) {
    fmt::print("equivalent.txt excuses what is not there any more: {} | {}\n", stale->op,
               stale->line);
    return 1;
  }
  for (const auto &subject : suite.subjects)
    for (uint64_t seed = 0; seed < suite.cleanSeeds; ++seed) {
      Outcome outcome = subject->judge(std::nullopt, "", seed, 1);
      if (outcome.kind == Outcome::Kind::Survived)
        continue;
      fmt::print("the unmutated kernels of spec '{}' fail with seed {}: {}\n", subject->name, seed,
                 outcome.detail);
      return 1;
    }
  fmt::print("unmutated kernels: no fault over {} seeds\n", suite.cleanSeeds);
  for (const std::string &op : operators())
    if (only.empty() || only == op)
      suite.run(op);
  auto count = [&](Outcome::Kind kind) { return suite.outcomes[kind]; };
  size_t caught =
      count(Outcome::Kind::Fault) + count(Outcome::Kind::Numbers) + count(Outcome::Kind::Gate);
  size_t judged = caught + count(Outcome::Kind::Survived);
  double share = judged ? double(caught) / double(judged) : 1;
  auto part = [&](Outcome::Kind kind) {
    return fmt::format("{} ({:.1f} %)", count(kind),
                       100 * double(count(kind)) / double(std::max<size_t>(judged, 1)));
  };
  fmt::print("{} mutants, seed {:x}: {} by faults, {} by numbers, {} by gates, {} escaped, {} "
             "excused; {:.1f} % of those not excused caught ({} more that are excused were not "
             "drawn: of a kind that was)\n",
             suite.made, suite.seed, part(Outcome::Kind::Fault), part(Outcome::Kind::Numbers),
             part(Outcome::Kind::Gate), part(Outcome::Kind::Survived), suite.excused, 100 * share,
             suite.skipped);
  bool enough = share >= 0.95 && double(suite.excused) <= 0.1 * double(suite.made);
  return enough && !suite.isShort ? 0 : 1;
}

} // namespace
} // namespace llmopt::mutants

int main(int argc, char **argv) {
  using namespace llmopt;
  CLI::App app{"Wrong kernels made of right ones: how many does the simulator catch?", "mutants"};
  mutants::Suite suite;
  std::string seed = "1", only;
  bool onlySites = false;
  app.add_option("--seed", seed, "hexadecimal");
  app.add_option("--each", suite.each, "mutants of each operator (5)");
  app.add_option("--clean", suite.cleanSeeds, "seeds that the unmutated kernels run with (3)")
      ->check(cli::positive());
  app.add_option("--op", only, "this operator only");
  app.add_flag("--sites", onlySites, "only how many places each rule changes");
  app.add_flag("--verbose", suite.verbose, "how each was caught");
  if (std::optional<int> code = cli::parseOptions(app, argc, argv))
    return *code;
  suite.seed = std::strtoull(seed.c_str(), nullptr, 16);
  auto nvrtc = cuda::Nvrtc::load();
  if (!nvrtc) {
    fmt::print("skipped: {}\n", nvrtc.status().message());
    return 77;
  }
  suite.nvrtc = *nvrtc;
  try {
    return mutants::runSuite(suite, only, onlySites);
  } catch (const std::exception &error) {
    fmt::print(stderr, "mutants: {}\n", error.what());
    return 1;
  }
}

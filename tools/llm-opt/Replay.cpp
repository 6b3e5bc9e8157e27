// llm-opt replay: a request trace through scheduler, block manager and prefix cache, in
// simulated time or with the kernels of a small model on a device.
#include "tools/llm-opt/Command.h"
#include "tools/llm-opt/DumpJson.h"
#include "tools/llm-opt/Options.h"

#include "runtime/base/File.h"
#include "tools/import/Assign.h"
#include "tools/llm-opt/ReplayDevice.h"
#include "tools/llm-opt/ReplayLayers.h"
#include "tools/llm-opt/ReplayModel.h"
#include "tools/llm-opt/ReplayReport.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <unistd.h>

using namespace llmopt;
using namespace llmopt::cli;
using namespace llmopt::runtime;

namespace {

struct Options {
  std::string trace, model, policy = "fcfs", accelerator = "h100", device = "none";
  std::string html, timeline, prometheus;
  uint32_t pageSize = 16, drafts = 0;
  double hostGigabytes = 0, hostMicroseconds = 50;
  bool json = false, withoutCache = false, withoutSecondLevel = false;
  TraceOptions reading;
  ReplayOptions replay;
};

Status writeText(const std::string &path, const std::string &text) {
  return writeFileAtomic(path, {reinterpret_cast<const uint8_t *>(text.data()), text.size()});
}

/// The options of a replay that are not plain numbers.
Status settle(Options &options) {
  if (!parsePolicy(options.policy, options.replay.scheduler.policy))
    return invalidArgument("policy '{}' is unknown; fcfs, priority, longest-prefix and "
                           "shortest-remaining are known",
                           options.policy);
  LLMOPT_ASSIGN(accelerator, findAccelerator(options.accelerator));
  options.replay.accelerator = accelerator;
  if (options.model.empty()) {
    options.replay.model = llama8b(options.pageSize);
  } else {
    LLMOPT_ASSIGN(model, readModelFacts(options.model, options.pageSize));
    options.replay.model = model;
  }
  if (options.device != "none") {
    options.replay.model = scaledDown(options.replay.model);
    LLMOPT_ASSIGN(device, replayDevice(options.device, options.replay.model));
    options.replay.device = device;
  }
  constexpr double kMostGigabytes = 1e5;
  if (!(options.hostGigabytes >= 0 && options.hostGigabytes <= kMostGigabytes))
    return invalidArgument("{:g} GB of host memory; 0 to {:g} are allowed", options.hostGigabytes,
                           kMostGigabytes);
  options.replay.hostBytes = uint64_t(options.hostGigabytes * 1e9);
  options.replay.hostSeconds = options.hostMicroseconds * 1e-6;
  options.replay.prefixCache = !options.withoutCache;
  options.replay.secondLevel = !options.withoutSecondLevel;
  options.replay.seed = options.reading.seed;
  for (uint32_t i = 0; i < options.drafts; ++i)
    options.replay.scheduler.deviceDrafts.push_back(int16_t(i) - 1);
  return {};
}

/// "\r[####    ] 1234 of 5000" on a terminal; elsewhere nothing.
void showProgress(uint64_t done, uint64_t all) {
  constexpr uint64_t kWidth = 40;
  std::string bar(all ? done * kWidth / all : 0, '#');
  fmt::print(stderr, "\r[{:<{}}] {} of {}", bar, kWidth, done, all);
}

/// What the bookkeeping of an option takes: bytes for each unit, about.
struct Demand {
  std::string option;
  double bytes;
};

std::vector<Demand> demandsOf(const Options &options) {
  constexpr double kOfPage = 64, kOfToken = 48;
  constexpr uint32_t kMostSteps = 16; // more are refused for what they are
  constexpr double kOfRequest = sizeof(Request) + 64;
  const ReplayOptions &replay = options.replay;
  const SchedulerOptions &scheduler = replay.scheduler;
  uint64_t smallest = UINT64_MAX;
  for (const AttentionFacts &group : replay.model.groups)
    smallest = std::min(smallest, std::max<uint64_t>(group.group.pageBytes(), 1));
  return {
      {fmt::format("--pages {}", replay.pages), kOfPage * double(replay.pages)},
      {fmt::format("--host-memory {:g}", options.hostGigabytes),
       kOfPage * double(replay.hostBytes) / double(smallest)},
      {fmt::format("--budget {}", scheduler.tokenBudget),
       kOfToken * scheduler.tokenBudget * (1 + std::min(scheduler.stepsInFlight, kMostSteps))},
      {fmt::format("--max-waiting {}", scheduler.maxWaiting), kOfRequest * scheduler.maxWaiting}};
}

/// The option that asks for the most.
std::string largestDemand(const Options &options) {
  std::vector<Demand> demands = demandsOf(options);
  const Demand &most = *std::ranges::max_element(demands, {}, &Demand::bytes);
  return fmt::format("{} asks for about {:.0f} GB; give a smaller number", most.option,
                     most.bytes * 1e-9);
}

/// Where memory is promised freely, asking for too much ends the process instead of the call.
Status checkMemory(const Options &options) {
  LLMOPT_RETURN_IF_ERROR(kv::checkPages(options.replay.pages));
  double machine = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE)), all = 0;
  for (const Demand &demand : demandsOf(options))
    all += demand.bytes;
  if (machine > 0 && all > machine)
    return makeStatus(StatusCode::ResourceExhausted,
                      "no memory: this machine has {:.0f} GB, and {}", machine * 1e-9,
                      largestDemand(options));
  return {};
}

/// What can be known before the replay: a mistake is not to cost its time.
Status checkOutput(const std::string &path) {
  if (path.empty())
    return {};
  LLMOPT_RETURN_IF_ERROR(checkWritable(path));
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::string name = folder.empty() ? "." : folder.string();
  if (access(name.c_str(), W_OK | X_OK) != 0)
    return makeStatus(StatusCode::NotFound, "{}: {}", path, std::strerror(errno));
  return {};
}

Status run(Options &options) {
  LLMOPT_RETURN_IF_ERROR(settle(options));
  LLMOPT_RETURN_IF_ERROR(checkMemory(options));
  for (const std::string &path : {options.html, options.timeline, options.prometheus})
    LLMOPT_RETURN_IF_ERROR(checkOutput(path));
  LLMOPT_ASSIGN(trace, readTrace(options.trace, options.reading));
  Timeline timeline;
  if (!options.timeline.empty())
    options.replay.timeline = &timeline;
  bool terminal = isatty(STDERR_FILENO);
  if (terminal)
    options.replay.progress = showProgress;
  auto replayed = replay(trace, options.replay);
  if (terminal)
    fmt::print(stderr, "\r{:60}\r", "");
  if (!replayed)
    return replayed.status();
  ReplayTitle title{
      std::filesystem::path(options.trace).filename().string(), options.replay.model.name,
      options.device == "none"
          ? fmt::format("{} x {}", options.replay.cost.accelerators, options.accelerator)
          : options.device,
      options.policy, options.replay.pages};
  if (!options.html.empty())
    LLMOPT_RETURN_IF_ERROR(writeText(options.html, replayHtml(title, *replayed)));
  if (!options.timeline.empty())
    LLMOPT_RETURN_IF_ERROR(timeline.write(options.timeline));
  if (!options.prometheus.empty())
    LLMOPT_RETURN_IF_ERROR(writeText(options.prometheus, prometheusText(replayed->metrics)));
  fmt::print("{}", options.json ? dumpJson(replayJson(title, *replayed), 2) + "\n"
                                : replayText(title, *replayed));
  return {};
}

void addOptions(CLI::App &app, Options &options) {
  ReplayOptions &replay = options.replay;
  SchedulerOptions &scheduler = replay.scheduler;
  app.add_option("TRACE", options.trace,
                 "Mooncake, ShareGPT, Azure, arXiv or ServeGen; plain or gzip")
      ->required();
  app.add_option("--pages", replay.pages, "pages of the group that keeps all (20000)")
      ->check(positive());
  app.add_option("--page-size", options.pageSize, "tokens a page (16)")->check(positive());
  app.add_option("--policy", options.policy,
                 "fcfs, priority, longest-prefix or shortest-remaining (fcfs)");
  app.add_option("--groups", options.model,
                 "a Hugging Face config.json: its layer groups and sizes (Llama-3.1-8B)");
  app.add_option("--accelerator", options.accelerator,
                 "a100, h100, h200, b200, l40s or rtx4090 (h100)");
  app.add_option("--accelerators", replay.cost.accelerators, "tensor parallel (1)")
      ->check(positive());
  app.add_option("--speed", replay.speed, "arrivals come so much faster (1)");
  app.add_option("--rate", options.reading.ratePerSecond,
                 "arXiv: requests a second; without it all come at once");
  app.add_option("--limit", options.reading.limit, "the first N requests (all; 5000 of ServeGen)")
      ->check(positive());
  app.add_option("--partner", options.reading.partner, "the other file of a ServeGen pair");
  app.add_option("--seed", options.reading.seed, "of everything that is sampled (0)")
      ->check(notNegative(~uint64_t{0}));
  constexpr uint64_t kMostDrafts = 1000;
  app.add_option("--spec", options.drafts, "drafts after each token (0)")
      ->check(notNegative(kMostDrafts));
  app.add_option("--acceptance", replay.acceptance, "probability that a draft is right (0)");
  app.add_option("--steps-in-flight", scheduler.stepsInFlight, "D (1)")->check(positive());
  app.add_option("--budget", scheduler.tokenBudget, "tokens a step (2048)")->check(positive());
  app.add_option("--max-running", scheduler.maxRunning, "requests with pages (256)")
      ->check(positive());
  app.add_option("--max-waiting", scheduler.maxWaiting, "queue limit (the whole trace)")
      ->check(positive());
  app.add_option("--growth", scheduler.growthTokens,
                 "tokens kept free for each running request to grow by (64)");
  app.add_option("--age", scheduler.ageSteps, "steps after which a request stands above all (1000)")
      ->check(positive());
  app.add_option("--host-memory", options.hostGigabytes, "GB for swapped and cached pages (0)");
  app.add_flag("--no-second-level", options.withoutSecondLevel,
               "keep no cached pages in host memory");
  app.add_option("--host-time", options.hostMicroseconds, "us of the host a step (50)");
  app.add_option("--launch-time", replay.cost.launchSeconds, "s between steps (200e-6)");
  app.add_option("--ttft-goal", replay.firstTokenGoal, "s to the first token, of goodput (2)");
  app.add_option("--tpot-goal", replay.perTokenGoal, "s a token after it, of goodput (0.1)");
  app.add_flag("--one-by-one", replay.oneByOne, "submit a request when the one before has ended");
  app.add_flag("--no-prefix-cache", options.withoutCache, "share nothing between requests");
  app.add_option("--check-every", replay.checkEvery, "steps between checks of all invariants (0)");
  app.add_option("--device", options.device,
                 "none: simulated time; cpu, cuda or sim: real kernels of a model of that "
                 "shape with small heads, in real time (none)");
  app.add_option("--html", options.html, "write a page with plots");
  app.add_option("--timeline", options.timeline, "write the steps as a Chrome trace");
  app.add_option("--prometheus", options.prometheus, "write the metrics in Prometheus' format");
  app.add_flag("--json", options.json, "print JSON");
}

} // namespace

int llmopt::cli::replayCommand(int argc, char **argv) {
  Options options;
  options.replay.scheduler.maxLength = options.replay.scheduler.maxWaiting = 0;
  CLI::App app("A request trace through the serving runtime", argv[0]);
  addOptions(app, options);
  if (std::optional<int> code = parseOptions(app, argc, argv))
    return *code;
  Status status;
  try {
    status = run(options);
  } catch (const std::bad_alloc &) {
    status = makeStatus(StatusCode::ResourceExhausted, "no memory: {}", largestDemand(options));
  } catch (const std::length_error &) {
    status = makeStatus(StatusCode::ResourceExhausted, "no memory: {}", largestDemand(options));
  }
  if (status.ok())
    return 0;
  fmt::print(stderr, "llm-opt replay: {}\n", status.message());
  return 1;
}

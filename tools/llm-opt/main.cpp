// llm-opt: find the subcommand and hand it the rest of the command line.
#include "runtime/device/cpu/ThreadPool.h"
#include "tools/llm-opt/Command.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

using namespace llmopt;

static constexpr Command commands[] = {
    {"opt", "run passes and pipelines on a file, with the options of mlir-opt", runOpt},
    {"compile", "lower a spec and emit the text of a stage, or a bundle", cli::compileCommand},
    {"verify", "run a spec on random and hard inputs against the float64 oracle",
     cli::verifyCommand},
    {"bench", "measured time of a spec's kernels beside the device's limits", cli::benchCommand},
    {"run", "run a spec once on given arrays (.npy)", cli::runCommand},
    {"explain", "the schedule, the tiles that a run visits, bytes and operations",
     cli::explainCommand},
    {"conformance", "ONNX-style case folders: passed, failed, skipped", cli::conformanceCommand},
    {"demo", "real models' attention on ragged paged batches, checked and timed", cli::demoCommand},
    {"cache", "list and keep the compiled specs on disk", cli::cacheCommand},
    {"env", "versions and the machine, for a bug report", cli::envCommand},
    {"fuzz", "random valid specs against the oracle", cli::fuzzCommand},
    {"import", "a Hugging Face config.json or an ONNX model to attn IR", cli::importCommand},
    {"sim", "run a PTX kernel without a GPU: every access checked, traffic counted",
     cli::simCommand},
    {"replay", "a request trace through scheduler, block manager and prefix cache",
     cli::replayCommand},
};

/// `code`, or 1 and a message if not all of standard output could be written.
static int flushed(const std::string &name, int code) {
  if (std::fflush(stdout) == 0 && !std::ferror(stdout))
    return code;
  std::fprintf(stderr, "%s: standard output cannot be written; is its disk full?\n", name.c_str());
  return 1;
}

/// Run `command` with argv[first], ... as its arguments.
static int runCommand(const Command &command, int first, int argc, char **argv) {
  std::string name = std::string("llm-opt ") + command.name;
  std::vector<char *> arguments = {name.data()};
  arguments.insert(arguments.end(), argv + first, argv + argc);
  arguments.push_back(nullptr);
  if (runtime::Status status = runtime::ThreadPool::checkEnvironment(); !status.ok()) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), status.message().c_str());
    return 1;
  }
  auto fail = [&](const std::string &message) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), message.c_str());
    return 1;
  };
  try {
    return flushed(name, command.run(int(arguments.size()) - 1, arguments.data()));
  } catch (const std::bad_alloc &) {
    return fail("no memory for this call; shorter sequences and smaller arrays need less");
  } catch (const std::length_error &) {
    return fail("an array of this call is too long; try shorter sequences");
  } catch (const std::exception &error) {
    // Printing throws where standard output cannot be written.
    return flushed(name, 0) ? 1 : fail("this should not happen: " + std::string(error.what()));
  }
}

int main(int argc, char **argv) {
  if (argc > 1)
    for (const Command &command : commands)
      if (std::string_view(argv[1]) == command.name)
        return runCommand(command, 2, argc, argv);

  // Not a command: help, or a mistake. CLI11 knows the commands for the help text only.
  CLI::App app("Attention kernels from a description", "llm-opt");
  app.require_subcommand(1);
  app.set_version_flag("--version", "llm-opt " LLMOPT_VERSION);
  for (const Command &command : commands)
    app.add_subcommand(command.name, command.summary);
  if (argc > 1 && argv[1][0] != '-') {
    std::fprintf(stderr, "llm-opt: unknown command '%s'; 'llm-opt --help' lists the commands\n",
                 argv[1]);
    return 1;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success &success) {
    return flushed("llm-opt", app.exit(success));
  } catch (const CLI::Error &error) {
    std::fprintf(stderr, "llm-opt: %s; 'llm-opt --help' lists the commands\n", error.what());
    return 1;
  }
  return 0;
}

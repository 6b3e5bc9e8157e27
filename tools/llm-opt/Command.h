// A subcommand of llm-opt: one file each, which defines its run function; main.cpp holds
// the list.
#pragma once

namespace llmopt {

struct Command {
  const char *name;
  const char *summary; ///< one line for --help
  /// argv[0] is "llm-opt <name>", what follows are the command's own arguments. Returns
  /// the exit status: 0, or 1 after a message on stderr.
  int (*run)(int argc, char **argv);
};

/// `llm-opt opt`: passes and pipelines on a file, as mlir-opt does.
int runOpt(int argc, char **argv);

namespace cli {
int compileCommand(int argc, char **argv);
int verifyCommand(int argc, char **argv);
int benchCommand(int argc, char **argv);
int fuzzCommand(int argc, char **argv);
int runCommand(int argc, char **argv);
int explainCommand(int argc, char **argv);
int conformanceCommand(int argc, char **argv);
int demoCommand(int argc, char **argv);
int envCommand(int argc, char **argv);
int cacheCommand(int argc, char **argv);
int importCommand(int argc, char **argv);
int simCommand(int argc, char **argv);
int replayCommand(int argc, char **argv);
} // namespace cli

} // namespace llmopt

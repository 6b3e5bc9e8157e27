// Command lines, parsed alike by all commands: one line on stderr and exit code 1 on a mistake.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdio>
#include <cstdlib>
#include <optional>

namespace llmopt::cli {

/// Parses; nothing when the command is to go on, else its exit code (--help, a mistake).
inline std::optional<int> parseOptions(CLI::App &app, int argc, char **argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success &success) {
    return app.exit(success);
  } catch (const CLI::Error &error) {
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), error.what());
    return 1;
  }
  return std::nullopt;
}

/// An integer of 1 or more.
inline CLI::Validator positive() {
  return CLI::Validator(
      [](std::string &text) {
        char *end = nullptr;
        long long value = std::strtoll(text.c_str(), &end, 10);
        return *end || value < 1 ? text + " was given; 1 or more is wanted" : std::string();
      },
      "POSITIVE");
}

} // namespace llmopt::cli

// Command lines, parsed alike by all commands: one line on stderr and exit code 1 on a mistake.
#pragma once

#include <CLI/CLI.hpp>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>

namespace llmopt::cli {

/// Parses; nothing when the command is to go on, else its exit code (--help, a mistake).
inline std::optional<int> parseOptions(CLI::App &app, int argc, char **argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success &success) {
    return app.exit(success);
  } catch (const CLI::ConversionError &error) {
    std::fprintf(stderr, "%s: %s; a number that fits is wanted\n", app.get_name().c_str(),
                 error.what());
    return 1;
  } catch (const CLI::Error &error) {
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), error.what());
    return 1;
  }
  return std::nullopt;
}

/// An integer from `least` to `most`. CLI11 takes numbers beyond 64 bits for the greatest.
inline CLI::Validator within(uint64_t least, uint64_t most) {
  return CLI::Validator(
      [=](std::string &text) {
        uint64_t value = 0;
        const char *end = text.data() + text.size();
        auto [stop, error] = std::from_chars(text.data(), end, value);
        if (error == std::errc() && stop == end && value >= least && value <= most)
          return std::string();
        std::string from = std::to_string(least);
        bool tooLarge = error == std::errc::result_out_of_range || value > most;
        bool whole = text.find_first_not_of("-0123456789") == std::string::npos;
        return (text.empty() ? "nothing" : text) + " was given; " +
               (tooLarge                 ? from + " to " + std::to_string(most) + " are"
                : whole && !text.empty() ? from + " or more is"
                                         : "a whole number of " + from + " or more is") +
               " wanted";
      },
      "NUMBER");
}

/// What most numbers of a command line may be.
inline constexpr uint64_t kMostCount = std::numeric_limits<int64_t>::max();
/// Random cases that are made at a time.
inline constexpr uint64_t kMostCases = 1'000'000;

inline CLI::Validator positive(uint64_t most = kMostCount) { return within(1, most); }
inline CLI::Validator notNegative(uint64_t most = kMostCount) { return within(0, most); }

} // namespace llmopt::cli

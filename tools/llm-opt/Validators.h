// What options are checked with, in the words of our messages.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace llmopt::cli {

/// An integer of 0 or more.
inline CLI::Validator notNegative() {
  return CLI::Validator(
      [](std::string &text) {
        return text.starts_with('-') ? text + " was given; 0 or more is wanted" : std::string();
      },
      "NONNEGATIVE");
}

} // namespace llmopt::cli

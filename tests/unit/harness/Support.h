// A device made of the oracle, and specs from text, for tests of the harness.
#pragma once

#include "dialect/reference/Cache.h"
#include "tools/harness/Cases.h"

#include <gtest/gtest.h>

namespace llmopt::harness {

/// The spec of the text's only function; modules live until the process ends.
Spec parse(const std::string &text);
/// Parses without failing the test: the diagnostics, or nothing.
std::string parseError(const std::string &text);

/// Fills the outputs from the oracle, rounded once.
llvm::Error runOracle(const Spec &spec, Call &call);

} // namespace llmopt::harness

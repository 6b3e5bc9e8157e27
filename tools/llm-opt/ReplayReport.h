// The report of a replay: text for people, JSON for programs, a page with plots.
#pragma once

#include "runtime/replay/Replay.h"

#include <nlohmann/json.hpp>

#include <string>

namespace llmopt::cli {

/// What was replayed, for the head of each form.
struct ReplayTitle {
  std::string trace, model, accelerator, policy;
  uint64_t pages = 0;
};

std::string replayText(const ReplayTitle &title, const runtime::ReplayReport &report);
nlohmann::ordered_json replayJson(const ReplayTitle &title, const runtime::ReplayReport &report);
/// One self-contained file: no scripts, no other files.
std::string replayHtml(const ReplayTitle &title, const runtime::ReplayReport &report);

} // namespace llmopt::cli

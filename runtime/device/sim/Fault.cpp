#include "runtime/device/sim/Fault.h"

#include <fmt/format.h>

namespace llmopt::sim {

std::string_view toString(FaultKind kind) {
  switch (kind) {
  case FaultKind::GlobalOutOfBounds:
    return "global-out-of-bounds";
  case FaultKind::WriteToReadOnly:
    return "write-to-read-only";
  case FaultKind::UnorderedResult:
    return "unordered-result";
  case FaultKind::SharedOutOfBounds:
    return "shared-out-of-bounds";
  case FaultKind::LocalOutOfBounds:
    return "local-out-of-bounds";
  case FaultKind::ParamOutOfBounds:
    return "param-out-of-bounds";
  case FaultKind::Misaligned:
    return "misaligned";
  case FaultKind::InvalidAddress:
    return "invalid-address";
  case FaultKind::DivergentSync:
    return "divergent-sync";
  case FaultKind::InvalidLane:
    return "invalid-lane";
  case FaultKind::InvalidBarrier:
    return "invalid-barrier";
  case FaultKind::Deadlock:
    return "deadlock";
  case FaultKind::IncompleteBarrier:
    return "incomplete-barrier";
  case FaultKind::UninitialisedShared:
    return "uninitialised-shared";
  case FaultKind::UninitialisedRegister:
    return "uninitialised-register";
  case FaultKind::SharedRace:
    return "shared-race";
  case FaultKind::GlobalRace:
    return "global-race";
  case FaultKind::UnfinishedCopy:
    return "unfinished-copy";
  case FaultKind::UnfinishedProduct:
    return "unfinished-wgmma";
  case FaultKind::MissingProxyFence:
    return "missing-proxy-fence";
  case FaultKind::MissingWgmmaFence:
    return "missing-wgmma-fence";
  case FaultKind::TransactionCount:
    return "transaction-count";
  case FaultKind::UnprovenInit:
    return "unproven-init";
  case FaultKind::UnprovenRelease:
    return "unproven-release";
  case FaultKind::StepBudget:
    return "step-budget";
  case FaultKind::Trap:
    return "trap";
  case FaultKind::CallFailure:
    return "call-failure";
  }
  return "unknown";
}

bool isUnproven(FaultKind kind) {
  return kind == FaultKind::UnprovenInit || kind == FaultKind::UnprovenRelease;
}

std::string Fault::message() const {
  std::string text = fmt::format("{} in kernel '{}'", toString(kind), kernel);
  if (line) // a fault of the launch as a whole has no place
    text += fmt::format(", block ({}, {}, {}), warp {}", block[0], block[1], block[2], warp);
  if (lane)
    text += fmt::format(", lane {}", *lane);
  text += fmt::format(": {}", detail);
  if (address)
    text += fmt::format("; address {:#x}", *address);
  if (!buffer.empty())
    text += fmt::format(", {}", buffer);
  if (line)
    text += fmt::format("; at {}:{}: '{}'", module, line, instruction);
  if (!sourceFile.empty())
    text += fmt::format(" ({}:{})", sourceFile, sourceLine);
  if (!specFile.empty())
    text += fmt::format(" of {}:{}", specFile, specLine);
  return text;
}

} // namespace llmopt::sim

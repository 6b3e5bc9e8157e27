#include "runtime/executor/LayerKernels.h"

#include "runtime/device/Devices.h"

#include <algorithm>

using namespace llmopt::runtime;

namespace bundle = llmopt::bundle;

using llmopt::bundle::AttentionFacts;
using llmopt::bundle::BufferRole;
using llmopt::bundle::KernelKind;
using llmopt::bundle::Program;

namespace {

bool hasKernel(const Program &program, KernelKind kind) {
  return std::ranges::any_of(program.kernels,
                             [&](const auto &kernel) { return kernel.kind == kind; });
}

Status checkTypes(const Program &program, const LayerGroup &group, const std::string &name) {
  for (const bundle::Buffer &buffer : program.buffers) {
    bool typed = buffer.role <= BufferRole::ValuePool || buffer.role == BufferRole::NewKey ||
                 buffer.role == BufferRole::NewValue || buffer.role == BufferRole::Output;
    if (typed && buffer.type != group.type)
      return invalidArgument("kernel '{}' has '{}' in {}; its layer group has {}", name,
                             buffer.name, toString(buffer.type), toString(group.type));
  }
  return {};
}

/// Extents of the last dimensions of a pool or of new rows.
Status checkAppend(const Program &program, const LayerGroup &group, const std::string &name) {
  if (!hasKernel(program, KernelKind::Append) || hasKernel(program, KernelKind::Attend))
    return invalidArgument("kernel '{}' is to append and does not, or does more than that; give "
                           "a spec with nothing but attn.append",
                           name);
  for (const bundle::Buffer &buffer : program.buffers) {
    bool key = buffer.role == BufferRole::KeyPool, value = buffer.role == BufferRole::ValuePool;
    std::vector<int64_t> wanted = {-1};
    if (group.interleaved)
      wanted.push_back(2);
    if (group.kvOrder == bundle::KvOrder::TokenMajor)
      wanted.insert(wanted.end(), {group.pages.pageSize, group.kvHeads});
    else
      wanted.insert(wanted.end(), {group.kvHeads, group.pages.pageSize});
    wanted.push_back(key ? group.keyDim : group.valueDim);
    if ((key || value) && buffer.extents != wanted)
      return invalidArgument("kernel '{}' appends to pages of another form, size, number of heads "
                             "or dimension than its layer group's ({} slots, {} heads, {} and {})",
                             name, group.pages.pageSize, group.kvHeads, group.keyDim,
                             group.valueDim);
  }
  return checkTypes(program, group, name);
}

Status checkAttend(const Program &program, const LayerGroup &group, const std::string &name) {
  const AttentionFacts &facts = program.facts;
  if (!hasKernel(program, KernelKind::Attend) || hasKernel(program, KernelKind::Append))
    return invalidArgument("kernel '{}' is to attend and does not, or appends too; give a spec "
                           "with nothing but attn.attention",
                           name);
  if (facts.kvForm != bundle::KvForm::Paged || facts.queryForm != bundle::QueryForm::Ragged)
    return makeStatus(StatusCode::Unsupported,
                      "kernel '{}' has another form than the executor's: ragged queries over pages",
                      name);
  if (facts.interleaved != group.interleaved || facts.kvOrder != group.kvOrder)
    return invalidArgument(
        "kernel '{}' has pages of another form than its layer group's ({}-major, "
        "K and V in {})",
        name, group.kvOrder == bundle::KvOrder::TokenMajor ? "token" : "head",
        group.interleaved ? "one pool" : "pools of their own");
  if (facts.queryHeads != group.queryHeads || facts.kvHeads != group.kvHeads ||
      facts.dQk != group.keyDim || facts.dV != group.valueDim ||
      facts.pageSize != group.pages.pageSize)
    return invalidArgument(
        "kernel '{}' is for {}/{} heads of {} and {}, pages of {}; its layer group has {}/{} heads "
        "of {} and {}, pages of {}",
        name, facts.queryHeads, facts.kvHeads, facts.dQk, facts.dV, facts.pageSize,
        group.queryHeads, group.kvHeads, group.keyDim, group.valueDim, group.pages.pageSize);
  return checkTypes(program, group, name);
}

/// A verify row whose drafts branch needs a kernel that knows of trees.
Status checkTree(const Program &program, const KernelRule &rule, bool trees) {
  bool has = std::ranges::any_of(program.buffers, [](const bundle::Buffer &buffer) {
    return buffer.role == BufferRole::Tree;
  });
  if (has || !trees || rule.phase != step::Phase::Verify)
    return {};
  return invalidArgument(
      "kernel '{}' serves verify rows, whose drafts may branch, and its mask has "
      "no tree; write mask(tree<argN> and ...), or give chains of drafts",
      rule.kernel);
}

/// Loads each name once.
class Loader {
public:
  Loader(Device &device, const KernelSource &source) : device(device), source(source) {}

  StatusOr<std::shared_ptr<DeviceProgram>> get(const std::string &name) {
    auto [at, isNew] = byName.try_emplace(name);
    if (!isNew)
      return at->second;
    StatusOr<std::vector<Program>> family = source(name);
    if (!family)
      return family.status().withContext(fmt::format("kernel '{}'", name));
    StatusOr<std::shared_ptr<DeviceProgram>> program = loadBest(device, *std::move(family));
    if (!program)
      return program.status().withContext(fmt::format("kernel '{}'", name));
    return at->second = *std::move(program);
  }

private:
  Device &device;
  const KernelSource &source;
  std::map<std::string, std::shared_ptr<DeviceProgram>> byName;
};

/// The query counts from `next` to `last` must all have a rule.
Status checkCover(const std::vector<LayerKernels::Choice> &choices, uint32_t group,
                  step::Phase phase, uint32_t first, uint32_t last) {
  uint32_t next = first;
  for (const LayerKernels::Choice &choice : choices) {
    if (choice.minQueries > next)
      break;
    next = std::max(next, choice.maxQueries + 1);
  }
  if (next > last)
    return {};
  uint32_t until = last;
  for (const LayerKernels::Choice &choice : choices)
    if (choice.minQueries > next)
      until = std::min(until, choice.minQueries - 1);
  return invalidArgument("layer group {} has no kernel for {} rows of {} to {} tokens; rows of {} "
                         "to {} can occur; add a rule",
                         group, toString(phase), next, until, first, last);
}

} // namespace

std::string_view llmopt::runtime::toString(step::Phase phase) {
  switch (phase) {
  case step::Phase::Prefill:
    return "prefill";
  case step::Phase::Decode:
    return "decode";
  case step::Phase::Verify:
    return "verify";
  }
  return "unknown";
}

StatusOr<LayerKernels> LayerKernels::load(Device &device, std::span<const LayerGroup> groups,
                                          std::span<const KernelRule> rules, const Limits &limits,
                                          const KernelSource &source) {
  LayerKernels kernels;
  kernels.loaded.resize(groups.size());
  Loader loader(device, source);
  for (uint32_t g = 0; g < groups.size(); ++g) {
    Group &group = kernels.loaded[g];
    StatusOr<std::shared_ptr<DeviceProgram>> append = loader.get(groups[g].appendKernel);
    if (!append)
      return append.status();
    LLMOPT_RETURN_IF_ERROR(checkAppend((*append)->program(), groups[g], groups[g].appendKernel));
    group.append = *std::move(append);
  }
  for (const KernelRule &rule : rules) {
    if (rule.group >= groups.size() || rule.phase > step::Phase::Verify || rule.minQueries < 1 ||
        rule.maxQueries < rule.minQueries)
      return invalidArgument("a kernel rule for layer group {} of {} and {} to {} query tokens",
                             rule.group, groups.size(), rule.minQueries, rule.maxQueries);
    Group &group = kernels.loaded[rule.group];
    StatusOr<std::shared_ptr<DeviceProgram>> program = loader.get(rule.kernel);
    if (!program)
      return program.status();
    LLMOPT_RETURN_IF_ERROR(checkAttend((*program)->program(), groups[rule.group], rule.kernel));
    LLMOPT_RETURN_IF_ERROR(checkTree((*program)->program(), rule, limits.trees));
    auto at = std::ranges::find(group.attend, *program);
    if (at == group.attend.end()) {
      at = group.attend.insert(at, *program);
      group.attendNames.push_back(rule.kernel);
    }
    group.choices[size_t(rule.phase)].push_back(
        {rule.minQueries, rule.maxQueries, uint32_t(at - group.attend.begin())});
  }
  for (uint32_t g = 0; g < groups.size(); ++g)
    for (step::Phase phase : {step::Phase::Prefill, step::Phase::Decode, step::Phase::Verify}) {
      std::vector<Choice> &choices = kernels.loaded[g].choices[size_t(phase)];
      std::ranges::sort(choices, {}, &Choice::minQueries);
      for (size_t i = 1; i < choices.size(); ++i)
        if (choices[i].minQueries <= choices[i - 1].maxQueries)
          return invalidArgument("layer group {} has two kernels for {} rows of {} tokens", g,
                                 toString(phase), choices[i].minQueries);
      bool prefill = phase == step::Phase::Prefill, verify = phase == step::Phase::Verify;
      uint32_t last = prefill ? limits.prefillTokens : verify ? 1 + limits.maxDraft : 1;
      LLMOPT_RETURN_IF_ERROR(checkCover(choices, g, phase, verify ? 2 : 1, last));
    }
  return kernels;
}

uint32_t LayerKernels::choose(uint32_t group, step::Phase phase, uint32_t queries) const {
  for (const Choice &choice : loaded[group].choices[size_t(phase)])
    if (queries <= choice.maxQueries)
      return choice.kernel;
  return 0; // not within the limits: the executor has refused it
}

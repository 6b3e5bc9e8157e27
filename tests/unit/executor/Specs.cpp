#include "Specs.h"

#include <fmt/format.h>

using namespace llmopt;
using namespace llmopt::test;

namespace {

std::string optionsText(const SpecOptions &options) {
  if (options.invariant)
    return " split(length = 256) schedule(keys = 32, batch_invariant)";
  return options.rows ? " schedule(rows = " + std::to_string(options.rows) + ")" : std::string();
}

} // namespace

std::string llmopt::test::maskOf(const TinyGroup &group, const char *order) {
  if (group.chunk)
    return fmt::format("{} and chunked<{}>", order, group.chunk);
  if (!group.window)
    return order;
  if (!group.sink)
    return fmt::format("{} and window<{}>", order, group.window);
  return fmt::format("{} and (sink<{}> or window<{}>)", order, group.sink, group.window);
}

static std::string cacheOf(const SpecOptions &options, const TinyGroup &group, bool attends) {
  return fmt::format("!attn.kv_cache<{}x{}xf32, page = {}{}{}{}>", options.model.kvHeads,
                     options.model.headDim, group.pageSize, group.headMajor ? ", head_major" : "",
                     group.interleaved ? ", interleaved" : "",
                     group.indptr && attends ? ", indptr" : "");
}

std::string llmopt::test::appendSpec(const SpecOptions &options, const TinyGroup &group) {
  return fmt::format(R"(
func.func @append(%k: tensor<?x{0}x{1}xf32>, %v: tensor<?x{0}x{1}xf32>, %slots: tensor<?xi64>,
                  %kv: {2}) {{
  attn.append %k, %v, %slots, %kv : tensor<?x{0}x{1}xf32>, tensor<?x{0}x{1}xf32>, tensor<?xi64>, {2}
  return
}})",
                     options.model.kvHeads, options.model.headDim, cacheOf(options, group, false));
}

std::string llmopt::test::pagedSpec(const SpecOptions &options, const TinyGroup &group) {
  return fmt::format(R"(
func.func @attend(%q: tensor<?x{0}x{1}xf32>, %kv: {2},
                  %seq: !attn.sequences{5}) -> tensor<?x{0}x{1}xf32> {{
  %o = attn.attention %q, %kv, %seq {6} mask({3}){4}
       : tensor<?x{0}x{1}xf32>, {2}, !attn.sequences -> tensor<?x{0}x{1}xf32>
  return %o : tensor<?x{0}x{1}xf32>
}})",
                     options.model.queryHeads, options.model.headDim, cacheOf(options, group, true),
                     maskOf(group, options.trees ? "tree<arg0>" : "causal"), optionsText(options),
                     options.trees ? ", %sets: tensor<?xi64>" : "",
                     options.trees ? "args(%sets : tensor<?xi64>)" : "");
}

std::string llmopt::test::aloneSpec(const SpecOptions &options, const TinyGroup &group) {
  return fmt::format(R"(
func.func @alone(%q: tensor<?x?x{0}x{2}xf32>, %k: tensor<?x?x{1}x{2}xf32>,
                 %v: tensor<?x?x{1}x{2}xf32>) -> tensor<?x?x{0}x{2}xf32> {{
  %o = attn.attention %q, %k, %v mask({3}){4}
       : tensor<?x?x{0}x{2}xf32>, tensor<?x?x{1}x{2}xf32>, tensor<?x?x{1}x{2}xf32>
         -> tensor<?x?x{0}x{2}xf32>
  return %o : tensor<?x?x{0}x{2}xf32>
}})",
                     options.model.queryHeads, options.model.kvHeads, options.model.headDim,
                     maskOf(group), optionsText(options));
}

LayerGroup llmopt::test::layerGroup(const TinyConfig &model, const TinyGroup &from) {
  LayerGroup group;
  group.layers = from.layers;
  group.queryHeads = model.queryHeads;
  group.kvHeads = model.kvHeads;
  group.keyDim = group.valueDim = model.headDim;
  group.pages.kind = from.window ? kv::GroupKind::Window : kv::GroupKind::Full;
  group.pages.pageSize = from.pageSize;
  group.pages.window = from.window;
  group.pages.sink = from.sink;
  if (from.chunk)
    group.pages.kind = kv::GroupKind::Chunked;
  group.pages.chunk = from.chunk;
  group.interleaved = from.interleaved;
  if (from.headMajor)
    group.kvOrder = bundle::KvOrder::HeadMajor;
  group.pages.dataBytes = group.layers.size() * group.layerBytes();
  return group;
}

KernelSource llmopt::test::kernelsOf(const SpecOptions &options,
                                     const std::vector<TinyGroup> &groups) {
  return [=](const std::string &name) -> StatusOr<std::vector<bundle::Program>> {
    size_t g = size_t(name.back() - '0');
    std::string text =
        name.starts_with("append") ? appendSpec(options, groups[g]) : pagedSpec(options, groups[g]);
    StatusOr<bundle::Program> program = compileText(text);
    if (!program)
      return program.status();
    return std::vector<bundle::Program>{*std::move(program)};
  };
}

std::vector<KernelRule> llmopt::test::rulesOf(const std::vector<TinyGroup> &groups,
                                              uint32_t prefillTokens, uint32_t maxDraft) {
  std::vector<KernelRule> rules;
  for (uint32_t g = 0; g < groups.size(); ++g) {
    std::string kernel = fmt::format("attend {}", g);
    rules.push_back({g, step::Phase::Prefill, 1, prefillTokens, kernel});
    rules.push_back({g, step::Phase::Decode, 1, 1, kernel});
    if (maxDraft)
      rules.push_back({g, step::Phase::Verify, 2, 1 + maxDraft, kernel});
  }
  return rules;
}

// A kernel whose mask may see a key that its layer group gives back is refused when it is loaded;
// one that sees no more than the group keeps is served, with the tokens of the sequence alone.
#include "CApi.h"
#include "Server.h"

#include "runtime/bundle/BundleIO.h"

namespace llmopt::test {
namespace {

constexpr uint32_t kPage = 4;
const TinyGroup kFull = {{0, 1}, kPage, 0, 0};
const TinyGroup kWindow = {{0, 1}, kPage, 20, 0};
const TinyGroup kSink = {{0, 1}, kPage, 20, 2};
const TinyGroup kChunked = {{0, 1}, kPage, 0, 0, false, false, false, 12};

TinyGroup windowOf(uint32_t window, uint32_t sink = 0) { return {{0, 1}, kPage, window, sink}; }
TinyGroup chunksOf(uint32_t chunk) { return {{0, 1}, kPage, 0, 0, false, false, false, chunk}; }

const char *const kKeepsWindow = "it keeps a window of 20 keys; write mask(causal and window<20>), "
                                 "or let the group keep all keys";
const char *const kKeepsSink =
    "it keeps a window of 20 keys and a sink of 2; write mask(causal and "
    "(sink<2> or window<20>)), or let the group keep all keys";
const char *const kKeepsChunk = "it keeps chunks of 12 positions; write mask(causal and "
                                "chunked<12>), or let the group keep all keys";

struct Pair {
  const char *name;
  TinyGroup group, kernel;
  int64_t key = -1, position = 0; ///< -1: it is served
  const char *kept = "";
};

/// The first key that is gone, and from which query on.
const Pair kPairs[] = {
    {"full: causal", kFull, kFull},
    {"full: a window", kFull, kWindow},
    {"full: a sink", kFull, kSink},
    {"full: chunks", kFull, kChunked},
    {"window: causal", kWindow, kFull, 0, 20, kKeepsWindow},
    {"window: its own", kWindow, kWindow},
    {"window: a smaller one", kWindow, windowOf(19)},
    {"window: a larger one", kWindow, windowOf(21), 0, 20, kKeepsWindow},
    {"window: with a sink", kWindow, kSink, 0, 20, kKeepsWindow},
    {"window: chunks within it", kWindow, chunksOf(20)},
    {"window: chunks beyond it", kWindow, chunksOf(21), 0, 20, kKeepsWindow},
    {"sink: causal", kSink, kFull, 2, 22, kKeepsSink},
    {"sink: its own", kSink, kSink},
    {"sink: without one", kSink, kWindow},
    {"sink: a larger one", kSink, windowOf(20, 3), 2, 22, kKeepsSink},
    {"sink: a larger window", kSink, windowOf(21, 2), 2, 22, kKeepsSink},
    {"chunked: causal", kChunked, kFull, 0, 12, kKeepsChunk},
    {"chunked: its own", kChunked, kChunked},
    {"chunked: a part of it", kChunked, chunksOf(6)},
    {"chunked: no part of it", kChunked, chunksOf(9), 9, 12, kKeepsChunk},
    {"chunked: a window", kChunked, windowOf(2), 11, 12, kKeepsChunk},
    {"chunked: a window of the query", kChunked, windowOf(1)},
};

std::string refusalOf(const Pair &pair) {
  return fmt::format(
      "kernel 'attend 0' of layer group 0: its mask may see key {} from position {}, "
      "which the group has given back by then: {}",
      pair.key, pair.position, pair.kept);
}

ExecutorOptions executorOptions(const TinyConfig &model, const TinyGroup &group) {
  ExecutorOptions made;
  made.groups = {layerGroup(model, group)};
  made.groups[0].appendKernel = "append 0";
  made.memory.groups = {made.groups[0].pages};
  made.memory.budgetBytes = 64 * made.groups[0].pages.pageBytes();
  made.memory.maxTokens = 200;
  made.maxTokens = 64;
  made.rules = rulesOf({group}, made.maxTokens, 0);
  return made;
}

class KeptKeys : public testing::Test {
protected:
  Status load(const ExecutorOptions &options, const TinyGroup &kernel) {
    TinyLayers layers(model);
    return ModelExecutor::create(*CpuDevice::create(1), options, kernelsOf(spec, {kernel}), layers)
        .status();
  }

  SpecOptions spec;
  TinyModel model{spec.model};
};

TEST_F(KeptKeys, AKernelThatMaySeeMoreThanItsGroupKeepsIsRefused) {
  for (const Pair &pair : kPairs) {
    Status status = load(executorOptions(spec.model, pair.group), pair.kernel);
    if (pair.key < 0)
      EXPECT_TRUE(status.ok()) << pair.name << ": " << status.toString();
    else
      EXPECT_EQ(status.toString(), "InvalidArgument: " + refusalOf(pair)) << pair.name;
  }
}

// A window is a number of the call: what counts is the value that the layers are given.
TEST_F(KeptKeys, TheNumberThatTheGroupGivesItsKernelsCounts) {
  ExecutorOptions options = executorOptions(spec.model, kWindow);
  options.groups[0].numbers["window"] = int64_t{21};
  Pair larger{"", kWindow, kWindow, 0, 20, kKeepsWindow};
  EXPECT_EQ(load(options, kWindow).message(), refusalOf(larger));
  options.groups[0].numbers["window"] = int64_t{20};
  Status status = load(options, windowOf(100));
  EXPECT_TRUE(status.ok()) << status.toString();
  options.groups[0].numbers["widow"] = int64_t{20};
  EXPECT_EQ(load(options, kWindow).message(),
            "layer group 0 has a number 'widow', which none of its kernels takes");
}

// A window for each head, of each layer: the largest counts.
TEST_F(KeptKeys, TheLargestWindowOfAllHeadsAndLayersCounts) {
  StatusOr<bundle::Program> attend = compileText(R"(
func.func @attend(%q: tensor<?x4x8xf32>, %kv: !attn.kv_cache<2x8xf32, page = 4>,
                  %seq: !attn.sequences, %w: tensor<4xi32>) -> tensor<?x4x8xf32> {
  %o = attn.attention %q, %kv, %seq args(%w : tensor<4xi32>) mask(causal and window<arg0>)
       : tensor<?x4x8xf32>, !attn.kv_cache<2x8xf32, page = 4>, !attn.sequences -> tensor<?x4x8xf32>
  return %o : tensor<?x4x8xf32>
})");
  ASSERT_TRUE(attend.ok()) << attend.status().toString();
  KernelSource source = [&](const std::string &name) -> StatusOr<std::vector<bundle::Program>> {
    if (name == "append 0")
      return kernelsOf(spec, {kWindow})(name);
    return std::vector<bundle::Program>{*attend};
  };
  auto perHead = std::ranges::find(attend->buffers, bundle::BufferRole::PerHead,
                                   [](const bundle::Buffer &buffer) { return buffer.role; });
  ASSERT_NE(perHead, attend->buffers.end());
  int32_t windows[2][4] = {{20, 3, 20, 1}, {7, 20, 19, 18}};
  ExecutorOptions options = executorOptions(spec.model, kWindow);
  for (int32_t *layer : windows)
    options.groups[0].extraArrays.push_back(
        {{perHead->name, ArrayRef::contiguous(layer, bundle::ElementType::I32, {4})}});
  TinyLayers layers(model);
  auto load = [&] {
    return ModelExecutor::create(*CpuDevice::create(1), options, source, layers).status();
  };
  EXPECT_TRUE(load().ok()) << load().toString();
  windows[1][2] = 21;
  EXPECT_EQ(load().message(), refusalOf({"", kWindow, kWindow, 0, 20, kKeepsWindow}));
  options.groups[0].extraArrays[1]["slopes"] = options.groups[0].extraArrays[1][perHead->name];
  EXPECT_EQ(load().message(),
            "layer group 0 has an array 'slopes', which none of its kernels takes");
}

// Each phase has its own kernel: any of them may be the one that sees too much.
TEST_F(KeptKeys, TheKernelOfEachPhaseIsLookedAt) {
  for (size_t wrong = 0; wrong < 3; ++wrong) {
    ExecutorOptions options = executorOptions(spec.model, kWindow);
    options.memory.maxDraft = 3;
    options.rules = rulesOf({kWindow}, options.maxTokens, 3);
    options.rules[wrong].kernel = "attend 1";
    TinyLayers layers(model);
    auto made = ModelExecutor::create(*CpuDevice::create(1), options,
                                      kernelsOf(spec, {kWindow, kFull}), layers);
    EXPECT_TRUE(made.status().message().starts_with("kernel 'attend 1' of layer group 0: "))
        << wrong << made.status().toString();
  }
}

// In a tree of drafts a query stands before its place in the row; its window begins earlier.
TEST_F(KeptKeys, AWindowOverATreeOfDraftsIsServed) {
  for (const TinyGroup &group : {kWindow, kSink, kChunked}) {
    ExecutorOptions options = executorOptions(spec.model, group);
    options.memory.maxDraft = 6;
    options.draftTrees = true;
    options.rules = rulesOf({group}, options.maxTokens, 6);
    spec.trees = true;
    Status status = load(options, group);
    EXPECT_TRUE(status.ok()) << status.toString();
  }
}

class CApiKeptKeys : public CApi {
protected:
  /// A server of the group with the kernels of another one; what it is refused for, or "".
  std::string create(const TinyGroup &group, const TinyGroup &kernel, uint32_t chunk = 0) {
    CServerParts parts(group, "append 0", "attend 0");
    parts.options.max_length = 200;
    if (chunk)
      parts.group.chunk = chunk;
    KernelSource source = kernelsOf({}, {kernel});
    llmopt_server *made = nullptr;
    llmopt_status *status = llmopt_server_new(device, &parts.options, give, &source, &model, &made);
    llmopt_server_free(made);
    return take(status, made ? LLMOPT_OK : LLMOPT_INVALID_ARGUMENT);
  }

private:
  static llmopt_status *give(void *user, const char *name, const void **bundle, size_t *bytes) {
    static std::vector<uint8_t> kept;
    kept = bundle::serialize((*static_cast<KernelSource *>(user))(name)->front());
    *bundle = kept.data();
    *bytes = kept.size();
    return nullptr;
  }
};

TEST_F(CApiKeptKeys, AKernelThatMaySeeMoreThanItsGroupKeepsIsRefused) {
  for (const Pair &pair : kPairs)
    EXPECT_EQ(create(pair.group, pair.kernel), pair.key < 0 ? "" : refusalOf(pair)) << pair.name;
  EXPECT_EQ(create(kWindow, kWindow, 12),
            "a layer group has a window of 20 keys and chunks of 12; one of them is allowed");
}

} // namespace
} // namespace llmopt::test

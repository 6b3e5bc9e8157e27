// Calls that other kernels got wrong: what they give that a plan was not made for, how their arrays
// lie, how long they are; on the CPU and on the simulator.
#include "Support.h"

#include "runtime/device/BoundCall.h"

#include <fmt/format.h>

namespace llmopt::test {
namespace {

//===----------------------------------------------------------------------===//
// A26: what a call gives that its program, or its plan, was not made for
//===----------------------------------------------------------------------===//

std::string decodeText(const std::string &mask) {
  return fmt::format(R"(
func.func @f(%q: tensor<?x4x32xbf16>, %kv: !attn.kv_cache<2x32xbf16, page = 16>,
             %s: !attn.sequences) -> tensor<?x4x32xbf16> {{
  %o = attn.attention %q, %kv, %s mask({})
    : tensor<?x4x32xbf16>, !attn.kv_cache<2x32xbf16, page = 16>, !attn.sequences
      -> tensor<?x4x32xbf16>
  return %o : tensor<?x4x32xbf16>
}})",
                     mask);
}

class PlanAndRun : public OnEachDevice {};

TEST_P(PlanAndRun, WhatTheProgramIsNotMadeForIsRefused) {
  Compiled f(decodeText("causal"), GetParam());
  harness::Call call = f.call(shapeOf({1, 2}, {1000, 90}));
  const runtime::CallArguments right = f.runner().argumentsOf(call);
  EXPECT_EQ(f.refusal(right), "");
  for (const char *name : {"window", "softcap", "causal"}) {
    runtime::CallArguments arguments = right;
    arguments.scalars[name] = int64_t{100};
    EXPECT_EQ(f.refusal(arguments),
              fmt::format("there is no scalar '{}'; the program takes scale", name));
  }
  auto with = [&](const char *name, auto change) {
    runtime::CallArguments arguments = right;
    change(arguments.arrays.at(name));
    return f.refusal(arguments);
  };
  EXPECT_EQ(with("k_pool", [](auto &a) { a.type = bundle::ElementType::F16; }),
            "array 'k_pool' has element type f16; the program wants bf16");
  EXPECT_EQ(with("q", [](auto &a) { a.shape[2] = 16; }),
            "array 'q' has shape (3, 4, 16); the program wants (?, 4, 32)");
  EXPECT_EQ(with("v_pool", [](auto &a) { a.shape[1] = 8; }),
            "array 'v_pool' has shape (72, 8, 2, 32); the program wants (?, 16, 2, 32)");
}

/// A window that is given after the plan was made and its launches captured: the plan is made anew
/// with it, and so the kernel masks what it must.
TEST_P(PlanAndRun, AWindowGivenAfterThePlanIsThatOfBoth) {
  Compiled f(decodeText("causal and window<4096>"), GetParam());
  harness::Shape shape = shapeOf({1, 3}, {1000, 400});
  harness::Call call = f.call(shape);
  cli::Runner &runner = f.runner();
  runtime::Stream &stream = runner.deviceStream();
  auto staged = runtime::StagedArrays::upload(stream, f.program, runner.argumentsOf(call),
                                              runner.storageOf(call));
  ASSERT_TRUE(staged.ok()) << staged.status().toString();
  runtime::CallArguments arguments = staged->arguments();
  runtime::BindOptions options = runner.bindOptions();
  options.replayable = true;
  auto bound = runtime::BoundCall::bind(runner.deviceProgram(), arguments, options);
  ASSERT_TRUE(bound.ok()) << bound.status().toString();
  ASSERT_TRUE(bound->prepare(stream).ok() && stream.beginCapture().ok());
  ASSERT_TRUE(bound->run(stream).ok());
  auto graph = stream.endCapture();
  ASSERT_TRUE(graph.ok()) << graph.status().toString();
  for (int64_t window : {100, 1, 64, 5000}) {
    SCOPED_TRACE(window);
    arguments.scalars["window"] = window;
    ASSERT_TRUE(bound->replan(arguments).ok() && bound->prepare(stream).ok());
    ASSERT_TRUE(stream.replay(**graph).ok());
    ASSERT_TRUE(staged->download(stream, runtime::StagedArrays::Which::All).ok());
    call.numbers["window"] = double(window);
    llvm::Expected<harness::Report> report = harness::check(f.spec, call);
    ASSERT_TRUE(bool(report)) << llvm::toString(report.takeError());
    EXPECT_TRUE(report->passed) << report->failure;
  }
}

LLMOPT_ON_EACH_DEVICE(PlanAndRun);

//===----------------------------------------------------------------------===//
// A13: more keys than the page table has columns for
//===----------------------------------------------------------------------===//

class PageTable : public OnEachDevice {};

TEST_P(PageTable, ThatIsTooShortIsRefused) {
  Compiled f(decodeText("causal"), GetParam());
  harness::Shape shape = shapeOf({1, 1}, {40, 64});
  shape.spareColumns = 0;
  harness::Call call = f.call(shape);
  ASSERT_EQ(call.find("block_table")->shape[1], 4);
  EXPECT_EQ(f.refusal(call), "");
  call.find("kv_len")->set({1}, 65);
  EXPECT_EQ(f.refusal(call),
            "sequence 1 has 65 keys; its page table holds 4 pages of 16 keys; give "
            "it more columns or a shorter length");
}

/// flashinfer#320, #4347: pages of any size.
TEST_P(PageTable, HasPagesOfAnySize) {
  for (int64_t page : {1, 3, 16, 64, 100, 256, 512}) {
    SCOPED_TRACE(page);
    Compiled f(fmt::format(R"(
func.func @f(%q: tensor<?x4x32xf16>, %kv: !attn.kv_cache<2x32xf16, page = {0}>,
             %s: !attn.sequences) -> tensor<?x4x32xf16> {{
  %o = attn.attention %q, %kv, %s mask(causal and window<200>)
    : tensor<?x4x32xf16>, !attn.kv_cache<2x32xf16, page = {0}>, !attn.sequences
      -> tensor<?x4x32xf16>
  return %o : tensor<?x4x32xf16>
}})",
                           page),
               GetParam());
    harness::Shape shape = shapeOf({1, 40, 1, 3}, {513, 70, 1, 300});
    shape.hideUnseen = shape.spoilUnseen = true;
    f.verify(shape);
  }
}

/// vllm#1370: no list of all scores anywhere.
TEST_P(PageTable, MayBeOfAHundredThousandKeys) {
  Compiled f(decodeText("causal"), GetParam());
  f.verify(shapeOf({1}, {65536}));
  f.verify(shapeOf({1, 2}, {131073, 7}));
}

LLMOPT_ON_EACH_DEVICE(PageTable);

//===----------------------------------------------------------------------===//
// A28: strides of extents of 1, and strides of 0
//===----------------------------------------------------------------------===//

class Strides : public OnEachDevice {
protected:
  /// Runs the call, then again with other strides of K and V, which mean the same.
  template <typename F> void expectSameBits(Compiled &f, harness::Call &call, F change) {
    f.verify(call);
    harness::Call first = call;
    runtime::CallArguments arguments = f.runner().argumentsOf(call);
    for (const char *name : {"k", "v"})
      change(arguments.arrays.at(name).strides);
    call.find("o")->fill([] { return -77; });
    ASSERT_EQ(f.refusal(arguments), "");
    EXPECT_EQ(harness::differentBits(first, call), "");
  }
};

TEST_P(Strides, OfTheOnlyKvHeadDoNotMatter) {
  Compiled f(R"(
func.func @f(%q: tensor<?x?x4x64xbf16>, %k: tensor<?x?x1x64xbf16>, %v: tensor<?x?x1x64xbf16>)
    -> tensor<?x?x4x64xbf16> {
  %o = attn.attention %q, %k, %v mask(causal)
    : tensor<?x?x4x64xbf16>, tensor<?x?x1x64xbf16>, tensor<?x?x1x64xbf16> -> tensor<?x?x4x64xbf16>
  return %o : tensor<?x?x4x64xbf16>
})",
             GetParam());
  harness::Call call = f.call(shapeOf({3, 3}, {70, 70}));
  for (int64_t stride : {1, 7, 0})
    expectSameBits(f, call, [&](auto &strides) { strides[2] = stride; });
}

/// pytorch#191937: K and V that all sequences share, by a stride of 0; a boolean mask; one key more
/// than a multiple of 32.
TEST_P(Strides, OfZeroShareKeysBetweenSequences) {
  Compiled f(R"(
func.func @f(%q: tensor<?x?x2x512xbf16>, %k: tensor<?x?x1x512xbf16>, %v: tensor<?x?x1x512xbf16>,
             %mask: tensor<?x1x?x?xi1>) -> tensor<?x?x2x512xbf16> {
  %o = attn.attention %q, %k, %v args(%mask : tensor<?x1x?x?xi1>) mask(dense<arg0>)
    : tensor<?x?x2x512xbf16>, tensor<?x?x1x512xbf16>, tensor<?x?x1x512xbf16>
      -> tensor<?x?x2x512xbf16>
  return %o : tensor<?x?x2x512xbf16>
})",
             GetParam());
  for (int64_t keys : {33, 34, 65}) {
    SCOPED_TRACE(keys);
    harness::Call call = f.call(shapeOf({5, 5, 5}, {keys, keys, keys}));
    for (const char *name : {"k", "v"}) {
      harness::HostArray &array = *call.find(name);
      for (int64_t b = 1; b < 3; ++b)
        for (int64_t j = 0; j < keys; ++j)
          for (int64_t c = 0; c < 512; ++c)
            array.set({b, j, 0, c}, array.get({0, j, 0, c}));
      array.seal();
    }
    expectSameBits(f, call, [](auto &strides) { strides[0] = 0; });
  }
}

LLMOPT_ON_EACH_DEVICE(Strides);

} // namespace
} // namespace llmopt::test

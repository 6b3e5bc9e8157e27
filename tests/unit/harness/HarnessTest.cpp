// The harness against a kernel made of the oracle, right and with faults.
#include "Support.h"

#include <utility>

namespace llmopt::harness {
namespace {

const char *const kRaggedPaged = R"(
func.func @f(%q: tensor<?x4x16xbf16>, %kv: !attn.kv_cache<2x16xbf16, page = 16>, %s: !attn.sequences)
    -> (tensor<?x4x16xbf16>, tensor<?x4xf32>) {
  %o, %l = attn.attention %q, %kv, %s mask(causal and window<100>)
    : tensor<?x4x16xbf16>, !attn.kv_cache<2x16xbf16, page = 16>, !attn.sequences
      -> tensor<?x4x16xbf16>, tensor<?x4xf32>
  return %o, %l : tensor<?x4x16xbf16>, tensor<?x4xf32>
})";

const char *const kDense = R"(
func.func @f(%q: tensor<2x?x6x24xf16>, %k: tensor<2x?x2x24xf16>, %v: tensor<2x?x2x8xf16>) -> tensor<2x?x6x8xf16> {
  %o = attn.attention %q, %k, %v mask(causal)
    : tensor<2x?x6x24xf16>, tensor<2x?x2x24xf16>, tensor<2x?x2x8xf16> -> tensor<2x?x6x8xf16>
  return %o : tensor<2x?x6x8xf16>
})";

const char *const kAppendAttend = R"(
func.func @f(%q: tensor<?x4x8xf32>, %nk: tensor<?x2x8xf32>, %nv: tensor<?x2x8xf32>, %slots: tensor<?xi64>,
             %kv: !attn.kv_cache<2x8xf32, page = 3, head_major, interleaved, indptr>, %s: !attn.sequences)
    -> tensor<?x4x8xf32> {
  attn.append %nk, %nv, %slots, %kv : tensor<?x2x8xf32>, tensor<?x2x8xf32>, tensor<?xi64>,
    !attn.kv_cache<2x8xf32, page = 3, head_major, interleaved, indptr>
  %o = attn.attention %q, %kv, %s mask(causal)
    : tensor<?x4x8xf32>, !attn.kv_cache<2x8xf32, page = 3, head_major, interleaved, indptr>, !attn.sequences
      -> tensor<?x4x8xf32>
  return %o : tensor<?x4x8xf32>
})";

const char *const kMerge = R"(
func.func @f(%p: tensor<?x?x3x8xf32>, %l: tensor<?x?x3xf32>) -> (tensor<?x3x8xf16>, tensor<?x3xf32>) {
  %o, %m = attn.merge %p, %l : tensor<?x?x3x8xf32>, tensor<?x?x3xf32> -> tensor<?x3x8xf16>, tensor<?x3xf32>
  return %o, %m : tensor<?x3x8xf16>, tensor<?x3xf32>
})";

const char *const kAppend = R"(
func.func @f(%nk: tensor<?x2x8xf32>, %nv: tensor<?x2x4xf32>, %slots: tensor<?xi64>,
             %kv: !attn.kv_cache<2x8xf32, v_dim = 4, page = 16>) {
  attn.append %nk, %nv, %slots, %kv : tensor<?x2x8xf32>, tensor<?x2x4xf32>, tensor<?xi64>,
    !attn.kv_cache<2x8xf32, v_dim = 4, page = 16>
  return
})";

Shape shapeOf(std::vector<int64_t> queries, std::vector<int64_t> keys) {
  Shape shape;
  shape.queryLengths = std::move(queries);
  shape.keyLengths = std::move(keys);
  return shape;
}

Call made(const Spec &spec, const Shape &shape) {
  llvm::Expected<Call> call = generate(spec, shape);
  if (call)
    return std::move(*call);
  ADD_FAILURE() << llvm::toString(call.takeError());
  return {};
}

Report checked(const Spec &spec, const Call &call) {
  llvm::Expected<Report> report = check(spec, call);
  if (report)
    return *report;
  ADD_FAILURE() << llvm::toString(report.takeError());
  return {};
}

TEST(Harness, EveryHardCasePassesWithARightKernel) {
  for (const char *text : {kRaggedPaged, kDense, kAppendAttend, kMerge, kAppend}) {
    Spec spec = parse(text);
    std::vector<Case> cases = hardCases(spec);
    EXPECT_GE(cases.size(), spec.attention ? 25u : 4u);
    for (const Case &c : cases) {
      llvm::Expected<Report> result =
          runCase(spec, c, [&](Call &call) { return runOracle(spec, call); });
      ASSERT_TRUE(bool(result)) << c.name << ": " << llvm::toString(result.takeError());
      EXPECT_TRUE(result->passed) << c.name << ": " << result->failure;
      EXPECT_EQ(result->rowsChecked, result->rowsTotal) << c.name;
    }
  }
}

TEST(Harness, RandomShapesPassWithARightKernel) {
  for (const char *text : {kRaggedPaged, kDense, kAppendAttend, kMerge, kAppend}) {
    Spec spec = parse(text);
    for (const Case &c : randomShapes(spec, 20, 3)) {
      llvm::Expected<Report> result =
          runCase(spec, c, [&](Call &call) { return runOracle(spec, call); });
      ASSERT_TRUE(bool(result)) << c.name << ": " << llvm::toString(result.takeError());
      EXPECT_TRUE(result->passed) << c.name << ": " << result->failure;
    }
  }
}

TEST(Harness, NoPaddingWhereTheTypeFixesTheTokens) {
  Spec spec = parse(R"(
func.func @f(%q: tensor<?x2x8xf32>, %k: tensor<48x2x8xf32>, %v: tensor<48x2x8xf32>, %s: !attn.sequences) -> tensor<?x2x8xf32> {
  %o = attn.attention %q, %k, %v, %s : tensor<?x2x8xf32>, tensor<48x2x8xf32>, tensor<48x2x8xf32>, !attn.sequences -> tensor<?x2x8xf32>
  return %o : tensor<?x2x8xf32>
})");
  Shape shape = shapeOf({1, 3}, {20, 40});
  shape.paddedTokens = 2;
  Call call = made(spec, shape);
  EXPECT_EQ(call.find("q")->shape[0], 6);
  EXPECT_EQ(call.find("k")->shape[0], 48);
  EXPECT_EQ(call.find("v")->shape[0], 48);
}

TEST(Harness, CallsDependOnTheSeedAlone) {
  Spec spec = parse(kRaggedPaged);
  Shape shape = shapeOf({1, 3}, {20, 40});
  Call a = made(spec, shape), b = made(spec, shape);
  for (const HostArray &array : a.arrays)
    EXPECT_EQ(array.elementBytes(), b.find(array.name)->elementBytes()) << array.name;
  shape.seed = 2;
  EXPECT_NE(a.find("q")->elementBytes(), made(spec, shape).find("q")->elementBytes());
}

TEST(Harness, NothingWrittenFails) {
  Spec spec = parse(kRaggedPaged);
  Report report = checked(spec, made(spec, shapeOf({1}, {20})));
  EXPECT_FALSE(report.passed);
  EXPECT_NE(report.failure.find("sequence 0, query 0, head 0, component 0: got nan"),
            std::string::npos)
      << report.failure;
}

TEST(Harness, OneWrongElementIsFound) {
  Spec spec = parse(kRaggedPaged);
  Call call = made(spec, shapeOf({1, 2}, {20, 33}));
  ASSERT_FALSE(bool(runOracle(spec, call)));
  EXPECT_TRUE(checked(spec, call).passed);
  call.find("o")->set({2, 3, 5}, call.find("o")->get({2, 3, 5}) + 0.25);
  Report report = checked(spec, call);
  EXPECT_FALSE(report.passed);
  EXPECT_EQ(report.row, (reference::Row{1, 1, 3}));
  EXPECT_EQ(report.component, 5);
}

TEST(Harness, AWrongLseIsFound) {
  Spec spec = parse(kRaggedPaged);
  Call call = made(spec, shapeOf({1, 2}, {20, 33}));
  ASSERT_FALSE(bool(runOracle(spec, call)));
  call.find("lse")->set({0, 1}, call.find("lse")->get({0, 1}) + 1e-3);
  Report report = checked(spec, call);
  EXPECT_FALSE(report.passed);
  EXPECT_EQ(report.component, -1);
  EXPECT_EQ(report.row, (reference::Row{0, 0, 1}));
}

TEST(Harness, WritesOutsideAreFound) {
  Spec spec = parse(kRaggedPaged);
  Shape shape = shapeOf({1, 2}, {20, 33});
  shape.paddedTokens = 2;
  auto afterDamage = [&](auto damage) {
    Call call = made(spec, shape);
    EXPECT_FALSE(bool(runOracle(spec, call)));
    damage(call);
    return checked(spec, call).failure;
  };
  EXPECT_EQ(afterDamage([](Call &) {}), "");
  EXPECT_EQ(afterDamage([](Call &c) { static_cast<uint8_t *>(c.find("o")->data())[-1] = 0; }),
            "'o' was written outside its elements, at byte -1");
  EXPECT_EQ(
      afterDamage([](Call &c) { static_cast<uint8_t *>(c.find("lse")->data())[5 * 4 * 4] = 0; }),
      "'lse' was written outside its elements, at byte 80");
  EXPECT_EQ(afterDamage([](Call &c) { c.find("o")->set({4, 0, 0}, 0); }),
            "'o' was written in a padded row, from row 3 on");
  EXPECT_EQ(afterDamage([](Call &c) { c.find("v_pool")->set({0, 0, 0, 0}, 7); }),
            "input 'v_pool' was written");
}

TEST(Harness, WritesInGapsAreFound) {
  Spec spec = parse(kDense);
  Shape shape = shapeOf({3}, {5});
  shape.strides = StrideStyle::Padded;
  Call call = made(spec, shape);
  ASSERT_FALSE(bool(runOracle(spec, call)));
  EXPECT_TRUE(checked(spec, call).passed);
  EXPECT_EQ(call.find("o")->strides[2], 16); // 8 components and a gap of 8
  reference::store(call.find("o")->data(), ElementType::F16, 8, 0);
  EXPECT_FALSE(checked(spec, call).passed);
}

TEST(Harness, AnAppendIsChecked) { // A21: a padded row written over a real slot
  Spec spec = parse(kAppend);
  Call call = made(spec, shapeOf({23}, {90}));
  ASSERT_FALSE(bool(runOracle(spec, call)));
  EXPECT_TRUE(checked(spec, call).passed);
  call.find("k_pool")->set({0, 0, 0, 0}, 123);
  EXPECT_FALSE(checked(spec, call).passed);
}

TEST(Harness, UnseenPagesAreHiddenAndSpoilt) { // A27: W 100, 1024 keys, page 16
  Spec spec = parse(kRaggedPaged);
  Shape shape = shapeOf({1}, {1024});
  shape.hideUnseen = shape.spoilUnseen = true;
  Call call = made(spec, shape);
  for (int64_t page = 0; page < 64; ++page) // keys 924 .. 1023 are seen: pages 57 .. 63
    EXPECT_EQ(call.find("block_table")->get({0, page}) >= 0, page >= 57) << page;
  int64_t first = int64_t(call.find("block_table")->get({0, 57}));
  for (int64_t slot = 0; slot < 16; ++slot) // key 912 + slot
    EXPECT_EQ(std::isnan(call.find("k_pool")->get({first, slot, 0, 0})), slot < 12) << slot;
}

TEST(Harness, UnusedSlotsHoldGarbage) {
  Spec spec = parse(kRaggedPaged);
  Shape shape = shapeOf({1}, {13});
  shape.garbageInKeys = false;
  Call call = made(spec, shape);
  int64_t page = int64_t(call.find("block_table")->get({0, 0}));
  EXPECT_FALSE(std::isnan(call.find("v_pool")->get({page, 12, 0, 0})));
  EXPECT_TRUE(std::isnan(call.find("v_pool")->get({page, 13, 0, 0})));
  EXPECT_EQ(call.find("k_pool")->get({page, 13, 0, 0}), 0);
}

TEST(Harness, CallsForTimesHaveNoElements) {
  for (const char *text : {kRaggedPaged, kDense, kAppend}) {
    Spec spec = parse(text);
    Shape shape = shapeOf({2, 2}, {13, 13});
    Call full = made(spec, shape);
    shape.contents = false;
    Call call = made(spec, shape);
    ASSERT_EQ(call.arrays.size(), full.arrays.size());
    int64_t elsewhere = 0;
    for (size_t i = 0; i < call.arrays.size(); ++i) {
      HostArray &array = call.arrays[i];
      EXPECT_EQ(array.name, full.arrays[i].name);
      EXPECT_EQ(array.shape, full.arrays[i].shape);
      EXPECT_EQ(array.strides, full.arrays[i].strides);
      if (array.name == "slots") { // of a lone append: drawn behind the pools' numbers, so others
        EXPECT_TRUE(array.hasMemory());
      } else if (array.hasMemory()) { // lengths and tables are what they were
        EXPECT_EQ(array.elementBytes(), full.arrays[i].elementBytes()) << array.name;
      } else {
        EXPECT_TRUE(reference::isFloat(array.type)) << array.name;
        EXPECT_EQ(array.data(), nullptr);
        ++elsewhere;
      }
    }
    EXPECT_GE(elsewhere, 4); // Q, K, V, O; new K and V, and their pools
  }
}

TEST(Harness, ShapesAreFittedToTheTypes) {
  Spec spec = parse(kDense);
  llvm::Expected<Shape> fitted = fit(spec, shapeOf({1, 2, 3}, {5, 6, 7}));
  ASSERT_TRUE(bool(fitted));
  EXPECT_EQ(fitted->queryLengths, (std::vector<int64_t>{2, 2})); // batch 2, one length
  EXPECT_EQ(fitted->keyLengths, (std::vector<int64_t>{6, 6}));   // no `sequences`
  EXPECT_EQ(fitted->heads, 6);
  EXPECT_EQ(fitted->vDim, 8);
}

TEST(Harness, FillsShowWhatTheyShould) {
  Spec spec = parse(kDense);
  Shape shape = shapeOf({3}, {5});
  shape.fill = Fill::ConstantValue;
  Call call = made(spec, shape);
  ASSERT_FALSE(bool(runOracle(spec, call)));
  for (int64_t head = 0; head < 6; ++head)
    EXPECT_EQ(call.find("o")->get({1, 2, head, 3}), 1 + head / 3);
}

TEST(Harness, NoCaseExcusesARefusal) {
  Spec spec = parse(kDense);
  auto refuse = [](Call &) { return reference::error("no"); };
  for (const Case &c : hardCases(spec))
    EXPECT_EQ(llvm::toString(runCase(spec, c, refuse).takeError()), "no") << c.name;
}

TEST(Harness, UnknownNumbersAreRefused) {
  Spec spec = parse(kRaggedPaged);
  Shape shape = shapeOf({1}, {1});
  shape.numbers["windw"] = 3;
  EXPECT_EQ(llvm::toString(generate(spec, shape).takeError()),
            "the spec has no number 'windw'; it has scale, window");
}

TEST(Harness, IntegersAreNotTruncated) {
  Spec spec = parse(kRaggedPaged);
  Shape shape = shapeOf({1}, {1});
  for (auto [given, text] : {std::pair(2.7, "2.7"), std::pair(1e30, "1e+30")}) {
    shape.numbers["window"] = given;
    EXPECT_EQ(llvm::toString(generate(spec, shape).takeError()),
              std::string("number 'window' is ") + text + "; the spec wants an integer");
  }
}

/// Names of the hard cases in which a kernel that computes `wrong` instead of `spec`
/// is caught, or the error that it stops with.
std::string caught(const Spec &spec, const Runner &wrong) {
  std::string names;
  for (const Case &c : hardCases(spec)) {
    llvm::Expected<Report> result = runCase(spec, c, wrong);
    if (result && result->passed)
      continue;
    names += c.name + "; ";
    if (!result)
      llvm::consumeError(result.takeError());
  }
  return names;
}

std::string replaced(std::string text, const std::string &from, const std::string &to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

TEST(Harness, HardCasesCatchAWindowOffByOne) { // A8
  Spec spec = parse(kRaggedPaged),
       wrong = parse(replaced(kRaggedPaged, "window<100>", "window<101>"));
  std::string names =
      caught(spec, [&](Call &call) -> llvm::Error { return runOracle(wrong, call); });
  EXPECT_NE(names.find("decode at tile edges"), std::string::npos) << names;
}

TEST(Harness, HardCasesCatchTheOtherAlignment) { // A10
  Spec spec = parse(kRaggedPaged),
       wrong = parse(replaced(kRaggedPaged, "causal", "causal<top_left>"));
  std::string names =
      caught(spec, [&](Call &call) -> llvm::Error { return runOracle(wrong, call); });
  EXPECT_NE(names.find("alignment with 64 queries"), std::string::npos) << names;
}

TEST(Harness, HardCasesCatchAFixedNumber) { // A26: a number compiled in
  Spec spec = parse(kRaggedPaged);
  std::string names = caught(spec, [&](Call &call) -> llvm::Error {
    std::map<std::string, double> numbers = std::exchange(call.numbers, {});
    llvm::Error failure = runOracle(spec, call);
    call.numbers = numbers;
    return failure;
  });
  EXPECT_EQ(names, "another scale; every number 1; numbers beyond every length; ");
}

TEST(Harness, HardCasesCatchMixedUpHeads) { // query head h reads KV head h mod 2 of 2
  Spec spec = parse(kDense);
  std::string names = caught(spec, [&](Call &call) -> llvm::Error {
    if (llvm::Error failure = runOracle(spec, call))
      return failure;
    HostArray &o = *call.find("o");
    for (int64_t b = 0; b < o.shape[0]; ++b)
      for (int64_t i = 0; i < o.shape[1]; ++i)
        for (int64_t c = 0; c < o.shape[3]; ++c) {
          double first = o.get({b, i, 2, c}), second = o.get({b, i, 3, c});
          o.set({b, i, 2, c}, second);
          o.set({b, i, 3, c}, first);
        }
    return llvm::Error::success();
  });
  EXPECT_NE(names.find("constant V: heads"), std::string::npos) << names;
}

TEST(Harness, HardCasesCatchGarbageThatLeaks) { // A1: 0 * NaN
  Spec spec = parse(kRaggedPaged);
  std::string names = caught(spec, [&](Call &call) -> llvm::Error {
    if (llvm::Error failure = runOracle(spec, call))
      return failure;
    HostArray &pool = *call.find("v_pool"), &o = *call.find("o");
    for (int64_t b = 0; b < call.find("kv_len")->shape[0];
         ++b) { // the tail of the last page times 0
      int64_t length = int64_t(call.find("kv_len")->get({b}));
      int64_t row = int64_t(call.find("cu_seqlens_q")->get({b}));
      if (length % 16 == 0 || call.find("cu_seqlens_q")->get({b + 1}) == double(row))
        continue;
      int64_t page = int64_t(call.find("block_table")->get({b, length / 16}));
      o.set({row, 0, 0}, o.get({row, 0, 0}) + 0 * pool.get({page, 15, 0, 0}));
    }
    return llvm::Error::success();
  });
  EXPECT_NE(names.find("NaN past a short last page"), std::string::npos) << names;
}

} // namespace
} // namespace llmopt::harness

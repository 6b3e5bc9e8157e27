#include "CallTestUtil.h"

using namespace calltest;

namespace {

BindOptions withPlan(PlanOptions plan, bool validatePages = true) {
  return {.plan = plan, .validatePages = validatePages};
}

struct Shape {
  const char *name;
  std::vector<int32_t> queryLens, keyLens;
};

const Shape kShapes[] = {
    {"decode", {1, 1, 1}, {17, 64, 5}},
    {"prefill", {20, 33}, {20, 33}},
    {"extend", {5, 1, 7}, {40, 90, 8}},
    {"moreQueriesThanKeys", {9}, {4}},
    // A12: no keys and no queries between others.
    {"emptyDecode", {1, 1, 1, 1}, {0, 5, 0, 33}},
    {"emptyPrefill", {3, 0, 2, 1}, {0, 5, 0, 33}},
    {"nothing", {0}, {0}},
};

} // namespace

TEST(BoundCall, EveryFormMatchesTheNaiveComputation) {
  for (KvForm form : {KvForm::Paged, KvForm::Ragged, KvForm::Dense})
    for (uint32_t splits : {1, 4})
      for (const Shape &shape : kShapes) {
        SCOPED_TRACE(testing::Message()
                     << shape.name << " form " << int(form) << " splits " << splits);
        Spec spec{.kvForm = form};
        Case data(spec, shape.queryLens, shape.keyLens);
        PlanOptions plan{.workers = 5, .splitPolicy = SplitPolicy::Fixed, .splits = splits};
        std::shared_ptr<DeviceProgram> program = loadOrDie(makeProgram(spec));
        Plan made = runOrDie(program, data.arguments(), withPlan(plan));
        data.expectRight();
        if (splits == 1) {
          EXPECT_TRUE(made.merges.empty());
        }
      }
}

// A5: ratios of query to KV heads that are in nobody's list.
TEST(BoundCall, AnyGroupRatio) {
  const std::pair<uint32_t, uint32_t> heads[] = {{28, 4}, {24, 4}, {64, 4}, {40, 8}, {9, 3}};
  for (auto [queryHeads, kvHeads] : heads)
    for (int32_t queries : {1, 5}) {
      SCOPED_TRACE(queryHeads / kvHeads);
      Spec spec{.queryHeads = queryHeads, .kvHeads = kvHeads, .pageSize = 16};
      Case data(spec, {queries, queries}, {50, 19});
      PlanOptions plan{.workers = 4, .splitPolicy = SplitPolicy::Fixed, .splits = 3};
      Plan made = runOrDie(loadOrDie(makeProgram(spec)), data.arguments(), withPlan(plan));
      EXPECT_GT(made.partialRows, 0u);
      data.expectRight();
    }
}

TEST(BoundCall, PageSizesAndTableForms) {
  for (uint32_t pageSize : {1, 3, 16, 64, 100})
    for (TableForm form : {TableForm::BlockTable, TableForm::Indptr}) {
      SCOPED_TRACE(testing::Message() << "page " << pageSize << " form " << int(form));
      Spec spec{.tableForm = form, .pageSize = pageSize};
      Case data(spec, {2, 1, 1}, {33, 0, 101});
      runOrDie(loadOrDie(makeProgram(spec)), data.arguments(), withPlan({.workers = 3}));
      data.expectRight();
    }
}

TEST(BoundCall, ScalarsOverrideTheirDefaults) {
  Case data(Spec(), {3, 1}, {40, 70});
  CallArguments arguments = data.arguments();
  arguments.scalars = {{"scale", 0.5}, {"window", int64_t{9}}};
  Plan plan = runOrDie(loadOrDie(makeProgram(Spec())), arguments, withPlan({.workers = 1}));
  data.expectRight(0.5, 9);
  for (const AttendPlan &attend : plan.attends)
    for (const WorkItem &item : attend.items)
      EXPECT_GE(item.keyBegin, item.sequence == 0 ? 24u : 56u) << "bounds follow the scalar";
  arguments.scalars = {{"scale", int64_t{1}}};
  runOrDie(loadOrDie(makeProgram(Spec())), arguments, {});
  data.expectRight(1);
}

TEST(BoundCall, StridedArraysAreReadWhereTheyLie) {
  Spec spec;
  Case data(spec, {4, 2}, {20, 9}), strided(spec, {4, 2}, {20, 9});
  // Heads outermost, tokens inside: (heads, tokens, d) seen as (tokens, heads,
  // d).
  for (int64_t t = 0; t < data.tokens; ++t)
    for (int64_t h = 0; h < spec.queryHeads; ++h)
      for (int64_t d = 0; d < spec.dQk; ++d)
        strided.query[(h * data.tokens + t) * spec.dQk + d] =
            data.query[(t * spec.queryHeads + h) * spec.dQk + d];
  CallArguments arguments = strided.arguments();
  arguments.arrays["q"].strides = {spec.dQk, data.tokens * spec.dQk, 1};
  std::shared_ptr<DeviceProgram> program = loadOrDie(makeProgram(spec));
  runOrDie(program, arguments, {});
  runOrDie(program, data.arguments(), {});
  EXPECT_EQ(strided.output, data.output);
}

TEST(BoundCall, RunsAgainWithNewContentsOnAnyNumberOfThreads) {
  Case data(Spec(), {3}, {30});
  PlanOptions plan{.workers = 6, .splitPolicy = SplitPolicy::Fixed, .splits = 2};
  for (uint32_t threads : {1, 4, 2}) {
    std::shared_ptr<DeviceProgram> program = loadOrDie(makeProgram(Spec()), cpuDevice(threads));
    StatusOr<BoundCall> call = BoundCall::bind(program, data.arguments(), withPlan(plan));
    ASSERT_TRUE(call);
    BoundCall moved = *std::move(call);
    for (int run = 0; run < 2; ++run) {
      for (float &x : data.query)
        x = -x / 2;
      ASSERT_TRUE(runCall(moved, *program->device()).ok());
      data.expectRight();
    }
  }
}

// A captured call serves every batch within its arrays: the plan is data.
TEST(BoundCall, AReplayRunsTheBatchThatWasPlannedLast) {
  Case data(Spec(), {1, 1, 1, 1}, {60, 17, 33, 1});
  for (uint32_t splits : {1, 3}) {
    SCOPED_TRACE(splits);
    std::shared_ptr<DeviceProgram> program = loadOrDie(makeProgram(Spec()));
    BindOptions options{.plan = {.workers = 5, .splitPolicy = SplitPolicy::Fixed, .splits = splits},
                        .replayable = true};
    StatusOr<BoundCall> call = BoundCall::bind(program, data.arguments(), options);
    ASSERT_TRUE(call) << call.status().toString();
    std::unique_ptr<Stream> stream = *program->device()->createStream();
    ASSERT_TRUE(call->prepare(*stream).ok());
    ASSERT_TRUE(stream->beginCapture().ok());
    ASSERT_TRUE(call->run(*stream).ok());
    std::unique_ptr<Graph> graph = *stream->endCapture();
    for (std::vector<int32_t> keys :
         {std::vector<int32_t>{60, 17, 33, 1}, {5, 0, 33, 40}, {0, 0, 0, 0}, {60, 60, 60, 60}}) {
      for (size_t s = 0; s < keys.size(); ++s)
        data.keyLens[s] = std::min(keys[s], int32_t(data.pagesOf(s) * data.spec.pageSize));
      ASSERT_TRUE(call->replan(data.arguments()).ok());
      ASSERT_TRUE(call->prepare(*stream).ok());
      std::fill(data.output.begin(), data.output.end(), 77.0f);
      ASSERT_TRUE(stream->replay(*graph).ok());
      data.expectRight();
    }
  }
}

TEST(BoundCall, ReplanRefusesOtherArraysAndKeepsTheOldPlan) {
  Case data(Spec(), {1, 1}, {9, 17});
  std::shared_ptr<DeviceProgram> program = loadOrDie(makeProgram(Spec()));
  StatusOr<BoundCall> fixed = BoundCall::bind(program, data.arguments());
  EXPECT_EQ(fixed->replan(data.arguments()).message(),
            "the call was not bound as replayable; set BindOptions::replayable");
  StatusOr<BoundCall> call = BoundCall::bind(program, data.arguments(), {.replayable = true});
  ASSERT_TRUE(call);
  CallArguments other = data.arguments();
  std::vector<float> elsewhere = data.query;
  other.arrays["q"].data = elsewhere.data();
  EXPECT_EQ(call->replan(other).message(),
            "array 'q' has another address, shape or strides than when the call was bound; bind a "
            "new call");
  data.keyLens[0] = -1;
  EXPECT_EQ(call->replan(data.arguments()).code(), StatusCode::InvalidArgument);
  data.keyLens[0] = 9;
  ASSERT_TRUE(runCall(*call, *program->device()).ok());
  data.expectRight();
}

// A21: slot -1 is padding and must leave the last real slot alone.
TEST(BoundCall, AppendSkipsSlotMinusOneAndThenAttends) {
  Spec spec{.append = true};
  Case data(spec, {3, 2}, {9, 6});
  std::vector<int64_t> slots;
  for (size_t s = 0; s < 2; ++s)
    for (int64_t q = 0; q < data.queryLens[s]; ++q)
      slots.push_back(data.keyToken(s, data.keyLens[s] - data.queryLens[s] + q));
  slots.resize(8, -1); // padded for a captured graph
  std::vector<float> newKey = data.randomArray(8 * spec.kvHeads * spec.dQk);
  std::vector<float> newValue = data.randomArray(8 * spec.kvHeads * spec.dV);
  CallArguments arguments = data.arguments();
  arguments.arrays["slots"] = ArrayRef::contiguous(slots.data(), ElementType::I64, {8});
  arguments.arrays["new_k"] =
      ArrayRef::contiguous(newKey.data(), ElementType::F32, {8, spec.kvHeads, spec.dQk});
  arguments.arrays["new_v"] =
      ArrayRef::contiguous(newValue.data(), ElementType::F32, {8, spec.kvHeads, spec.dV});
  std::vector<float> expectedKeys = data.key;
  int64_t width = spec.kvHeads * spec.dQk;
  for (size_t t = 0; t < 5; ++t)
    std::copy_n(newKey.begin() + t * width, width, expectedKeys.begin() + slots[t] * width);
  runOrDie(loadOrDie(makeProgram(spec)), arguments, withPlan({.workers = 3}));
  EXPECT_EQ(data.key, expectedKeys) << "all other slots keep their values";
  data.expectRight();

  slots[7] = data.keyTokens;
  EXPECT_EQ(BoundCall::bind(loadOrDie(makeProgram(spec)), arguments).status().message(),
            fmt::format("array 'slots' sends token 7 to slot {}; the pool has {} pages of 4 "
                        "slots, and -1 skips a token",
                        data.keyTokens, data.keyTokens / 4));
  slots[7] = -2;
  EXPECT_FALSE(BoundCall::bind(loadOrDie(makeProgram(spec)), arguments));
}

TEST(BoundCall, CountersStartAnewWithEachRun) {
  Case data(Spec(), {4}, {30});
  std::shared_ptr<DeviceProgram> program = loadOrDie(makeProgram(Spec()));
  BindOptions options = withPlan({.workers = 2, .splitPolicy = SplitPolicy::None});
  StatusOr<BoundCall> call = BoundCall::bind(program, data.arguments(), options);
  ASSERT_TRUE(call);
  uint64_t all = 0;
  for (int run = 0; run < 2; ++run) {
    std::unique_ptr<Stream> stream = *program->device()->createStream();
    ASSERT_TRUE(call->run(*stream).ok());
    StatusOr<std::vector<uint64_t>> counters = call->counters(*stream);
    ASSERT_TRUE(counters);
    // Two numbers for each worker, apart for each kernel.
    size_t each = 4;
    ASSERT_EQ(counters->size(), each * call->plan().attends.size());
    for (size_t i = 0; i < call->plan().attends.size(); ++i) {
      uint64_t rows = 0;
      for (const bundle::WorkItem &item : call->plan().attends[i].items)
        rows += item.rowCount;
      std::span<const uint64_t> own = std::span(*counters).subspan(i * each, each);
      EXPECT_EQ(own[0] + own[2], rows);
      all += rows;
    }
    EXPECT_EQ(std::exchange(all, 0), 16u) << "rows: 4 queries, 4 heads";
  }
}

TEST(BoundCall, DecodeNeedsNoQueryOffsets) {
  Case data(Spec(), {1, 1}, {12, 30});
  CallArguments arguments = data.arguments();
  arguments.arrays.erase("cu_q");
  arguments.arrays.erase("lse");
  runOrDie(loadOrDie(makeProgram(Spec())), arguments, {});
  data.lse.clear();
  CallArguments again = data.arguments();
  data.lse.assign(data.tokens * data.spec.queryHeads, 0);
  again.arrays["lse"].data = data.lse.data();
  std::vector<float> first = data.output;
  runOrDie(loadOrDie(makeProgram(Spec())), again, {});
  data.expectRight();
  EXPECT_EQ(first, data.output);
}

TEST(BoundCall, AFailingKernelIsNamed) {
  Program program = makeProgram(Spec());
  program.kernels[1].entry = "failing";
  Case data(Spec(), {1}, {5});
  std::shared_ptr<DeviceProgram> loaded = loadOrDie(program);
  StatusOr<BoundCall> call = BoundCall::bind(loaded, data.arguments(), withPlan({.workers = 3}));
  ASSERT_TRUE(call);
  EXPECT_EQ(runCall(*call, *loaded->device()).toString(),
            "Internal: kernel 'failing' of program 'scalar_attention' returned -7");
}

// Steps as captured work: the smallest bucket that fits, the same pointers each time, and a
// device that faults on anything else.
#include "Alone.h"
#include "RecordingDevice.h"
#include "Server.h"

#include "runtime/device/ParamBlock.h"

#include <cmath>

namespace llmopt::test {
namespace {

std::vector<kv::Token> promptOf(uint32_t stream, uint32_t tokens) {
  std::vector<kv::Token> prompt(tokens);
  for (uint32_t i = 0; i < tokens; ++i)
    prompt[i] = (stream * 7919 + i * i * 31 + i * 17) % 256;
  return prompt;
}

/// Lets the device know when a step runs, and waits for the stream where it reads results.
class WatchedLayers : public TinyLayers {
public:
  WatchedLayers(const TinyModel &model, RecordingDevice &device)
      : TinyLayers(model), device(device) {}
  Status begin(const ModelBatch &batch) override {
    device.setInStep(true);
    return TinyLayers::begin(batch);
  }
  Status absorb(const ModelBatch &batch, uint32_t layer, const LayerArrays &arrays) override {
    device.setReading(true);
    Status status = batch.stream->synchronize();
    device.setReading(false);
    return status.ok() ? TinyLayers::absorb(batch, layer, arrays) : status;
  }
  Status finish(const ModelBatch &batch) override {
    device.setInStep(false);
    return TinyLayers::finish(batch);
  }

private:
  RecordingDevice &device;
};

struct Watched {
  explicit Watched(ServerOptions wanted)
      : device(std::make_shared<RecordingDevice>(*CpuDevice::create(2))), model(TinyConfig()),
        layers(model, *device), server(with(std::move(wanted), device), layers),
        alone(model, server.options.spec, server.options.groups) {}
  static ServerOptions with(ServerOptions options, std::shared_ptr<Device> device) {
    options.device = std::move(device);
    return options;
  }

  void add(uint32_t stream, uint32_t prompt, uint32_t tokens) {
    std::vector<kv::Token> own = promptOf(stream, prompt);
    RequestParams params;
    params.prompt = own;
    params.maxNewTokens = tokens;
    ASSERT_TRUE(server.add(params).ok());
  }
  void expectAsAlone() {
    for (const Outcome &outcome : server.outcomes) {
      Answer expected = alone.run(outcome.prompt, outcome.asked);
      EXPECT_EQ(outcome.answer.tokens, expected.tokens);
      std::vector<uint64_t> hashes =
          layers.hashes[{outcome.handle.slot, outcome.handle.generation}];
      hashes.resize(outcome.asked);
      EXPECT_EQ(hashes, expected.logits);
    }
  }

  std::shared_ptr<RecordingDevice> device;
  TinyModel model;
  WatchedLayers layers;
  Server server;
  Alone alone;
};

// A24: batches of 1 to 8 live rows through work that was captured once. Rows that are not there
// cost nothing and write nothing.
TEST(Captured, EveryStepIsAReplayWithTheSamePointers) {
  for (uint32_t inFlight : {1u, 2u, 4u}) {
    SCOPED_TRACE(inFlight);
    ServerOptions options;
    options.scheduler.stepsInFlight = inFlight;
    options.captures = {{.maxRows = 4, .maxQueryTokens = 1, .phases = kDecodes},
                        {.maxRows = 16, .maxQueryTokens = 1, .phases = kDecodes},
                        {.maxRows = 16, .maxQueryTokens = 256, .phases = kAllPhases}};
    Watched watched(options);
    watched.device->seal();
    for (uint32_t i = 0; i < 8; ++i)
      watched.add(i, 20 + 37 * i, 3 + 6 * i);
    watched.server.runOut();
    watched.expectAsAlone();
    EXPECT_EQ(watched.device->faults(), std::vector<std::string>());
    const CaptureCounters &counters = watched.server.executor->captureCounters();
    EXPECT_EQ(counters.eager, 0u);
    for (uint64_t steps : counters.replayed)
      EXPECT_GT(steps, 0u) << "each bucket has its steps";
    EXPECT_GT(watched.device->replays(), 0u);
  }
}

TEST(Captured, AStepThatFitsNoBucketIsLaunchedAndCounted) {
  ServerOptions options;
  options.captures = {{.maxRows = 2, .maxQueryTokens = 1, .phases = kDecodes}};
  Watched watched(options);
  for (uint32_t i = 0; i < 4; ++i)
    watched.add(i, 30 + i, 4 + 8 * i);
  watched.server.runOut();
  watched.expectAsAlone();
  const CaptureCounters &counters = watched.server.executor->captureCounters();
  EXPECT_GT(counters.eager, 0u);
  EXPECT_GT(counters.replayed[0], 0u);
  EXPECT_EQ(counters.eager + counters.replayed[0], watched.server.steps);
}

TEST(Captured, GroupsThatABucketLeavesOutAreLaunched) {
  ServerOptions options;
  options.groups = {{{0}, 16, 0, 0}, {{1}, 8, 40, 2}};
  options.captures = {{.maxRows = 16, .maxQueryTokens = 256, .phases = kAllPhases, .groups = {1}}};
  Watched watched(options);
  watched.add(1, 100, 20);
  watched.add(2, 60, 30);
  uint64_t before = watched.device->launches();
  watched.server.runOut();
  watched.expectAsAlone();
  EXPECT_EQ(watched.server.executor->captureCounters().eager, 0u);
  EXPECT_GT(watched.device->launches(), before);
  EXPECT_EQ(watched.device->replays(), watched.server.steps) << "one layer";
}

/// A model that only copies: the query of a layer is the output of the one before, keys and values
/// follow from token and position.
class CopyingLayers : public TinyLayers {
public:
  static constexpr uint32_t kTokens = 256; ///< the server's budget
  CopyingLayers(const TinyModel &model, RecordingDevice &device)
      : TinyLayers(model), device(device) {
    for (int i = 0; i < 3; ++i) {
      size_t width = i ? model.keyWidth() : model.queryWidth();
      staging[i].resize(kTokens * width);
      memory[i] = *device.allocate(staging[i].size() * sizeof(float));
    }
    rows.resize(staging[0].size());
  }

  bool worksOnStream() const override { return true; }
  Status begin(const ModelBatch &batch) override {
    device.setInStep(true);
    asked.assign(batch.logits.begin(), batch.logits.end());
    for (int i = 0; i < 3; ++i) {
      size_t width = staging[i].size() / kTokens;
      for (size_t token = 0; token < batch.ids.size(); ++token)
        for (size_t d = 0; d < width; ++d)
          staging[i][token * width + d] =
              float(std::sin(batch.ids[token] * (d + 1.0) + batch.positions[token] * (i + 0.3)));
      LLMOPT_RETURN_IF_ERROR(batch.stream->copyIn(memory[i].data(), staging[i].data(),
                                                  staging[i].size() * sizeof(float)));
    }
    return {};
  }
  Status project(const ModelBatch &batch, uint32_t, const LayerArrays &arrays) override {
    void *to[] = {arrays.query, arrays.key, arrays.value};
    for (int i = 0; i < 3; ++i)
      LLMOPT_RETURN_IF_ERROR(batch.stream->copyWithin(to[i], memory[i].data(), memory[i].size()));
    return {};
  }
  Status absorb(const ModelBatch &batch, uint32_t, const LayerArrays &arrays) override {
    return batch.stream->copyWithin(memory[0].data(), arrays.output, memory[0].size());
  }
  Status finish(const ModelBatch &batch) override {
    device.setInStep(false);
    LLMOPT_RETURN_IF_ERROR(
        batch.stream->copyOut(rows.data(), memory[0].data(), rows.size() * sizeof(float)));
    return batch.stream->synchronize();
  }
  StatusOr<kv::Token> sample(const SampleQuery &query) override {
    size_t width = rows.size() / kTokens;
    uint64_t hash = hashOf(std::span(rows).subspan(asked[query.logit] * width, width));
    std::vector<uint64_t> &of = hashes[{query.row->row->request, query.row->row->generation}];
    of.resize(std::max<size_t>(of.size(), query.position + 1));
    of[query.position] = hash;
    return kv::Token(hash % 256);
  }

private:
  RecordingDevice &device;
  std::vector<float> staging[3], rows;
  std::vector<uint32_t> asked;
  DeviceMemory memory[3];
};

// Where the model's own work can be captured, a step of all layers of all groups is one replay;
// each bit is that of steps that were launched.
TEST(Captured, AModelOnTheStreamIsOneReplayAStep) {
  std::vector<Answer> answers[2];
  for (bool captured : {false, true}) {
    ServerOptions options;
    options.groups = {{{0}, 16, 0, 0}, {{1}, 8, 40, 2}};
    options.scheduler.stepsInFlight = 2;
    if (captured)
      options.captures = {{.maxRows = 16, .maxQueryTokens = 1, .phases = kDecodes},
                          {.maxRows = 16, .maxQueryTokens = 256, .phases = kAllPhases}};
    auto device = std::make_shared<RecordingDevice>(*CpuDevice::create(2));
    options.device = device;
    TinyModel model{TinyConfig()};
    CopyingLayers layers(model, *device);
    Server server(options, layers);
    if (captured)
      device->seal();
    for (uint32_t i = 0; i < 6; ++i) {
      std::vector<kv::Token> prompt = promptOf(i, 20 + 37 * i);
      RequestParams params;
      params.prompt = prompt;
      params.maxNewTokens = 3 + 6 * i;
      ASSERT_TRUE(server.add(params).ok());
    }
    server.runOut();
    EXPECT_EQ(device->replays(), captured ? server.steps : 0);
    EXPECT_EQ(device->faults(), std::vector<std::string>());
    if (captured)
      for (uint64_t steps : server.executor->captureCounters().replayed)
        EXPECT_GT(steps, 0u) << "each bucket has its steps";
    for (const Outcome &outcome : server.outcomes) {
      answers[captured].push_back(outcome.answer);
      answers[captured].back().logits =
          layers.hashes[{outcome.handle.slot, outcome.handle.generation}];
      EXPECT_EQ(outcome.answer.tokens.size(), outcome.asked);
    }
  }
  for (size_t i = 0; i < answers[0].size(); ++i) {
    EXPECT_EQ(answers[0][i].tokens, answers[1][i].tokens);
    EXPECT_EQ(answers[0][i].logits, answers[1][i].logits);
  }
}

// What the device is there for: it must see each of them.
TEST(Captured, TheDeviceSeesWhatMayNotBe) {
  Watched watched({});
  watched.device->seal();
  watched.add(1, 20, 3);
  watched.server.runOut();
  ASSERT_FALSE(watched.device->faults().empty());
  EXPECT_EQ(watched.device->faults()[0], "a kernel is launched outside of what was captured");
  size_t before = watched.device->faults().size();
  ASSERT_TRUE(watched.device->allocate(64).ok());
  std::unique_ptr<Stream> stream = *watched.device->createStream();
  watched.device->setInStep(true);
  int word = 0, other = 0;
  ASSERT_TRUE(stream->copyIn(&word, &other, sizeof(word)).ok());
  ASSERT_TRUE(stream->synchronize().ok());
  ASSERT_EQ(watched.device->faults().size(), before + 3);
  EXPECT_EQ(watched.device->faults()[before], "memory is allocated");
  EXPECT_EQ(watched.device->faults()[before + 1],
            "a copy goes to memory that was not there before");
  EXPECT_EQ(watched.device->faults()[before + 2], "the host waits during a step");
}

TEST(Captured, BucketsThatNoStepFitsAreRefused) {
  for (CaptureBucket bad : {CaptureBucket{.maxRows = 0}, CaptureBucket{.maxRows = 1, .phases = 0},
                            CaptureBucket{.maxRows = 1, .phases = kDecodes, .groups = {1}}}) {
    ServerOptions options;
    options.captures = {bad};
    TinyModel model(options.spec.model);
    TinyLayers layers(model);
    EXPECT_THROW(Server(options, layers), std::runtime_error);
  }
}

/// Plans three batches one after the other, with D = 2 uploads under way, and looks at what each
/// of them brought to the device.
bool bringsEachPlan(uint32_t places, bool lying) {
  auto device = std::make_shared<RecordingDevice>(*CpuDevice::create(1));
  if (lying)
    device->lieAboutEvents();
  SpecOptions spec;
  bundle::Program program = *compileText(pagedSpec(spec, {{0}, 16, 0, 0}));
  PlanLimits limits{.rows = 4, .queryTokens = 4, .splits = mostSplits(program, {}, 4000)};
  Planner planner = *Planner::create(program, {.workers = 3}, limits);
  PlanArena arena = *PlanArena::create(*device, program, planner.room(), places);
  std::unique_ptr<Stream> stream = *device->createStream();
  uint32_t kernel = 0;
  while (program.kernels[kernel].kind != bundle::KernelKind::Attend)
    ++kernel;
  const void *rows = arena.buffers(program, kernel)[bundle::BufferRole::Rows].data;
  std::vector<bundle::RowEntry> seen(3);
  for (uint32_t i = 0; i < 3; ++i) {
    BatchShape batch;
    batch.sequences.push_back({.queryLen = 1, .keyLen = 500 + 700 * int64_t(i)});
    Plan &plan = **arena.next();
    if (!planner.plan(batch, {}, plan))
      return false;
    arena.commit(PlanChange::All, {}, {});
    if (!arena.upload(*stream).ok())
      return false;
    // What a kernel of the step would read.
    if (!stream->copyIn(&seen[i], rows, sizeof(seen[i])).ok())
      return false;
  }
  if (!stream->synchronize().ok())
    return false;
  for (uint32_t i = 0; i < 3; ++i)
    if (seen[i].position != int32_t(499 + 700 * i))
      return false;
  return true;
}

TEST(PlanRing, NoPlanIsOverwrittenBeforeItIsCopied) {
  for (uint32_t places : {1, 2, 3})
    EXPECT_TRUE(bringsEachPlan(places, false)) << places << ": the event guards it";
  EXPECT_TRUE(bringsEachPlan(3, true)) << "D + 1 places for D = 2 need not wait";
  EXPECT_FALSE(bringsEachPlan(1, true)) << "one place without a guard must be seen";
  EXPECT_FALSE(bringsEachPlan(2, true));
}

// A21, flashinfer p#4016: what pads a list has no rows, and writes nothing.
TEST(Padding, ItemsWithoutRowsWriteNothing) {
  std::shared_ptr<CpuDevice> device = *CpuDevice::create(1);
  SpecOptions spec;
  bundle::Program program = *compileText(pagedSpec(spec, {{0}, 16, 0, 0}));
  std::shared_ptr<DeviceProgram> loaded = *device->load(program);
  constexpr int64_t kSequences = 3, kPages = 40, kColumns = 12;
  uint32_t heads = spec.model.queryHeads, kvHeads = spec.model.kvHeads, dim = spec.model.headDim;
  std::vector<float> query(kSequences * heads * dim), output(query.size(), 77);
  std::vector<float> keys(kPages * 16 * kvHeads * dim), values(keys.size());
  std::vector<int32_t> table(kSequences * kColumns), lengths(kSequences), offsets(kSequences + 1);
  for (size_t i = 0; i < keys.size(); ++i)
    keys[i] = float(i * 37 % 19) * 0.1f - 1, values[i] = float(i * 53 % 23) * 0.1f - 1;
  for (size_t i = 0; i < query.size(); ++i)
    query[i] = float(i * 29 % 17) * 0.1f - 0.8f;
  for (size_t i = 0; i < table.size(); ++i)
    table[i] = int32_t(i * 7 % kPages);
  CallArguments arguments;
  using E = bundle::ElementType;
  arguments.arrays["q"] = ArrayRef::contiguous(query.data(), E::F32, {kSequences, heads, dim});
  for (const bundle::Buffer &buffer : program.buffers) {
    if (buffer.role == bundle::BufferRole::Output)
      arguments.arrays[buffer.name] =
          ArrayRef::contiguous(output.data(), E::F32, {kSequences, heads, dim});
    if (buffer.role == bundle::BufferRole::KeyPool)
      arguments.arrays[buffer.name] =
          ArrayRef::contiguous(keys.data(), E::F32, {kPages, 16, kvHeads, dim});
    if (buffer.role == bundle::BufferRole::ValuePool)
      arguments.arrays[buffer.name] =
          ArrayRef::contiguous(values.data(), E::F32, {kPages, 16, kvHeads, dim});
    if (buffer.role == bundle::BufferRole::BlockTable)
      arguments.arrays[buffer.name] =
          ArrayRef::contiguous(table.data(), E::I32, {kSequences, kColumns});
    if (buffer.role == bundle::BufferRole::KvLen)
      arguments.arrays[buffer.name] = ArrayRef::contiguous(lengths.data(), E::I32, {kSequences});
    if (buffer.role == bundle::BufferRole::CuSeqlensQ)
      arguments.arrays[buffer.name] =
          ArrayRef::contiguous(offsets.data(), E::I32, {kSequences + 1});
  }
  BatchShape batch;
  for (int64_t s = 0; s < kSequences; ++s)
    batch.sequences.push_back({.queryLen = 1,
                               .keyLen = s == 1 ? 0 : 150 + s,
                               .queryBase = s,
                               .tableBase = s * kColumns,
                               .batch = s});
  ScalarTable scalars = *resolveScalars(program, arguments, *matchArrays(program, arguments));
  Plan plan = *makePlan(program, batch, scalars.values, {.workers = 1});
  auto run = [&](const Plan &wanted) {
    PlanCounts room = PlanCounts::of(wanted);
    PlanArena arena = *PlanArena::create(*device, program, room);
    EXPECT_TRUE(arena.write(wanted, scalars.slots, {}).ok());
    std::fill(output.begin(), output.end(), 77.0f);
    std::unique_ptr<Stream> stream = *device->createStream();
    for (bundle::KernelKind kind : {bundle::KernelKind::Attend, bundle::KernelKind::Merge})
      for (uint32_t k = 0; k < program.kernels.size(); ++k)
        if (program.kernels[k].kind == kind) {
          AlignedBuffer block =
              makeParamBlock(program, *matchArrays(program, arguments), arena.buffers(program, k));
          KernelCall call{k, {block.data(), block.size()}};
          EXPECT_TRUE(stream->launch(*loaded, std::span(&call, 1), 1).ok());
        }
    return output;
  };
  std::vector<float> right = run(plan);
  for (uint32_t h = 0; h < heads * dim; ++h)
    EXPECT_EQ(right[heads * dim + h], 0.0f) << "the empty sequence";
  // Padding everywhere, of zeros and of what an old plan left behind.
  Plan padded = plan;
  for (AttendPlan &attend : padded.attends) {
    PlanArray<bundle::WorkItem> items(3 * attend.items.size() + 2);
    for (const bundle::WorkItem &item : attend.items) {
      bundle::WorkItem stale = item;
      stale.rowCount = 0;
      items.push({});
      items.push(item);
      items.push(stale);
    }
    attend.items = std::move(items);
    attend.itemOffsets[1] = uint32_t(attend.items.size());
  }
  EXPECT_EQ(run(padded), right);
  // Nothing but padding leaves the output alone.
  for (AttendPlan &attend : padded.attends)
    for (bundle::WorkItem &item : attend.items)
      item.rowCount = 0;
  padded.merges.setSize(0);
  padded.mergeOffsets[1] = 0;
  EXPECT_EQ(run(padded), std::vector<float>(output.size(), 77.0f));
}

} // namespace
} // namespace llmopt::test

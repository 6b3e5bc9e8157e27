// Layer groups of the other kinds: chunks as the sequence alone sees them, and pages that hold K
// only, byte for byte.
#include "Alone.h"
#include "Server.h"

#include "runtime/executor/KvMemory.h"
#include "runtime/kv/Pool.h"
#include "runtime/scheduler/StepWriter.h"

#include <cstring>

namespace llmopt::test {
namespace {

TEST(Chunked, LayersBesideFullOnesAreAsAlone) {
  ServerOptions options;
  options.groups = {{{0}, 16, 0, 0}, {{1}, 16, 0, 0}};
  options.groups[1].chunk = 48;
  options.pages = 60;
  options.hostPages = 100;
  options.costs.secondsPerToken = 1e-5;
  options.costs.copyLatency = 7e-4;
  options.scheduler.stepsInFlight = 2;
  options.scheduler.chunkTokens = 40; // prompts are cut inside of chunks
  TinyModel model(options.spec.model);
  TinyLayers layers(model);
  Server server(options, layers);
  // Prompts that end before, at and behind the end of a chunk, and two that begin alike.
  for (uint32_t length : {1u, 47u, 48u, 49u, 95u, 96u, 97u, 150u, 151u}) {
    std::vector<kv::Token> prompt(length);
    for (uint32_t t = 0; t < length; ++t)
      prompt[t] = (t * t * 7 + 5 * t) % 256;
    RequestParams params;
    params.prompt = prompt;
    params.maxNewTokens = 60;
    params.greedy = false;
    params.samplingSeed = length;
    ASSERT_TRUE(server.add(params).ok());
  }
  uint32_t mostFull = 0, mostChunked = 0;
  server.runOut([&] {
    const kv::Pool &pool = server.blocks->pool();
    mostFull = std::max(mostFull, pool.count(0, kv::PageState::Used));
    mostChunked = std::max(mostChunked, pool.count(1, kv::PageState::Used));
  });
  Alone alone(model, options.spec, options.groups);
  for (const Outcome &outcome : server.outcomes) {
    Answer expected = alone.run(outcome.prompt, outcome.asked, false, outcome.seed);
    EXPECT_EQ(outcome.answer.tokens, expected.tokens) << outcome.prompt.size();
    std::vector<uint64_t> hashes = layers.hashes[{outcome.handle.slot, outcome.handle.generation}];
    hashes.resize(outcome.asked);
    EXPECT_EQ(hashes, expected.logits) << outcome.prompt.size();
  }
  EXPECT_LT(mostChunked, mostFull) << "pages of chunks that are over are given back";
  EXPECT_GT(server.blocks->counters().hitTokens, 0u);
  EXPECT_GT(server.scheduler->metrics().preemptions, 0u);
}

/// Memory of a group with K and V and of one with K only, whose pages are half as large.
class LatentPages : public testing::Test {
protected:
  static constexpr uint32_t kSlots = 4, kDim = 8, kLatentBytes = kSlots * kDim * 4,
                            kFullBytes = 2 * kLatentBytes;

  void SetUp() override {
    groups.resize(2);
    for (LayerGroup &group : groups) {
      group.layers = {0};
      group.queryHeads = group.kvHeads = 1;
      group.keyDim = group.valueDim = kDim;
      group.pages.pageSize = kSlots;
    }
    groups[1].layers = {1};
    groups[1].valueDim = 0;
    groups[1].pages.kind = kv::GroupKind::Latent;
    for (LayerGroup &group : groups) {
      group.pages.dataBytes = group.layerBytes();
      options.groups.push_back(group.pages);
    }
    ASSERT_EQ(groups[0].pages.pageBytes(), kFullBytes);
    ASSERT_EQ(groups[1].pages.pageBytes(), kLatentBytes);
    options.budgetBytes = 16 * kFullBytes;
    options.hostBytes = 8 * kFullBytes;
    options.maxSequences = 4;
    options.maxTokens = 64;
    StatusOr<std::shared_ptr<CpuDevice>> opened = CpuDevice::create(1);
    ASSERT_TRUE(opened.ok());
    device = *opened;
    StatusOr<std::unique_ptr<Stream>> queue = device->createStream();
    ASSERT_TRUE(queue.ok());
    stream = *std::move(queue);
    StatusOr<KvMemory> made = KvMemory::create(*device, *stream, options, groups, {});
    ASSERT_TRUE(made.ok()) << made.status().toString();
    memory = *std::move(made);
    auto managed = kv::BlockManager::create(options);
    ASSERT_TRUE(managed.ok()) << managed.status().toString();
    blocks = *std::move(managed);
    StepCapacities capacities;
    capacities.tableSlots = options.maxSequences;
    capacities.groups = 2;
    writer = std::make_unique<StepWriter>(capacities);
    for (size_t i = 0; i < 16 * kFullBytes; ++i)
      base()[i] = uint8_t(i * 167 + i / 251);
  }
  uint8_t *base() { return static_cast<uint8_t *>(memory.keys(1, 0).data); }
  std::vector<uint8_t> image() {
    EXPECT_TRUE(stream->synchronize().ok());
    return {base(), base() + 16 * kFullBytes};
  }
  static uint32_t bytesOf(uint32_t group) { return group ? kLatentBytes : kFullBytes; }

  /// Closes the open step, whose copies the memory makes; all other bytes stay.
  uint32_t runStep() {
    const kv::StepTables &tables = blocks->closeStep();
    std::vector<uint8_t> expected = image(), before = expected;
    for (const kv::PageCopy &copy : tables.copies)
      std::memcpy(&expected[size_t(copy.to) * bytesOf(copy.group)],
                  &before[size_t(copy.from) * bytesOf(copy.group)], bytesOf(copy.group));
    writer->begin(tables.step);
    writer->setTables(tables);
    StatusOr<StepInput> input = StepInput::parse(writer->finish());
    EXPECT_TRUE(input.ok()) << input.status().toString();
    EXPECT_TRUE(memory.apply(*input, true, *stream).ok());
    EXPECT_TRUE(image() == expected) << "a copy moves its page and nothing else";
    return uint32_t(tables.copies.size());
  }

  std::vector<LayerGroup> groups;
  kv::ManagerOptions options;
  std::shared_ptr<CpuDevice> device;
  std::unique_ptr<Stream> stream;
  KvMemory memory;
  std::unique_ptr<kv::BlockManager> blocks;
  std::unique_ptr<StepWriter> writer;
};

// NVIDIA/TensorRT-LLM p#4943: a copy of a partly used page that counts K and V.
TEST_F(LatentPages, ACopyMovesKAndNothingElse) {
  std::vector<kv::Token> text = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  kv::Prompt prompt(text, {}, blocks->blockSize());
  ASSERT_EQ(blocks->openStep(), kv::Reply::Ok);
  kv::Admission parent = blocks->admit(prompt, 10);
  ASSERT_EQ(parent.reply, kv::Reply::Ok);
  EXPECT_EQ(runStep(), 0u);
  ASSERT_EQ(blocks->commit(parent.sequence, 1, text), kv::Reply::Ok);
  ASSERT_EQ(blocks->completeStep(1), kv::Reply::Ok);

  // A fork writes behind a page of which two slots are used.
  kv::SequenceId child;
  ASSERT_EQ(blocks->fork(parent.sequence, child), kv::Reply::Ok);
  ASSERT_EQ(blocks->openStep(), kv::Reply::Ok);
  ASSERT_EQ(blocks->reserve(child, 1), kv::Reply::Ok);
  EXPECT_EQ(runStep(), 2u) << "of both groups";
  const kv::Token next[] = {11};
  ASSERT_EQ(blocks->commit(child, 2, next), kv::Reply::Ok);
  ASSERT_EQ(blocks->completeStep(2), kv::Reply::Ok);

  // A prompt that leaves the cached text in the middle of a page.
  std::vector<kv::Token> other = {1, 2, 3, 4, 5, 6, 70, 80, 90};
  kv::Prompt leaves(other, {}, blocks->blockSize());
  ASSERT_EQ(blocks->openStep(), kv::Reply::Ok);
  kv::Admission hit = blocks->admit(leaves, 9);
  ASSERT_EQ(hit.reply, kv::Reply::Ok);
  EXPECT_EQ(hit.hit.tokens, 6u);
  EXPECT_EQ(hit.hit.partialTokens, 2u);
  EXPECT_EQ(runStep(), 2u);
}

TEST_F(LatentPages, HostMemoryTakesAndGivesBackKAndNothingElse) {
  std::vector<uint8_t> before = image();
  const kv::PageMove out[] = {{1, 5, 3}, {1, 6, 2}, {0, 7, 4}};
  ASSERT_TRUE(memory.copyOut(out, *stream).ok());
  EXPECT_TRUE(image() == before);
  std::memset(base(), 0, 16 * kFullBytes);
  std::vector<uint8_t> expected = image();
  const kv::PageMove in[] = {{1, 9, 3}, {1, 2, 2}, {0, 11, 4}};
  for (size_t i = 0; i < 3; ++i)
    std::memcpy(&expected[size_t(in[i].device) * bytesOf(in[i].group)],
                &before[size_t(out[i].device) * bytesOf(in[i].group)], bytesOf(in[i].group));
  ASSERT_TRUE(memory.copyIn(in, *stream).ok());
  EXPECT_TRUE(image() == expected);
}

} // namespace
} // namespace llmopt::test

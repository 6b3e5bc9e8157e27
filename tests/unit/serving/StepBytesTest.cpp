// Steps as bytes: what is refused, and that nothing but the bytes is needed to run them.
#include "runtime/scheduler/StepChecksum.h"
#include "tests/unit/serving/Story.h"

#include <cstring>
#include <random>
#include <sys/wait.h>
#include <unistd.h>

using namespace llmopt::test;

namespace {

/// Bytes at an address that is a multiple of 8.
class Aligned {
public:
  explicit Aligned(std::span<const uint8_t> bytes) : size(bytes.size()), words(size / 8 + 1) {
    std::copy(bytes.begin(), bytes.end(), data());
  }
  uint8_t *data() { return reinterpret_cast<uint8_t *>(words.data()); }
  std::span<const uint8_t> bytes() { return {data(), size}; }
  void seal() { // the checksum of what is there now
    uint64_t sum = stepChecksum(bytes());
    std::memcpy(data() + offsetof(step::Header, checksum), &sum, sizeof(sum));
  }

private:
  size_t size;
  std::vector<uint64_t> words;
};

/// All steps of a load with several in flight, trees of drafts, windows and preemption.
std::vector<std::vector<uint8_t>> recordedSteps(std::vector<uint64_t> *hashes = nullptr) {
  StoryOptions options;
  options.pages = 30;
  options.scheduler.stepsInFlight = 2;
  options.scheduler.deviceDrafts = {-1, -1, 0, 1};
  options.acceptance = 0.5;
  kv::GroupSpec window = llama8b(4).groups[0].group;
  window.kind = kv::GroupKind::Window;
  window.window = 10;
  options.groups = {llama8b(4).groups[0].group, window};
  Story story(options);
  for (char name = 'A'; name <= 'P'; ++name)
    story.add(name, {.prompt = 5u + uint32_t(name) % 17, .answer = 20, .seed = uint64_t(name)});
  std::vector<std::vector<uint8_t>> steps;
  while (!story.scheduler->idle()) {
    if (story.scheduler->stepsInFlight() < 2 && !story.launch().empty()) {
      steps.push_back(story.lastBytes);
      continue;
    }
    auto result = story.device->wait();
    if (hashes)
      hashes->push_back((*result)->statusHash);
    EXPECT_TRUE(story.scheduler->complete(**result, story.now).ok());
  }
  EXPECT_GT(story.scheduler->metrics().preemptions, 0u);
  return steps;
}

/// A rank: the device side of `recordedSteps`, fed with bytes only. Its tokens do not need
/// names of requests.
struct Rank : TokenSource {
  kv::Token token(uint32_t request, uint32_t generation, uint32_t position) override {
    return request * 1000003u + generation * 10007u + position;
  }
  Rank() {
    ModelFacts model = llama8b(4);
    model.groups.push_back(model.groups[0]);
    SimOptions options;
    options.stepsInFlight = 2;
    options.groups = 2;
    options.tableSlots = 16;
    options.maxDraft = 4;
    options.acceptance = 0.5;
    device = std::make_unique<SimExecutor>(options, StepCost(model, accelerators()[1], {}), *this);
  }
  uint64_t run(std::span<const uint8_t> bytes) {
    Aligned copy(bytes);
    Status taken = device->submit(copy.bytes(), 0);
    EXPECT_TRUE(taken.ok()) << taken.toString();
    auto result = device->wait();
    return result ? (*result)->statusHash : 0;
  }
  std::unique_ptr<SimExecutor> device;
};

} // namespace

TEST(StepBytes, EachFieldOfARowComesBackAsItWasWritten) {
  StepCapacities capacities;
  capacities.maxDraft = 2;
  StepWriter writer(capacities);
  kv::PageId pages[] = {7, 8, -1};
  kv::TableDelta delta{3, 5, 0, 3, 0};
  kv::PageCopy copy{0, 1, 2};
  kv::FreedPage freed{0, 9};
  kv::EventId event = 77;
  kv::StepTables tables;
  tables.step = 4;
  tables.baseVersion = 10;
  tables.version = 11;
  tables.deltas = {&delta, 1};
  tables.pages = pages;
  tables.copies = {&copy, 1};
  tables.freed = {&freed, 1};
  tables.waits = {&event, 1};
  writer.begin(4);
  writer.setTables(tables);
  step::Row &row = writer.addRow();
  row.tableSlot = 3;
  row.request = 12;
  row.generation = 5;
  row.baseLength = 20;
  row.lengthBound = 30;
  row.samplingSeed = 0x123456789abcdef0;
  row.phase = step::Phase::Verify;
  row.predecessorAgo = 1;
  row.predecessorRow = 1;
  writer.addReference({3, 1, 0});
  writer.addDraft({-1, 1});
  writer.addReference({3, 1, 1});
  writer.addDraft({-1, 1});
  writer.addLiteral(99);
  writer.wantLogits(3);
  auto input = StepInput::parse(writer.finish());
  ASSERT_TRUE(input.ok()) << input.status().toString();
  ASSERT_EQ(input->rows().size(), 1u);
  const step::Row &read = input->rows()[0];
  EXPECT_EQ(read.samplingSeed, 0x123456789abcdef0u);
  EXPECT_EQ(read.request, 12u);
  EXPECT_EQ(read.generation, 5u);
  EXPECT_EQ(read.tokenCount, 3u);
  EXPECT_EQ(read.draftCount, 2u);
  EXPECT_EQ(input->tokensOf(read)[2].id, 99);
  EXPECT_EQ(input->references()[1].index, 1u);
  EXPECT_EQ(input->draftsOf(read)[1].parent, -1);
  EXPECT_EQ(std::vector<uint32_t>(input->logits().begin(), input->logits().end()),
            (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(input->deltas()[0].index, 5u);
  EXPECT_EQ(input->pages()[2], -1);
  EXPECT_EQ(input->copies()[0].to, 2);
  EXPECT_EQ(input->frees()[0].page, 9);
  EXPECT_EQ(input->waits()[0], 77u);
  EXPECT_EQ(input->header().tableVersion, 11u);
}

// Ranks on different processors hash the same bytes: the fastest form gives what the plain one
// does.
TEST(StepBytes, TheChecksumIsTheSameOnEveryProcessor) {
  constexpr size_t kField = offsetof(step::Header, checksum), kBehind = kField + 8;
  std::vector<uint8_t> bytes(5000);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = uint8_t(i * 37 + i / 251);
  for (size_t count : {96u, 112u, 240u, 264u, 272u, 1024u, 1056u, 4097u, 5000u}) {
    uint64_t front = hashPortably(bytes.data(), kField, 0);
    EXPECT_EQ(stepChecksum(std::span(bytes).first(count)),
              hashPortably(bytes.data() + kBehind, count - kBehind, front))
        << count << " bytes";
  }
}

TEST(StepBytes, AStepBeyondTheCapacitiesIsWrittenAllTheSame) {
  StepWriter writer({.rows = 1, .tokens = 1, .tableSlots = 8, .pages = 1});
  for (uint32_t rows : {1u, 7u, 300u}) {
    writer.begin(rows + 1);
    std::vector<kv::Token> ids(20);
    for (uint32_t r = 0; r < rows; ++r) {
      for (kv::Token &id : ids)
        id = r * 100 + uint32_t(&id - ids.data());
      step::Row &row = writer.addRow();
      row.request = r;
      row.lengthBound = 20;
      writer.addTokens(ids);
    }
    auto input = StepInput::parse(writer.finish());
    ASSERT_TRUE(input.ok()) << input.status().toString();
    ASSERT_EQ(input->rows().size(), rows);
    for (uint32_t r = 0; r < rows; ++r) {
      EXPECT_EQ(input->rows()[r].request, r);
      EXPECT_EQ(input->tokensOf(input->rows()[r])[19].id, int32_t(r * 100 + 19));
    }
  }
}

TEST(StepBytes, DamagedBytesAreRefused) {
  std::vector<std::vector<uint8_t>> steps = recordedSteps();
  Aligned good(steps[10]);
  ASSERT_TRUE(StepInput::parse(good.bytes()).ok());
  for (size_t cut : {size_t(0), size_t(8), sizeof(step::Header), good.bytes().size() - 8})
    EXPECT_EQ(StepInput::parse(good.bytes().first(cut)).status().code(), StatusCode::DataLoss);
  EXPECT_EQ(StepInput::parse(good.bytes().subspan(4)).status().code(), StatusCode::InvalidArgument);
  for (size_t i = 0; i < good.bytes().size(); i += 3) {
    Aligned bad(steps[10]);
    bad.data()[i] ^= 0x20;
    EXPECT_EQ(StepInput::parse(bad.bytes()).status().code(), StatusCode::DataLoss) << i;
  }
}

TEST(StepBytes, EachRuleOfTheRecordsIsChecked) {
  std::vector<std::vector<uint8_t>> steps = recordedSteps();
  // A step with drafts, references and table changes.
  const std::vector<uint8_t> *rich = nullptr;
  for (const std::vector<uint8_t> &each : steps) {
    Aligned copy(each);
    auto input = StepInput::parse(copy.bytes());
    if (input->drafts().size() > 3 && input->references().size() > 3 &&
        input->deltas().size() > 1 && input->rows().size() > 2)
      rich = &each;
  }
  ASSERT_NE(rich, nullptr);
  auto refused = [&](auto change, std::string_view part) {
    Aligned bad(*rich);
    StepInput view = *StepInput::parse(bad.bytes());
    change(view);
    bad.seal();
    Status status = StepInput::parse(bad.bytes()).status();
    EXPECT_EQ(status.code(), StatusCode::DataLoss);
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  };
  auto row = [](StepInput &v, size_t i) -> step::Row & {
    return const_cast<step::Row &>(v.rows()[i]);
  };
  refused([&](StepInput &v) { row(v, 1).firstToken += 1; }, "do not follow");
  refused([&](StepInput &v) { row(v, 0).tableSlot = 1000; }, "table slot is out of range");
  refused([&](StepInput &v) { row(v, 0).phase = step::Phase(9); }, "phase or table slot");
  refused([&](StepInput &v) { row(v, 0).lengthBound = 0; }, "length bound");
  refused([&](StepInput &v) { row(v, 0).predecessorAgo = uint32_t(v.header().stepId) + 1; },
          "predecessor");
  refused([&](StepInput &v) { const_cast<step::Token &>(v.tokens()[0]).id = -30000; },
          "refers to no reference");
  refused([&](StepInput &v) { const_cast<step::Draft &>(v.drafts()[0]).parent = 2; },
          "parent does not stand before it");
  refused([&](StepInput &v) { const_cast<step::Draft &>(v.drafts()[0]).depth = 2; },
          "one deeper than its parent");
  refused(
      [&](StepInput &v) {
        const_cast<step::Reference &>(v.references()[0]).step = v.header().stepId;
      },
      "an earlier step");
  refused([&](StepInput &v) { const_cast<uint32_t &>(v.logits()[0]) = 1u << 30; },
          "out of order or range");
  refused([&](StepInput &v) { const_cast<step::Delta &>(v.deltas()[0]).group = 7; },
          "table change");
  refused([&](StepInput &v) { const_cast<int32_t &>(v.pages()[0]) = -2; }, "table entry is -2");
}

// 20,000 mutations with a right checksum: none is read out of bounds (a sanitizer build sees
// it), and what is accepted keeps every index in range.
TEST(StepBytes, RandomMutationsAreRefusedOrHarmless) {
  std::vector<std::vector<uint8_t>> steps = recordedSteps();
  std::mt19937_64 random(7);
  size_t accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    Aligned bad(steps[random() % steps.size()]);
    size_t size = bad.bytes().size();
    for (uint64_t n = 1 + random() % 3; n > 0; --n) {
      uint32_t value = random() % 2 ? uint32_t(random() % 64) : uint32_t(random());
      std::memcpy(bad.data() + random() % (size / 4) * 4, &value, 4);
    }
    bad.seal();
    auto input = StepInput::parse(bad.bytes());
    if (!input)
      continue;
    ++accepted;
    uint64_t sum = 0;
    for (const step::Row &row : input->rows()) {
      for (const step::Token &token : input->tokensOf(row))
        sum += token.id >= 0 ? 1 : 1 + input->references()[size_t(-1 - token.id)].index;
      for (const step::Draft &draft : input->draftsOf(row))
        sum += draft.depth;
    }
    TableMirror mirror(input->header().groupCount, input->header().tableSlots % 4096);
    (void)mirror.apply(*input);
    EXPECT_GE(sum, input->rows().empty() ? 0u : 1u);
  }
  EXPECT_GT(accepted, 100u) << "the mutations never reach what is behind the checks";
}

TEST(StepBytes, TheSameCallsGiveTheSameBytes) { EXPECT_EQ(recordedSteps(), recordedSteps()); }

// Two ranks from the same bytes, one of them restarted in mid-run from a snapshot.
TEST(StepBytes, RanksAgreeAndARestartedOneCatchesUpFromASnapshot) {
  StoryOptions options;
  options.pages = 30;
  Story story(options);
  for (char name = 'A'; name <= 'L'; ++name)
    story.add(name, {.prompt = 5u + uint32_t(name) % 17, .answer = 20});
  auto rank = [&] {
    SimOptions sim;
    sim.tableSlots = 16;
    return std::make_unique<SimExecutor>(sim, StepCost(llama8b(4), accelerators()[1], {}), story);
  };
  std::unique_ptr<SimExecutor> second = rank();
  int restarts = 0;
  for (int i = 0; !story.launch().empty(); ++i) {
    Aligned bytes(story.lastBytes);
    if (i % 7 == 3)
      second = rank();
    Status taken = second->submit(bytes.bytes(), 0);
    if (taken.code() == StatusCode::Unavailable) {
      std::vector<uint64_t> tables = story.scheduler->snapshot();
      ASSERT_TRUE(second
                      ->restore({reinterpret_cast<const uint8_t *>(tables.data()),
                                 tables.size() * sizeof(uint64_t)})
                      .ok());
      taken = second->submit(bytes.bytes(), 0);
      ++restarts;
    }
    ASSERT_TRUE(taken.ok()) << taken.toString();
    auto a = story.device->wait();
    auto b = second->wait();
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ((*a)->statusHash, (*b)->statusHash) << "step " << (*a)->step;
    ASSERT_TRUE(story.scheduler->complete(**a, 0).ok());
    // The tables agree on every page that a running request names.
    for (uint32_t slot : story.scheduler->runningRequests()) {
      kv::SequenceId sequence = story.scheduler->request(slot).sequence;
      for (uint32_t p = 0; p < story.blocks->tableSize(sequence, 0); ++p) {
        ASSERT_LT(p, second->tables().table(0, sequence.slot).size());
        EXPECT_EQ(second->tables().table(0, sequence.slot)[p],
                  story.blocks->pageAt(sequence, 0, p));
      }
    }
  }
  EXPECT_TRUE(story.scheduler->idle());
  EXPECT_GT(restarts, 3);
}

// Another process gets the bytes through a pipe, and nothing else.
TEST(StepBytes, AnotherProcessComputesTheSameFromTheBytes) {
  std::vector<std::vector<uint8_t>> steps = recordedSteps();
  int toChild[2], toParent[2];
  ASSERT_EQ(pipe(toChild), 0);
  ASSERT_EQ(pipe(toParent), 0);
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Rank rank;
    std::vector<uint8_t> bytes;
    close(toChild[1]);
    for (uint64_t size; read(toChild[0], &size, sizeof(size)) == sizeof(size);) {
      bytes.resize(size);
      for (size_t got = 0; got < size;) {
        ssize_t n = read(toChild[0], bytes.data() + got, size - got);
        if (n <= 0)
          _exit(1);
        got += size_t(n);
      }
      uint64_t hash = rank.run(bytes);
      if (write(toParent[1], &hash, sizeof(hash)) != sizeof(hash))
        _exit(1);
    }
    _exit(0);
  }
  close(toChild[0]);
  Rank here;
  for (const std::vector<uint8_t> &bytes : steps) {
    uint64_t size = bytes.size(), there = 0;
    ASSERT_EQ(write(toChild[1], &size, sizeof(size)), ssize_t(sizeof(size)));
    for (size_t put = 0; put < size;) {
      ssize_t n = write(toChild[1], bytes.data() + put, size - put);
      ASSERT_GT(n, 0);
      put += size_t(n);
    }
    ASSERT_EQ(read(toParent[0], &there, sizeof(there)), ssize_t(sizeof(there)));
    EXPECT_EQ(there, here.run(bytes));
  }
  close(toChild[1]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

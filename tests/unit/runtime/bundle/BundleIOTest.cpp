#include "runtime/bundle/BundleIO.h"

#include "runtime/base/File.h"

#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace llmopt::bundle;
using llmopt::runtime::Status;
using llmopt::runtime::StatusCode;
using llmopt::runtime::StatusOr;

namespace {

constexpr size_t kHeaderBytes = 32, kFormatAt = 8, kAbiAt = 12, kSizeAt = 16, kChecksumAt = 24;

/// Small, but every kind of field occurs with a value that is not its default.
Program sample() {
  Program program;
  program.key = "00ff";
  program.name = "decode";
  program.ir = "func.func @decode";
  AttentionFacts &facts = program.facts;
  facts.queryHeads = 6;
  facts.kvHeads = 2;
  facts.dQk = 64;
  facts.dV = 32;
  facts.queryForm = QueryForm::Ragged;
  facts.kvForm = KvForm::Paged;
  facts.tableForm = TableForm::Indptr;
  facts.kvOrder = KvOrder::HeadMajor;
  facts.interleaved = true;
  facts.pageSize = 16;
  facts.topLeft = true;
  facts.splitKeys = 512;
  facts.may.intervals = {{.lo = {{BoundOp::Const, 0}},
                          .hi = {{BoundOp::QueryHi}, {BoundOp::Scalar, 1}, {BoundOp::Add}},
                          .stride = {{BoundOp::Const, 4}},
                          .phase = {{BoundOp::QueryLo}},
                          .width = {{BoundOp::Const, 1}}}};
  program.buffers = {{"q", BufferRole::Query, ElementType::BF16, false, false, {-1, 6, 64}},
                     {"o", BufferRole::Output, ElementType::F32, true, false, {-1, 6, 32}},
                     {"counters", BufferRole::Counters, ElementType::I64, false, true, {}}};
  program.slots = {{SlotKind::Pointer, 0, 0}, {SlotKind::Stride, 1, 2}, {SlotKind::Extent, 0, 1}};
  program.scalars = {
      {"scale", ScalarType::F32, 0, 0.125, -1},
      {"window", ScalarType::I64, 7, 0, 0, 1, "leave it out"},
      {.name = "user4", .type = ScalarType::F64, .least = 0, .most = 1, .required = true}};
  program.kernels = {{"attend", KernelKind::Attend, 0, 16, 64, 4096, 1.5},
                     {"merge", KernelKind::Merge, 0, 0, 0, 0, 1}};
  program.target = "cuda:sm_80";
  program.kernels[0].itemHeads = 2;
  program.kernels[0].otherImages = {1, 2};
  program.kernels[0].blockThreads = 128;
  program.kernels[0].sharedBytes = 49152;
  program.kernels[0].clusterBlocks = 2;
  program.images = {{"x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2", {0x7f, 'E', 'L', 'F'}},
                    {"nvptx64-nvidia-cuda",
                     "sm_80",
                     "",
                     {0x7f, 'E', 'L', 'F'},
                     ImageFormat::Cubin,
                     13000,
                     {168, 16, 8, 24, 1024, {"C7511: serialised"}}},
                    {"nvptx64-nvidia-cuda", "compute_80", "", {'.'}, ImageFormat::Ptx, 13000, {}}};
  return program;
}

void recomputeChecksum(std::vector<uint8_t> &bytes) {
  uint64_t size = bytes.size() - kHeaderBytes;
  uint64_t checksum = XXH3_64bits(bytes.data() + kHeaderBytes, size);
  std::memcpy(bytes.data() + kSizeAt, &size, sizeof(size));
  std::memcpy(bytes.data() + kChecksumAt, &checksum, sizeof(checksum));
}

std::string temporaryPath(const char *name) {
  return (std::filesystem::temp_directory_path() /
          (std::string(name) + "-" + std::to_string(::getpid())))
      .string();
}

/// Expects that `change` makes the program invalid, with the given message.
template <typename Change> void expectInvalid(Change change, const std::string &message) {
  Program program = sample();
  change(program);
  EXPECT_EQ(validate(program).message(), message);
  StatusOr<Program> read = deserialize(serialize(program));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.status().code(), StatusCode::DataLoss);
  EXPECT_EQ(read.status().message(), message);
}

} // namespace

TEST(BundleIO, RoundTrip) {
  Program program = sample();
  StatusOr<Program> read = deserialize(serialize(program));
  ASSERT_TRUE(read) << read.status().toString();
  EXPECT_EQ(*read, program);
}

TEST(BundleIO, RoundTripOfAnEmptyProgram) {
  StatusOr<Program> read = deserialize(serialize(Program()));
  ASSERT_TRUE(read) << read.status().toString();
  EXPECT_EQ(*read, Program());
}

TEST(BundleIO, OtherAbiIsRefusedByName) {
  std::vector<uint8_t> bytes = serialize(sample());
  for (uint32_t version : {0u, 1u, 3u}) {
    std::memcpy(bytes.data() + kAbiAt, &version, sizeof(version));
    StatusOr<Program> read = deserialize(bytes);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.status().code(), StatusCode::Unavailable);
    EXPECT_EQ(read.status().message(),
              fmt::format("bundle has ABI version {}; this runtime runs version 2; "
                          "compile the spec again",
                          version));
  }
}

TEST(BundleIO, OtherFormatsAreRefusedByName) {
  std::vector<uint8_t> bytes = serialize(sample());
  for (uint32_t version : {1u, 5u, 7u}) {
    std::memcpy(bytes.data() + kFormatAt, &version, sizeof(version));
    StatusOr<Program> read = deserialize(bytes);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.status().code(), StatusCode::Unavailable);
    EXPECT_EQ(read.status().message(),
              fmt::format("bundle has format version {}; this runtime reads version 6; compile "
                          "the spec again",
                          version));
  }
}

TEST(BundleIO, EveryFlippedByteIsNoticed) {
  std::vector<uint8_t> bytes = serialize(sample());
  for (size_t i = 0; i < bytes.size(); ++i)
    for (uint8_t mask : {0x01, 0x80, 0xff}) {
      bytes[i] ^= mask;
      EXPECT_FALSE(deserialize(bytes)) << "byte " << i;
      bytes[i] ^= mask;
    }
}

TEST(BundleIO, FlippedBytesUnderAGoodChecksumNeverYieldAnInvalidProgram) {
  const std::vector<uint8_t> bytes = serialize(sample());
  int refused = 0;
  for (size_t i = kHeaderBytes; i < bytes.size(); ++i)
    for (uint8_t mask : {0x01, 0x04, 0x40, 0x80, 0xff}) {
      std::vector<uint8_t> changed = bytes;
      changed[i] ^= mask;
      recomputeChecksum(changed);
      StatusOr<Program> read = deserialize(changed);
      if (read) {
        EXPECT_TRUE(validate(*read).ok());
      } else
        ++refused;
    }
  EXPECT_GT(refused, 100);
}

TEST(BundleIO, EveryTruncationIsRefused) {
  const std::vector<uint8_t> bytes = serialize(sample());
  for (size_t size = 0; size < bytes.size(); ++size) {
    std::vector<uint8_t> part(bytes.begin(), bytes.begin() + size);
    StatusOr<Program> read = deserialize(part);
    ASSERT_FALSE(read) << size;
    EXPECT_EQ(read.status().code(), StatusCode::DataLoss);
    if (size < kHeaderBytes)
      continue;
    recomputeChecksum(part);
    EXPECT_FALSE(deserialize(part)) << size << " with a good checksum";
  }
}

TEST(BundleIO, TrailingBytesAreRefused) {
  std::vector<uint8_t> bytes = serialize(sample());
  bytes.push_back(0);
  EXPECT_FALSE(deserialize(bytes));
  recomputeChecksum(bytes);
  StatusOr<Program> read = deserialize(bytes);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.status().message(), "1 bytes follow the last field; none are allowed");
}

TEST(BundleIO, LengthsAreBoundedBeforeAllocation) {
  std::vector<uint8_t> bytes = serialize(Program());
  std::memset(bytes.data() + kHeaderBytes + 4, 0xff, 4); // length of the first program's key
  recomputeChecksum(bytes);
  StatusOr<Program> read = deserialize(bytes);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.status().message(), "field 'key' has length 4294967295; at most 4096 is allowed");
}

TEST(BundleIO, IndicesAndEnumeratorsAreChecked) {
  expectInvalid([](Program &p) { p.slots[0].buffer = 3; },
                "slot 0 names buffer 3; the program has 3 buffers");
  expectInvalid([](Program &p) { p.slots[1].dim = 3; },
                "slot 1 names dimension 3 of buffer 'o'; it has rank 3");
  expectInvalid([](Program &p) { p.slots[0].kind = SlotKind(3); },
                "kind of slot 0 is 3; the last known one is 2");
  expectInvalid([](Program &p) { p.kernels[1].image = 3; },
                "kernel 1 ('merge') names image 3; the program has 3 images");
  expectInvalid([](Program &p) { p.kernels[0].otherImages[1] = 4; },
                "kernel 0 ('attend') names image 4; the program has 3 images");
  expectInvalid([](Program &p) { p.images[2].format = ImageFormat(3); },
                "format of image 2 is 3; the last known one is 2");
  expectInvalid([](Program &p) { p.scalars[1].perHeadBuffer = 3; },
                "scalar 1 ('window') names per-head buffer 3; allowed are -1 and the "
                "program's 3 buffers");
  expectInvalid([](Program &p) { p.scalars[2].type = ScalarType(3); },
                "type of scalar 2 is 3; the last known one is 2");
  expectInvalid([](Program &p) { p.buffers[0].role = BufferRole(40); },
                "buffer 0 ('q') has unknown role 40");
  expectInvalid([](Program &p) { p.buffers[0].type = ElementType(8); },
                "element type of buffer 0 is 8; the last known one is 7");
  expectInvalid([](Program &p) { p.buffers[0].extents[0] = -2; },
                "buffer 0 ('q') has extent -2; allowed are -1 (run-time) and "
                "sizes from 0");
}

TEST(BundleIO, FactsAreChecked) {
  expectInvalid([](Program &p) { p.facts.kvHeads = 4; },
                "program has 6 query heads over 4 key/value heads; a multiple of at most "
                "65536 heads is allowed");
  expectInvalid([](Program &p) { p.facts.pageSize = 0; },
                "program reads pages of size 0; at least 1 is allowed");
  expectInvalid([](Program &p) { p.kernels[0].tileKeys = 0; },
                "kernel 0 ('attend') has tile 16 x 0; 1 to 1048576 is allowed");
  expectInvalid([](Program &p) { p.kernels[0].costPerTile = 0; },
                "kernel 0 ('attend') costs 0 a tile; a positive number is allowed");
  expectInvalid([](Program &p) { p.facts.may.intervals[0].hi = {{BoundOp::Add}}; },
                "may bounds: interval 0: bound program instruction 0 needs two operands; "
                "the stack holds 0");
}

TEST(BundleIO, HeadsThatAKernelTakesTogetherAreChecked) {
  for (uint32_t heads : {0u, 3u, 4u, ~0u})
    expectInvalid([heads](Program &p) { p.kernels[0].itemHeads = heads; },
                  fmt::format("kernel 0 ('attend') takes items of {} heads together; a divisor of "
                              "the program's 2 key/value heads is allowed",
                              heads));
  for (uint32_t heads : {0u, 2u})
    expectInvalid([heads](Program &p) { p.kernels[1].itemHeads = heads; },
                  fmt::format("kernel 1 ('merge') takes items of {} heads together; it attends to "
                              "nothing, so 1 is allowed",
                              heads));
}

TEST(BundleIO, LaunchNumbersOfCudaKernelsAreChecked) {
  expectInvalid([](Program &p) { p.kernels[0].blockThreads = 0; },
                "kernel 0 ('attend') has 0 threads a block; 1 to 1024 is allowed");
  expectInvalid([](Program &p) { p.kernels[0].sharedBytes = 2 << 20; },
                "kernel 0 ('attend') wants 2097152 bytes of shared memory; at most 1048576 are "
                "allowed");
  expectInvalid([](Program &p) { p.kernels[0].clusterBlocks = 17; },
                "kernel 0 ('attend') has 17 blocks a cluster; 1 to 16 is allowed");
}

TEST(BundleIO, AFamilyHoldsProgramsOfSeveralTargets) {
  std::vector<Program> family = {sample(), Program()};
  StatusOr<std::vector<Program>> read = deserializeFamily(serialize(family));
  ASSERT_TRUE(read) << read.status().toString();
  EXPECT_EQ(*read, family);
  StatusOr<Program> one = deserialize(serialize(family));
  ASSERT_FALSE(one);
  EXPECT_EQ(one.status().message(),
            "the bundle holds 2 programs, for cuda:sm_80, cpu; one is wanted here");
  EXPECT_EQ(deserialize(serialize(std::span<const Program>())).status().message(),
            "the bundle holds no program");
}

TEST(BundleFile, FamiliesAreSavedWholeAndOfOneAbi) {
  std::string path = temporaryPath("family");
  std::vector<Program> family = {sample(), Program()};
  ASSERT_TRUE(saveFamily(family, path).ok());
  StatusOr<std::vector<Program>> read = loadFamily(path);
  ASSERT_TRUE(read) << read.status().toString();
  EXPECT_EQ(*read, family);
  EXPECT_EQ(loadBundle(path).status().message(),
            fmt::format("bundle '{}': the bundle holds 2 programs, for cuda:sm_80, cpu; one is "
                        "wanted here",
                        path));
  std::filesystem::remove(path);
  family[1].abiVersion = 7;
  EXPECT_EQ(saveFamily(family, path).message(),
            fmt::format("bundle '{}' is not saved: its programs have ABI versions 2 and 7; one "
                        "is allowed",
                        path));
  EXPECT_FALSE(saveFamily({}, path).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(BundleFile, SaveAndLoad) {
  std::string path = temporaryPath("bundle");
  ASSERT_TRUE(saveBundle(sample(), path).ok());
  ASSERT_TRUE(saveBundle(sample(), path).ok()) << "an existing file is replaced";
  StatusOr<Program> read = loadBundle(path);
  ASSERT_TRUE(read) << read.status().toString();
  EXPECT_EQ(*read, sample());
  std::filesystem::remove(path);
}

TEST(BundleFile, ErrorsNameTheFile) {
  std::string path = temporaryPath("missing");
  StatusOr<Program> read = loadBundle(path);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.status().code(), StatusCode::NotFound);
  EXPECT_NE(read.status().message().find(path), std::string::npos);
  ASSERT_TRUE(llmopt::runtime::writeFileAtomic(path, {}).ok());
  read = loadBundle(path);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.status().message(),
            fmt::format("bundle '{}': bundle has 0 bytes; its header needs 32", path));
  std::filesystem::remove(path);
  EXPECT_FALSE(saveBundle(sample(), "/nonexistent-folder/bundle").ok());
}

TEST(BundleFile, AnInvalidProgramIsNotPublished) {
  Program program = sample();
  program.slots[0].buffer = 99;
  std::string path = temporaryPath("invalid");
  EXPECT_FALSE(saveBundle(program, path).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
}

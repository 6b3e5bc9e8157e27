#include "runtime/device/Batch.h"

#include <gtest/gtest.h>

using namespace llmopt::bundle;
using namespace llmopt::runtime;

namespace {

/// A program of four heads over two, d 8, and arrays that share one block of
/// memory.
class BatchTest : public testing::Test {
protected:
  BatchTest() {
    program.facts.queryHeads = 4;
    program.facts.kvHeads = 2;
    program.facts.dQk = program.facts.dV = 8;
  }

  void add(const char *name, BufferRole role, ElementType type, std::vector<int64_t> shape,
           void *data = nullptr) {
    std::vector<int64_t> extents(shape.size(), -1);
    program.buffers.push_back({name, role, type, false, true, extents});
    arguments.arrays[name] =
        ArrayRef::contiguous(data ? data : memory.data(), type, std::move(shape));
  }
  void addLengths(const char *name, BufferRole role, std::vector<int32_t> &values) {
    add(name, role, ElementType::I32, {static_cast<int64_t>(values.size())}, values.data());
  }

  StatusOr<BatchShape> build() {
    StatusOr<BoundArrays> arrays = matchArrays(program, arguments);
    if (!arrays)
      return arrays.status();
    return buildBatch(program, *arrays);
  }

  Program program;
  CallArguments arguments;
  std::vector<float> memory = std::vector<float>(4096);
};

} // namespace

TEST_F(BatchTest, DenseQueriesAndKeys) {
  add("q", BufferRole::Query, ElementType::F32, {3, 5, 4, 8});
  add("k", BufferRole::Key, ElementType::F32, {3, 9, 2, 8});
  StatusOr<BatchShape> batch = build();
  ASSERT_TRUE(batch) << batch.status().toString();
  ASSERT_EQ(batch->sequences.size(), 3u);
  EXPECT_EQ(batch->sequences[2], (SequenceShape{.queryLen = 5, .keyLen = 9, .batch = 2}));
}

TEST_F(BatchTest, KeyLengthsShortenDenseKeys) {
  std::vector<int32_t> lengths = {9, 0, 4};
  add("q", BufferRole::Query, ElementType::F32, {3, 1, 4, 8});
  add("k", BufferRole::Key, ElementType::F32, {3, 9, 2, 8});
  addLengths("kv_len", BufferRole::KvLen, lengths);
  StatusOr<BatchShape> batch = build();
  ASSERT_TRUE(batch) << batch.status().toString();
  EXPECT_EQ(batch->sequences[1].keyLen, 0);
  EXPECT_EQ(batch->sequences[2].keyLen, 4);
}

TEST_F(BatchTest, RaggedKeysShareTheQueriesOffsets) {
  std::vector<int32_t> offsets = {0, 4, 4, 7};
  program.facts.queryForm = QueryForm::Ragged;
  program.facts.kvForm = KvForm::Ragged;
  add("q", BufferRole::Query, ElementType::F32, {7, 4, 8});
  add("k", BufferRole::Key, ElementType::F32, {7, 2, 8});
  addLengths("cu_q", BufferRole::CuSeqlensQ, offsets);
  StatusOr<BatchShape> batch = build();
  ASSERT_TRUE(batch) << batch.status().toString();
  EXPECT_EQ(batch->sequences[1],
            (SequenceShape{.queryLen = 0, .keyLen = 0, .queryBase = 4, .keyBase = 4, .batch = 1}));
  EXPECT_EQ(batch->sequences[2].keyLen, 3);
  EXPECT_EQ(batch->sequences[2].keyBase, 4);
}

TEST_F(BatchTest, RaggedKeysNeedOffsets) {
  program.facts.kvForm = KvForm::Ragged;
  program.name = "p";
  add("q", BufferRole::Query, ElementType::F32, {2, 3, 4, 8});
  add("k", BufferRole::Key, ElementType::F32, {7, 2, 8});
  EXPECT_EQ(build().status().message(),
            "program 'p' has ragged keys and was given no offsets; an array of "
            "key offsets "
            "is needed");
}

TEST_F(BatchTest, PagesWithDenseQueries) {
  std::vector<int32_t> lengths = {20, 33}, table(6);
  program.facts.kvForm = KvForm::Paged;
  program.facts.pageSize = 16;
  add("q", BufferRole::Query, ElementType::F32, {2, 3, 4, 8});
  add("k_pool", BufferRole::KeyPool, ElementType::F32, {8, 16, 2, 8});
  add("table", BufferRole::BlockTable, ElementType::I32, {2, 3}, table.data());
  addLengths("kv_len", BufferRole::KvLen, lengths);
  StatusOr<BatchShape> batch = build();
  ASSERT_TRUE(batch) << batch.status().toString();
  EXPECT_EQ(batch->sequences[1],
            (SequenceShape{.queryLen = 3, .keyLen = 33, .tableBase = 3, .batch = 1}));
  arguments.arrays["k_pool"].shape[1] = 8;
  EXPECT_EQ(build().status().message(), "array 'k_pool' has extent 8 in dimension 1 (page "
                                        "size); the program asks for 16");
}

TEST_F(BatchTest, HeadMajorAndInterleavedPools) {
  std::vector<int32_t> lengths = {20}, table(2);
  program.facts.kvForm = KvForm::Paged;
  program.facts.kvOrder = KvOrder::HeadMajor;
  program.facts.interleaved = true;
  program.facts.pageSize = 16;
  add("q", BufferRole::Query, ElementType::F32, {1, 1, 4, 8});
  add("kv_pool", BufferRole::KeyPool, ElementType::F32, {8, 2, 2, 16, 8});
  add("table", BufferRole::BlockTable, ElementType::I32, {1, 2}, table.data());
  addLengths("kv_len", BufferRole::KvLen, lengths);
  EXPECT_TRUE(build()) << build().status().toString();
  arguments.arrays["kv_pool"].shape = {8, 2, 16, 2, 8};
  EXPECT_EQ(build().status().message(), "array 'kv_pool' has extent 16 in dimension 2 "
                                        "(key/value heads); the program asks for 2");
}

TEST_F(BatchTest, FlatTablesAreDividedByOffsets) {
  std::vector<int32_t> lengths = {20, 0, 33}, offsets = {0, 2, 2, 5}, table(5);
  program.facts.kvForm = KvForm::Paged;
  program.facts.tableForm = TableForm::Indptr;
  program.facts.pageSize = 16;
  add("q", BufferRole::Query, ElementType::F32, {3, 1, 4, 8});
  add("k_pool", BufferRole::KeyPool, ElementType::F32, {8, 16, 2, 8});
  addLengths("table", BufferRole::BlockTable, table);
  addLengths("indptr", BufferRole::TableIndptr, offsets);
  addLengths("kv_len", BufferRole::KvLen, lengths);
  StatusOr<BatchShape> batch = build();
  ASSERT_TRUE(batch) << batch.status().toString();
  EXPECT_EQ(batch->sequences[2].tableBase, 2);
  lengths[1] = 1;
  EXPECT_EQ(build().status().message(),
            "sequence 1 has 1 keys; its page table holds 0 pages of 16 keys; "
            "give it more "
            "columns or a shorter length");
  lengths[1] = 0;
  offsets[3] = 6;
  EXPECT_EQ(build().status().message(),
            "array 'indptr' ends at 6; the array that it divides has 5 entries");
}

TEST(ArrayRef, ContiguousStrides) {
  EXPECT_EQ(ArrayRef::contiguous(nullptr, ElementType::F32, {2, 3, 4}).strides,
            (std::vector<int64_t>{12, 4, 1}));
  EXPECT_TRUE(ArrayRef::contiguous(nullptr, ElementType::F32, {}).strides.empty());
}

TEST(ArrayRef, IntegersOfEveryType) {
  int8_t bytes[] = {1, -2};
  int32_t words[] = {1, 5, -2};
  uint32_t unsignedWords[] = {0xffffffff};
  int64_t longs[] = {int64_t{1} << 40};
  EXPECT_EQ(readInteger(ArrayRef::contiguous(bytes, ElementType::I8, {2}), 1), -2);
  EXPECT_EQ(readInteger({words, ElementType::I32, {2}, {2}}, 1), -2);
  EXPECT_EQ(readInteger(ArrayRef::contiguous(unsignedWords, ElementType::U32, {1}), 0), 4294967295);
  EXPECT_EQ(readInteger(ArrayRef::contiguous(longs, ElementType::I64, {1}), 0), int64_t{1} << 40);
}

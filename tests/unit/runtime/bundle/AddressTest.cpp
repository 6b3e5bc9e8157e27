#include "runtime/bundle/Address.h"

#include <gtest/gtest.h>

using namespace llmopt::bundle;

// A16: block 16, 8 KV heads, d 128, K and V interleaved: page 65536 lies past
// 2^31.
TEST(Address, PageOffsetsAre64Bit) {
  PoolStrides strides{.page = 2 * 16 * 8 * 128, .token = 8 * 128, .head = 128};
  EXPECT_EQ(pageOffset(65535, 0, 0, strides), int64_t{65535} * 32768);
  EXPECT_EQ(pageOffset(65536, 0, 0, strides), int64_t{1} << 31);
  EXPECT_EQ(pageOffset(65536, 15, 7, strides), (int64_t{1} << 31) + 15 * 1024 + 7 * 128);
  EXPECT_EQ(pageOffset(131072, 1, 1, strides), (int64_t{1} << 32) + 1024 + 128);
  EXPECT_EQ(pageOffset(INT32_MAX, 15, 7, strides),
            int64_t{INT32_MAX} * 32768 + 15 * 1024 + 7 * 128);
}

TEST(Address, SlotsArePagesAndTokens) {
  PoolStrides strides{.page = 2 * 16 * 8 * 128, .token = 8 * 128, .head = 128};
  EXPECT_EQ(slotOffset(79, 16, 3, strides), pageOffset(4, 15, 3, strides));
  EXPECT_EQ(slotOffset(int64_t{65536} * 16 + 5, 16, 0, strides), pageOffset(65536, 5, 0, strides));
  EXPECT_EQ(slotOffset((int64_t{1} << 33) + 1, 1, 0, {.page = 8, .token = 8, .head = 1}),
            (int64_t{1} << 36) + 8);
}

TEST(Address, PagesForRoundsUp) {
  EXPECT_EQ(pagesFor(0, 16), 0);
  EXPECT_EQ(pagesFor(16, 16), 1);
  EXPECT_EQ(pagesFor(17, 16), 2);
  EXPECT_EQ(pagesFor(INT64_MAX, 1), INT64_MAX);
}

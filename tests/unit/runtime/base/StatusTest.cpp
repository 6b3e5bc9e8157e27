#include "runtime/base/Status.h"

#include <gtest/gtest.h>
#include <memory>
#include <vector>

using namespace llmopt::runtime;

TEST(Status, DefaultIsOk) {
  Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::Ok);
  EXPECT_EQ(status.toString(), "Ok");
}

TEST(Status, FailureCarriesCodeAndSentence) {
  Status status = invalidArgument("rank is {}; {} is allowed", 2, 3);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::InvalidArgument);
  EXPECT_EQ(status.toString(), "InvalidArgument: rank is 2; 3 is allowed");
}

TEST(Status, ContextKeepsTheCode) {
  Status status = dataLoss("checksum differs").withContext("file 'a.bundle'");
  EXPECT_EQ(status.code(), StatusCode::DataLoss);
  EXPECT_EQ(status.message(), "file 'a.bundle': checksum differs");
  EXPECT_TRUE(Status().withContext("anything").ok());
}

TEST(Status, EveryCodeHasAName) {
  for (int code = 0; code <= static_cast<int>(StatusCode::Internal); ++code)
    EXPECT_NE(toString(static_cast<StatusCode>(code)), "Unknown") << code;
}

static Status failWhen(bool fail) {
  LLMOPT_RETURN_IF_ERROR(fail ? invalidArgument("asked to") : Status());
  return dataLoss("got past");
}

TEST(Status, ReturnIfErrorLeavesOnlyOnFailure) {
  EXPECT_EQ(failWhen(true).code(), StatusCode::InvalidArgument);
  EXPECT_EQ(failWhen(false).code(), StatusCode::DataLoss);
}

TEST(StatusOr, HoldsValueOrFailure) {
  StatusOr<std::vector<int>> good(std::vector<int>{1, 2});
  ASSERT_TRUE(good);
  EXPECT_EQ(good->size(), 2u);
  EXPECT_TRUE(good.status().ok());
  StatusOr<std::vector<int>> bad = dataLoss("gone");
  EXPECT_FALSE(bad);
  EXPECT_EQ(bad.status().message(), "gone");
}

TEST(StatusOr, HoldsMoveOnlyValues) {
  StatusOr<std::unique_ptr<int>> held(std::make_unique<int>(7));
  std::unique_ptr<int> taken = *std::move(held);
  EXPECT_EQ(*taken, 7);
}

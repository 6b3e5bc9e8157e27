#include "runtime/metrics/Metrics.h"
#include "runtime/metrics/Timeline.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

using namespace llmopt::runtime;

TEST(Histogram, QuantilesAreExactBelow256AndWithinOne256thAbove) {
  std::mt19937_64 random(3);
  for (int scale : {8, 20, 34, 47}) {
    Histogram histogram;
    std::vector<uint64_t> values(5000);
    for (uint64_t &value : values) {
      value = random() >> (64 - scale);
      histogram.record(value);
    }
    std::sort(values.begin(), values.end());
    for (double q : {0.0, 0.001, 0.1, 0.5, 0.9, 0.99, 0.9999, 1.0}) {
      size_t rank = std::max<size_t>(1, size_t(std::ceil(q * double(values.size()))));
      double exact = double(values[rank - 1]);
      EXPECT_LE(std::abs(histogram.quantile(q) - exact), exact / 256) << scale << " " << q;
      if (exact < 256)
        EXPECT_EQ(histogram.quantile(q), exact);
    }
    EXPECT_EQ(histogram.max(), values.back());
    EXPECT_EQ(histogram.min(), values.front());
    EXPECT_EQ(histogram.count(), values.size());
  }
}

TEST(Histogram, OfNothingIsZero) {
  Histogram histogram;
  EXPECT_EQ(histogram.quantile(0.5), 0);
  EXPECT_EQ(histogram.mean(), 0);
  EXPECT_EQ(histogram.min(), 0u);
}

TEST(Histogram, CountUpToIsExactAtBucketEnds) {
  Histogram histogram;
  for (uint64_t value = 0; value < 100000; ++value)
    histogram.record(value);
  EXPECT_EQ(histogram.countUpTo(0), 1u);
  EXPECT_EQ(histogram.countUpTo(255), 256u);
  EXPECT_EQ(histogram.countUpTo(65535), 65536u);
  // A bound inside a bucket leaves the bucket out: less than 1/128 of the bound.
  uint64_t inside = histogram.countUpTo(70000);
  EXPECT_LE(inside, 70001u);
  EXPECT_GE(inside, 70001u - 70001 / 128);
  EXPECT_EQ(histogram.countUpTo(~uint64_t(0)), 100000u);
}

TEST(Histogram, AddAndClear) {
  Histogram a, b;
  a.record(5);
  b.record(7, 3);
  a.add(b);
  EXPECT_EQ(a.count(), 4u);
  EXPECT_EQ(a.mean(), 26.0 / 4);
  EXPECT_EQ(a.quantile(0.5), 7);
  a.clear();
  EXPECT_EQ(a.count(), 0u);
  EXPECT_EQ(a.max(), 0u);
}

// Each line of the exposition format: a comment, or name{labels} value; buckets cumulative.
TEST(Metrics, PrometheusTextIsWellFormedAndBucketsRise) {
  ServingMetrics metrics;
  metrics.running = 3;
  metrics.pagesTotal = 10;
  metrics.pagesUsed = 5;
  metrics.finished[size_t(FinishReason::Stop)] = 2;
  for (uint64_t ms : {3, 30, 300, 3000})
    metrics.timeToFirstToken.record(ms * 1'000'000);
  std::string text = prometheusText(metrics);
  std::istringstream lines(text);
  uint64_t last = 0, buckets = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line[0] == '#')
      continue;
    ASSERT_EQ(line.rfind("llmopt:", 0), 0u) << line;
    size_t space = line.rfind(' ');
    ASSERT_NE(space, std::string::npos);
    if (line.rfind("llmopt:time_to_first_token_seconds_bucket", 0) == 0) {
      uint64_t value = std::stoull(line.substr(space));
      EXPECT_GE(value, last);
      last = value;
      ++buckets;
    }
  }
  EXPECT_EQ(last, 4u);
  EXPECT_EQ(buckets, 23u);
  EXPECT_NE(text.find("llmopt:time_to_first_token_seconds_bucket{le=\"0.04\"} 2\n"),
            std::string::npos);
  EXPECT_NE(text.find("llmopt:num_requests_running 3\n"), std::string::npos);
  EXPECT_NE(text.find("llmopt:kv_cache_usage_perc 0.5\n"), std::string::npos);
  EXPECT_NE(text.find("llmopt:request_success_total{finished_reason=\"stop\"} 2\n"),
            std::string::npos);
  EXPECT_NE(text.find("# TYPE llmopt:time_to_first_token_seconds histogram\n"), std::string::npos);
}

TEST(Metrics, JsonHasTimesInSeconds) {
  ServingMetrics metrics;
  metrics.interToken.record(2'000'000'000);
  nlohmann::json json = nlohmann::json::parse(jsonText(metrics));
  EXPECT_EQ(json["inter_token_latency_seconds"]["count"], 1);
  EXPECT_NEAR(json["inter_token_latency_seconds"]["p50"].get<double>(), 2, 2.0 / 256);
}

TEST(Timeline, IsJsonAndDropsBeyondItsLimit) {
  Timeline timeline(1);
  timeline.add({Timeline::Track::Host, 1000, 3500, 0, 4, 17, 4, 2});
  timeline.add({Timeline::Track::Device, 3500, 9000, 0, 4, 17, 4, 2});
  nlohmann::json json = nlohmann::json::parse(timeline.chromeTrace());
  EXPECT_EQ(json["otherData"]["dropped_spans"], 1);
  bool found = false;
  for (const auto &event : json["traceEvents"])
    if (event["ph"] == "X") {
      EXPECT_EQ(event["ts"], 1.0);
      EXPECT_EQ(event["dur"], 2.5);
      EXPECT_EQ(event["args"]["tokens"], 17);
      found = true;
    }
  EXPECT_TRUE(found);
}

// The tolerance accepts a faithful float32 online softmax and rejects its typical bugs.
#include "Support.h"

#include <cmath>
#include <random>

namespace llmopt::reference {
namespace {

constexpr ElementType kTypes[] = {ElementType::F32, ElementType::F16, ElementType::BF16};

/// One sequence, one head: `rows` queries over n keys, no mask.
struct Problem {
  ElementType type = ElementType::F32;
  int64_t rows = 16, n = 64, d = 64, dv = 64;
  double queryMagnitude = 1, keyMagnitude = 1;
  bool opposed = false; ///< Q > 0 > K: large negative scores (A18)
  std::string clauses = {};
  unsigned seed = 1;
};

enum class Fault { None, DroppedKey, MissingRescale, HalfAccumulation, HalfScores, WrongScale };

class Data {
public:
  explicit Data(const Problem &p) : p(p), bound(text(p)) {
    std::mt19937 engine(p.seed);
    std::normal_distribution<double> normal;
    auto fill = [&](const char *name, int64_t length, int64_t dim, double magnitude, int sign) {
      Array &array = bound.bind(name, p.type, {1, length, 1, dim}, {0});
      for (int64_t i = 0; i < length * dim; ++i) {
        double x = normal(engine) * magnitude;
        store(array.data, p.type, i, sign ? sign * std::fabs(x) : x);
      }
      std::vector<float> values;
      for (int64_t i = 0; i < length * dim; ++i)
        values.push_back(float(load(array.data, p.type, i)));
      return values;
    };
    q = fill("q", p.rows, p.d, p.queryMagnitude, p.opposed ? 1 : 0);
    k = fill("k", p.n, p.d, p.keyMagnitude, p.opposed ? -1 : 0);
    v = fill("v", p.n, p.dv, 1, 0);
  }

  /// The largest ratio of error to tolerance over all rows, of output and LSE.
  double worst(int64_t tile, Fault fault = Fault::None);
  double worstLse = 0;

private:
  static std::string text(const Problem &p) {
    auto tensor = [&](int64_t dim) {
      return "tensor<1x?x1x" + std::to_string(dim) + "x" + nameOf(p.type) + ">";
    };
    std::string qk = tensor(p.d), v = tensor(p.dv);
    return "func.func @f(%q: " + qk + ", %k: " + qk + ", %v: " + v + ") -> " + v +
           " {\n %o = attn.attention %q, %k, %v " + p.clauses + " : " + qk + ", " + qk + ", " + v +
           " -> " + v + "\n return %o : " + v + "\n}";
  }
  std::vector<double> kernel(int64_t row, int64_t tile, Fault fault, double &lse) const;
  float score(const float *query, const float *key, Fault fault) const;

  Problem p;
  Bound bound;
  std::vector<float> q, k, v;
};

float Data::score(const float *query, const float *key, Fault fault) const {
  float sum = 0;
  for (int64_t c = 0; c < p.d; ++c) {
    sum = std::fma(query[c], key[c], sum);
    if (fault == Fault::HalfScores)
      sum = float(roundTo(ElementType::F16, sum));
  }
  float scale = float(1 / std::sqrt(double(p.d)));
  if (fault == Fault::WrongScale)
    scale *= 1.01f;
  return sum * scale;
}

/// Online softmax over tiles of keys, as kernels do it: float32 state, powers of 2, P
/// rounded to V's format before the second product.
std::vector<double> Data::kernel(int64_t row, int64_t tile, Fault fault, double &lse) const {
  constexpr float log2e = 1.44269504f;
  std::vector<float> sums(size_t(p.dv), 0);
  float m = -std::numeric_limits<float>::infinity(), l = 0;
  for (int64_t begin = 0; begin < p.n; begin += tile) {
    int64_t end = std::min(begin + tile, p.n);
    std::vector<float> scores;
    for (int64_t j = begin; j < end; ++j)
      scores.push_back(score(&q[size_t(row * p.d)], &k[size_t(j * p.d)], fault) * log2e);
    float next = m;
    for (float s : scores)
      next = std::max(next, s);
    float rescale = std::exp2(m - next);
    if (fault == Fault::MissingRescale && begin > 0)
      rescale = 1;
    m = next;
    l *= rescale;
    for (float &sum : sums)
      sum *= rescale;
    for (int64_t j = begin; j < end; ++j) {
      if (fault == Fault::DroppedKey && j == p.n / 2)
        continue;
      float weight = std::exp2(scores[size_t(j - begin)] - m);
      l += weight;
      if (p.type != ElementType::F32)
        weight = float(roundTo(p.type, weight));
      for (int64_t c = 0; c < p.dv; ++c) {
        float &sum = sums[size_t(c)];
        sum = std::fma(weight, v[size_t(j * p.dv + c)], sum);
        if (fault == Fault::HalfAccumulation)
          sum = float(roundTo(ElementType::F16, sum));
      }
    }
  }
  lse = m / log2e + std::log(l);
  lse = float(lse);
  std::vector<double> output;
  for (float sum : sums)
    output.push_back(roundTo(p.type, sum / l));
  return output;
}

double Data::worst(int64_t tile, Fault fault) {
  std::vector<Row> rows;
  for (int64_t i = 0; i < p.rows; ++i)
    rows.push_back({0, i, 0});
  llvm::Expected<std::vector<RowResult>> results =
      evaluate(bound.attention, bound.inputs, rows, Mode::Rounded);
  if (!results) {
    ADD_FAILURE() << llvm::toString(results.takeError());
    return 0;
  }
  double worst = worstLse = 0;
  for (int64_t i = 0; i < p.rows; ++i) {
    double lse;
    std::vector<double> output = kernel(i, tile, fault, lse);
    RowVerdict verdict = judge((*results)[size_t(i)], p.type, output, &lse);
    worst = std::max(worst, verdict.worst);
    worstLse = std::max(worstLse, verdict.worstLse);
  }
  return worst;
}

TEST(Tolerance, AcceptsAFaithfulKernelAtEveryLength) {
  for (ElementType type : kTypes)
    for (int64_t n : {1, 2, 3, 7, 64, 65, 333, 1000, 4096, 8192}) {
      Problem p{.type = type, .rows = n > 1000 ? 4 : 16, .n = n};
      p.seed = unsigned(n);
      for (int64_t tile : {1, 64, 128}) {
        Data data(p);
        EXPECT_LT(data.worst(tile), 1) << nameOf(type) << ", n = " << n << ", tile " << tile;
        EXPECT_LT(data.worstLse, 1) << nameOf(type) << ", n = " << n << ", tile " << tile;
      }
    }
}

TEST(Tolerance, AcceptsAFaithfulKernelAtRandomShapes) {
  std::mt19937 engine(7);
  auto pick = [&](int64_t lo, int64_t hi) {
    return std::uniform_int_distribution<int64_t>(lo, hi)(engine);
  };
  for (unsigned trial = 0; trial < 150; ++trial) {
    Problem p{.type = kTypes[trial % 3],
              .rows = 8,
              .n = int64_t(std::exp2(double(pick(0, 110)) / 10)),
              .d = pick(1, 288),
              .dv = pick(1, 160)};
    p.queryMagnitude = std::exp2(double(pick(-2, 3)));
    p.keyMagnitude = std::exp2(double(pick(-2, 3)));
    p.seed = trial + 100;
    Data data(p);
    EXPECT_LT(data.worst(pick(1, 128)), 1)
        << nameOf(p.type) << " n " << p.n << " d " << p.d << " dv " << p.dv << " magnitudes "
        << p.queryMagnitude << " " << p.keyMagnitude;
    EXPECT_LT(data.worstLse, 1) << nameOf(p.type) << " n " << p.n << " d " << p.d;
  }
}

TEST(Tolerance, AcceptsAFaithfulKernelAtLargeScores) { // A18: raw logits near -2.45e5
  for (ElementType type : kTypes)
    for (int64_t n : {1, 2, 64, 500}) {
      Problem p{.type = type,
                .rows = 16,
                .n = n,
                .d = 128,
                .dv = 128,
                .queryMagnitude = 10,
                .keyMagnitude = 300};
      p.opposed = true;
      Data data(p);
      EXPECT_LT(data.worst(64), 1) << nameOf(type) << ", n = " << n;
      EXPECT_LT(data.worstLse, 1) << nameOf(type) << ", n = " << n;
    }
}

TEST(Tolerance, OneKeyLeavesNoRoomWhateverItsScore) {
  Problem p{.type = ElementType::F32,
            .rows = 1,
            .n = 1,
            .d = 128,
            .queryMagnitude = 10,
            .keyMagnitude = 300};
  Bound bound = weightsOf("", 1, {-2.45e5});
  RowResult row = bound.row(0, 0);
  EXPECT_EQ(row.scoreError, 0);
  EXPECT_LT(toleranceOf(row, ElementType::F32).output, 1e-6);
}

TEST(Tolerance, RejectsOneDroppedKey) {
  for (ElementType type : kTypes) {
    Data data({.type = type, .rows = 32, .n = 1000});
    EXPECT_GT(data.worst(64, Fault::DroppedKey), 1.5) << nameOf(type);
    EXPECT_GT(data.worstLse, 10) << nameOf(type);
  }
}

TEST(Tolerance, RejectsAMissingRescale) {
  for (ElementType type : kTypes) {
    Data data({.type = type, .rows = 8, .n = 1000});
    EXPECT_GT(data.worst(64, Fault::MissingRescale), 4) << nameOf(type);
    EXPECT_GT(data.worstLse, 100) << nameOf(type);
  }
}

TEST(Tolerance, RejectsHalfAccumulation) {
  for (ElementType type : kTypes) {
    Data data({.type = type, .rows = 32, .n = type == ElementType::BF16 ? 8000 : 1000});
    EXPECT_GT(data.worst(64, Fault::HalfAccumulation), 1.2) << nameOf(type);
  }
}

TEST(Tolerance, RejectsHalfScores) {
  for (ElementType type : {ElementType::F32, ElementType::F16}) {
    Data data({.type = type, .rows = 32, .n = 100, .queryMagnitude = 3, .keyMagnitude = 2});
    EXPECT_GT(data.worst(64, Fault::HalfScores), 1.2) << nameOf(type);
    EXPECT_GT(data.worstLse, 10) << nameOf(type);
  }
}

TEST(Tolerance, RejectsAScaleOffByAHundredth) {
  for (ElementType type : kTypes) {
    Data data({.type = type, .rows = 32, .n = 100, .queryMagnitude = 2, .keyMagnitude = 2});
    EXPECT_GT(data.worst(64, Fault::WrongScale), 1.2) << nameOf(type);
  }
}

TEST(Tolerance, MinusInfinityAndNaNAreMetExactly) {
  Bound bound = weightsOf("mask(causal)", 2, {1});
  RowResult empty = bound.row(0, 0);
  double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  double lse = -infinity;
  EXPECT_TRUE(judge(empty, ElementType::F32, {0.0}, &lse).passed);
  EXPECT_FALSE(judge(empty, ElementType::F32, {1e-30}, &lse).passed);
  EXPECT_FALSE(judge(empty, ElementType::F32, {nan}, &lse).passed);
  for (double wrong : {-49994.0, nan, infinity, 0.0}) { // A3, A12
    RowVerdict verdict = judge(empty, ElementType::F32, {0.0}, &wrong);
    EXPECT_FALSE(verdict.passed);
    EXPECT_EQ(verdict.component, -1);
  }
  RowResult row = bound.row(0, 1);
  EXPECT_FALSE(judge(row, ElementType::F32, {nan}, &row.lse).passed);
  RowResult sees = weightsOf("", 1, {0, nan}).row(0, 0);
  EXPECT_TRUE(judge(sees, ElementType::F32, {nan, nan}, &nan).passed);
  EXPECT_FALSE(judge(sees, ElementType::F32, {0.5, nan}, &nan).passed);
}

TEST(Tolerance, SubnormalNumbersMayBecomeZero) {
  RowResult row;
  row.visible = 1;
  row.output = row.rounded = {-4.88e-40};
  EXPECT_TRUE(judge(row, ElementType::BF16, {0.0}, nullptr).passed);
  row.output = row.rounded = {-4.88e-37};
  EXPECT_FALSE(judge(row, ElementType::BF16, {0.0}, nullptr).passed);
}

TEST(Tolerance, RoundingThatDecidesWhetherAKeyCountsIsNotJudged) {
  Bound bound = weightsOf(R"(score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %inf = arith.constant 0xFF800000 : f32
      %limit = arith.constant 1.0 : f32
      %c = arith.cmpf olt, %s, %limit : f32
      %r = arith.select %c, %inf, %s : f32
      attn.yield %r : f32
  })",
                          1, {1, 3});
  RowResult row = bound.row(0, 0);
  EXPECT_TRUE(std::isinf(toleranceOf(row, ElementType::F32).output));
}

} // namespace
} // namespace llmopt::reference

// One merge path for 1, 2, 300 and only-empty partials (A2).
#include "Support.h"

#include <cmath>
#include <limits>

namespace llmopt::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const char *const kSpec = R"(
func.func @f(%p: tensor<?x?x2x8xf32>, %l: tensor<?x?x2xf32>) -> (tensor<?x2x8xf32>, tensor<?x2xf32>) {
  %o, %m = attn.merge %p, %l : tensor<?x?x2x8xf32>, tensor<?x?x2xf32> -> tensor<?x2x8xf32>, tensor<?x2xf32>
  return %o, %m : tensor<?x2x8xf32>, tensor<?x2xf32>
})";

class Merge : public OnEachDevice {
protected:
  void SetUp() override {
    OnEachDevice::SetUp();
    if (!IsSkipped())
      f = std::make_unique<Compiled>(kSpec, GetParam());
  }
  /// A call with `partials` random partials of three tokens, none of them empty.
  harness::Call made(int64_t partials) {
    harness::Shape shape = shapeOf({3}, {3});
    shape.partials = partials;
    harness::Call call = f->call(shape);
    call.find("partial_lse")->fill([n = 0]() mutable { return 0.25 * (n++ % 17) - 2; });
    call.find("partials")->fill([n = 0]() mutable { return 0.5 + 0.125 * (n++ % 101); });
    return call;
  }
  /// Makes a partial empty; what its output holds must not matter.
  void empty(harness::Call &call, int64_t partial, double garbage) {
    for (int64_t t = 0; t < 3; ++t)
      for (int64_t h = 0; h < 2; ++h) {
        call.find("partial_lse")->set({partial, t, h}, -kInfinity);
        for (int64_t c = 0; c < 8; ++c)
          call.find("partials")->set({partial, t, h, c}, garbage);
      }
  }
  void run(harness::Call &call) {
    for (harness::HostArray &array : call.arrays)
      array.seal();
    f->run(call);
  }
  void expectIs(harness::Call &call, int64_t partial) {
    for (int64_t t = 0; t < 3; ++t)
      for (int64_t h = 0; h < 2; ++h) {
        EXPECT_EQ(call.find("lse")->get({t, h}), call.find("partial_lse")->get({partial, t, h}));
        for (int64_t c = 0; c < 8; ++c)
          EXPECT_EQ(call.find("o")->get({t, h, c}), call.find("partials")->get({partial, t, h, c}));
      }
  }

  std::unique_ptr<Compiled> f;
};

TEST_P(Merge, TheOnlyFinitePartialComesBackBitForBit) {
  for (int64_t partials : {1, 2, 300})
    for (int64_t finite : {int64_t(0), partials - 1, partials / 2})
      for (double garbage : {0.0, kInfinity, std::nan("")}) {
        harness::Call call = made(partials);
        for (int64_t n = 0; n < partials; ++n)
          if (n != finite)
            empty(call, n, garbage);
        run(call);
        expectIs(call, finite);
      }
}

TEST_P(Merge, OnlyEmptyPartialsGiveZeroAndMinusInfinity) {
  for (int64_t partials : {1, 2, 300}) {
    harness::Call call = made(partials);
    for (int64_t n = 0; n < partials; ++n)
      empty(call, n, std::nan(""));
    run(call);
    for (int64_t t = 0; t < 3; ++t)
      for (int64_t h = 0; h < 2; ++h) {
        EXPECT_EQ(call.find("lse")->get({t, h}), -kInfinity);
        for (int64_t c = 0; c < 8; ++c)
          EXPECT_EQ(call.find("o")->get({t, h, c}), 0);
      }
  }
}

TEST_P(Merge, EmptyPartialsChangeNoBit) { // 1 + 299 empty ones among two finite ones
  harness::Call plain = made(2), mixed = made(300);
  run(plain);
  for (int64_t n = 0; n < 300; ++n)
    empty(mixed, n, std::nan(""));
  for (auto [from, to] : {std::pair{0, 17}, std::pair{1, 255}})
    for (int64_t t = 0; t < 3; ++t)
      for (int64_t h = 0; h < 2; ++h) {
        mixed.find("partial_lse")->set({to, t, h}, plain.find("partial_lse")->get({from, t, h}));
        for (int64_t c = 0; c < 8; ++c)
          mixed.find("partials")->set({to, t, h, c}, plain.find("partials")->get({from, t, h, c}));
      }
  run(mixed);
  EXPECT_EQ(harness::differentBits(plain, mixed), "");
}

TEST_P(Merge, ManyPartialsAreRight) {
  for (int64_t partials : {0, 1, 2, 300}) {
    harness::Shape shape = shapeOf({5}, {5});
    shape.partials = partials;
    f->verify(shape);
  }
}

LLMOPT_ON_EACH_DEVICE(Merge);

} // namespace
} // namespace llmopt::test

// Forms of queries and keys: ragged, dense with lengths, paged in every layout.
#include "Support.h"

#include <cmath>

namespace llmopt::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Layout, RaggedWithMoreQueriesThanKeys) { // A3, Dao-AILab/flash-attention#443 exactly
  Bound bound(R"(func.func @f(%q: tensor<?x1x32xf16>, %k: tensor<?x1x32xf16>, %v: tensor<?x1x32xf16>,
                              %s: !attn.sequences) -> (tensor<?x1x32xf16>, tensor<?x1xf32>) {
    %o, %l = attn.attention %q, %k, %v, %s mask(causal) : tensor<?x1x32xf16>, tensor<?x1x32xf16>,
      tensor<?x1x32xf16>, !attn.sequences -> tensor<?x1x32xf16>, tensor<?x1xf32>
    return %o, %l : tensor<?x1x32xf16>, tensor<?x1xf32>
  })");
  bound.bindFrom("q", ElementType::F16, {256, 1, 32}, [](int64_t i) { return double(i % 7) - 3; });
  bound.bindFrom("k", ElementType::F16, {3, 1, 32}, [](int64_t i) { return double(i % 5) / 4 - 0.5; });
  bound.bindFrom("v", ElementType::F16, {3, 1, 32}, [](int64_t i) { return double(i) / 8; });
  bound.bind("cu_seqlens_q", ElementType::I32, {4}, {0, 76, 110, 256});
  bound.bind("cu_seqlens_kv", ElementType::I32, {4}, {0, 1, 2, 3});
  const int64_t lengths[] = {76, 34, 146};
  int64_t token = 0;
  for (int64_t b = 0; b < 3; ++b)
    for (int64_t i = 0; i < lengths[b]; ++i, ++token) {
      RowResult row = bound.row(b, i);
      bool last = token == 75 || token == 109 || token == 255;
      EXPECT_EQ(row.visible, last ? 1 : 0) << token;
      double score = 0;
      for (int64_t c = 0; c < 32; ++c) {
        EXPECT_EQ(row.output[size_t(c)], last ? double(b * 32 + c) / 8 : 0);
        score += (double((token * 32 + c) % 7) - 3) * (double((b * 32 + c) % 5) / 4 - 0.5);
      }
      EXPECT_EQ(row.lse, last ? score * float(1 / std::sqrt(32.0)) : -kInfinity);
    }
}

TEST(Layout, DenseKeysEndAtTheirLength) { // A1: what lies beyond is NaN
  Bound bound(R"(func.func @f(%q: tensor<2x1x1x1xf32>, %k: tensor<2x4x1x1xf32>, %v: tensor<2x4x1x1xf32>,
                              %s: !attn.sequences) -> tensor<2x1x1x1xf32> {
    %o = attn.attention %q, %k, %v, %s : tensor<2x1x1x1xf32>, tensor<2x4x1x1xf32>, tensor<2x4x1x1xf32>,
      !attn.sequences -> tensor<2x1x1x1xf32>
    return %o : tensor<2x1x1x1xf32>
  })");
  double nan = std::nan("");
  bound.bind("q", ElementType::F32, {2, 1, 1, 1}, {0});
  bound.bind("k", ElementType::F32, {2, 4, 1, 1}, {0, 0, nan, nan, nan, nan, nan, nan});
  bound.bind("v", ElementType::F32, {2, 4, 1, 1}, {1, 3, nan, nan, nan, nan, nan, nan});
  bound.bind("kv_len", ElementType::I32, {2}, {2, 0});
  EXPECT_EQ(bound.row(0, 0).output[0], 2);
  EXPECT_EQ(bound.row(1, 0).output[0], 0);
  EXPECT_EQ(bound.row(1, 0).lse, -kInfinity);
}

TEST(Layout, QueryHeadsShareKvHeads) { // head h reads KV head h / group
  Bound bound(R"(func.func @f(%q: tensor<1x1x6x1xf32>, %k: tensor<1x1x2x1xf32>, %v: tensor<1x1x2x1xf32>)
      -> tensor<1x1x6x1xf32> {
    %o = attn.attention %q, %k, %v : tensor<1x1x6x1xf32>, tensor<1x1x2x1xf32>, tensor<1x1x2x1xf32>
      -> tensor<1x1x6x1xf32>
    return %o : tensor<1x1x6x1xf32>
  })");
  bound.bind("q", ElementType::F32, {1, 1, 6, 1}, {0});
  bound.bind("k", ElementType::F32, {1, 1, 2, 1}, {0});
  bound.bind("v", ElementType::F32, {1, 1, 2, 1}, {10, 20});
  for (int64_t h = 0; h < 6; ++h)
    EXPECT_EQ(bound.row(0, 0, h).output[0], h < 3 ? 10 : 20);
}

TEST(Layout, AnyStrides) { // A28: innermost stride 2, reversed keys
  Bound bound = weightsOf("", 1, {1, 2, 3});
  Array &k = bound.bind("k", ElementType::F32, {1, 6, 1, 1}, {3, 99, 2, 99, 1, 99});
  k.shape[1] = 3;
  k.strides[1] = -2;
  k.data = static_cast<float *>(k.data) + 4;
  EXPECT_NEAR(bound.row(0, 0).output[0], std::exp(1) / (std::exp(1) + std::exp(2) + std::exp(3)), 1e-15);
}

/// A cache of 2 KV heads, d = 1, d_v = 1, pages of 2 slots, in the given options. V of
/// (page, slot, head) is 100 page + 10 slot + head.
struct Paged {
  Bound bound;
  Paged(const std::string &options, bool headMajor, bool interleaved)
      : bound("func.func @f(%q: tensor<?x2x1xf32>, %kv: !attn.kv_cache<2x1xf32, page = 2" + options +
              ">, %s: !attn.sequences) -> tensor<?x2x1xf32> {\n %o = attn.attention %q, %kv, %s mask(window<1>) : "
              "tensor<?x2x1xf32>, !attn.kv_cache<2x1xf32, page = 2" +
              options + ">, !attn.sequences -> tensor<?x2x1xf32>\n return %o : tensor<?x2x1xf32>\n}") {
    auto v = [=](int64_t i) {
      int64_t page = i / 4, slot = headMajor ? i % 2 : i / 2 % 2, head = headMajor ? i / 2 % 2 : i % 2;
      return double(100 * page + 10 * slot + head);
    };
    if (interleaved)
      bound.bindFrom("kv_pool", ElementType::F32, {5, 2, 2, 2, 1},
                     [=](int64_t i) { return i / 4 % 2 ? v(i / 8 * 4 + i % 4) : 0; });
    else
      bound.bindFrom("v_pool", ElementType::F32, {5, 2, 2, 1}, v);
    bound.bind("k_pool", ElementType::F32, {5, 2, 2, 1}, {0});
    bound.bind("q", ElementType::F32, {5, 2, 1}, {0});
    bound.bind("cu_seqlens_q", ElementType::I32, {3}, {0, 3, 5});
    bound.bind("kv_len", ElementType::I32, {2}, {3, 4});
    bound.bind("block_table", ElementType::I32, {2, 3}, {4, 1, -1, 0, 3, -1});
    bound.bind("kv_indptr", ElementType::I32, {3}, {0, 2, 4});
    bound.bind("kv_indices", ElementType::I32, {5}, {4, 1, 0, 3, -1});
  }
};

TEST(Layout, PagedInEveryForm) {
  for (bool headMajor : {false, true})
    for (bool interleaved : {false, true})
      for (const char *table : {"", ", indptr"}) {
        Paged paged(std::string(headMajor ? ", head_major" : "") + (interleaved ? ", interleaved" : "") + table,
                    headMajor, interleaved);
        for (int64_t head : {0, 1}) { // window<1>: query i sees its own key alone
          EXPECT_EQ(paged.bound.row(0, 0, head).output[0], 400 + head);
          EXPECT_EQ(paged.bound.row(0, 1, head).output[0], 410 + head);
          EXPECT_EQ(paged.bound.row(0, 2, head).output[0], 100 + head);
          EXPECT_EQ(paged.bound.row(1, 0, head).output[0], 300 + head); // keys 2 and 3
          EXPECT_EQ(paged.bound.row(1, 1, head).output[0], 310 + head);
        }
      }
}

TEST(Layout, PageOfMinusOneIsAnErrorWhereVisible) {
  Paged paged("", false, false);
  paged.bound.bind("block_table", ElementType::I32, {2, 3}, {-1, 1, -1, 0, 3, -1});
  EXPECT_EQ(paged.bound.rowError(0, 0), "sequence 0: visible key 0 has page -1 of 5");
  EXPECT_EQ(paged.bound.row(0, 2).output[0], 100); // its page is there; -1 is never read
}

TEST(Layout, KeysBeyondTheTableAreAnError) { // A13
  Paged paged("", false, false);
  paged.bound.bind("kv_len", ElementType::I32, {2}, {7, 4});
  EXPECT_EQ(paged.bound.rowError(0, 2), "sequence 0: key 6 lies beyond the 3 pages of its table");
}

TEST(Layout, MissingArraysAreNamed) {
  Paged paged("", false, false);
  paged.bound.inputs.arrays.erase("block_table");
  EXPECT_EQ(paged.bound.rowError(0, 0), "array 'block_table' is not bound");
}

TEST(Layout, SeenKeysAreThoseOfTheMask) {
  Paged paged("", false, false);
  llvm::Expected<std::vector<bool>> seen = seenKeys(paged.bound.attention, paged.bound.inputs, 1);
  ASSERT_TRUE(bool(seen));
  EXPECT_EQ(*seen, (std::vector<bool>{false, false, true, true}));
}

} // namespace
} // namespace llmopt::reference

#include "tests/unit/cpu/Attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace llmopt::cpu::test;

namespace {

/// Replaces each $name by its value.
std::string fillIn(std::string text, std::vector<std::pair<std::string, std::string>> names) {
  // Longest first: $dv before $d.
  std::sort(names.begin(), names.end(),
            [](auto &a, auto &b) { return a.first.size() > b.first.size(); });
  for (auto &[name, value] : names)
    for (size_t at; (at = text.find("$" + name)) != std::string::npos;)
      text.replace(at, name.size() + 1, value);
  return text;
}

/// One tile of keys at %u; carries %acc, %m, %l and ends with the names %acc2, %mn, %l2.
std::string tileBody(const AttentionSpec &spec, bool masked) {
  std::string rows = R"(
        %left = arith.subi %nk, %u : index
)";
  rows +=
      spec.page
          ? R"(        %krows = tile.paged_rows %table[%c0] from %u count %left page $page offset %c0 strides %kpage, %kd : memref<?xi32>, tensor<$Nx1xi64>
        %vrows = tile.paged_rows %table[%c0] from %u count %left page $page offset %c0 strides %vpage, %vd : memref<?xi32>, tensor<$Nx1xi64>
)"
          : R"(        %koff = arith.muli %u, %kd : index
        %voff = arith.muli %u, %vd : index
        %krows = tile.strided_rows %koff, %kd, %left : tensor<$Nx1xi64>
        %vrows = tile.strided_rows %voff, %vd, %left : tensor<$Nx1xi64>
)";
  std::string mask = masked ? R"(
          %first = arith.index_cast %u : index to i32
          %key = arith.addi %first, %c : i32
          %nki = arith.index_cast %nk : index to i32
          %inside = arith.cmpi slt, %key, %nki : i32
          %seen = arith.cmpi sle, %key, %bound : i32
          %both = arith.andi %inside, %seen : i1
          %out = arith.select %both, %scaled, %minf : f32
          tile.yield %out : f32)"
                            : R"(
          tile.yield %scaled : f32)";
  std::string narrow = spec.type == "f32" ? R"(
        %v = tile.load %vbase[%vrows] : memref<?x$T>, tensor<$Nx1xi64> -> tensor<$Nx$dvx$T>
        %acc2 = tile.mma %p, %v, %acc1 : tensor<$Mx$Nxf32>, tensor<$Nx$dvx$T>, tensor<$Mx$dvxf32>)"
                                          : R"(
        %pb = tile.map(%p : tensor<$Mx$Nxf32>) {
        ^bb0(%x: f32, %r: i32, %c: i32):
          %y = arith.truncf %x : f32 to $T
          tile.yield %y : $T
        } -> tensor<$Mx$Nx$T>
        %v = tile.load %vbase[%vrows] : memref<?x$T>, tensor<$Nx1xi64> -> tensor<$Nx$dvx$T>
        %acc2 = tile.mma %pb, %v, %acc1 : tensor<$Mx$Nx$T>, tensor<$Nx$dvx$T>, tensor<$Mx$dvxf32>)";
  return rows +
         R"(        %k = tile.load %kbase[%krows] : memref<?x$T>, tensor<$Nx1xi64> -> tensor<$Nx$dx$T>
        %s = tile.mma %q, %k, %zs transpose_b : tensor<$Mx$dx$T>, tensor<$Nx$dx$T>, tensor<$Mx$Nxf32>
        %s1 = tile.map(%s, %pos : tensor<$Mx$Nxf32>, tensor<$Mx1xi32>) {
        ^bb0(%x: f32, %bound: i32, %r: i32, %c: i32):
          %scaled = arith.mulf %x, %scale : f32)" +
         mask + R"(
        } -> tensor<$Mx$Nxf32>
        %mx = tile.reduce max %s1 : tensor<$Mx$Nxf32> -> tensor<$Mx1xf32>
        %mn = tile.map(%m, %mx : tensor<$Mx1xf32>, tensor<$Mx1xf32>) {
        ^bb0(%x: f32, %y: f32, %r: i32, %c: i32):
          %z = arith.maximumf %x, %y : f32
          tile.yield %z : f32
        } -> tensor<$Mx1xf32>
        %p = tile.map(%s1, %mn : tensor<$Mx$Nxf32>, tensor<$Mx1xf32>) {
        ^bb0(%x: f32, %y: f32, %r: i32, %c: i32):
          %none = arith.cmpf oeq, %y, %minf : f32
          %safe = arith.select %none, %zero, %y : f32
          %z = arith.subf %x, %safe : f32
          %e = math.exp2 %z : f32
          tile.yield %e : f32
        } -> tensor<$Mx$Nxf32>
        %alpha = tile.map(%m, %mn : tensor<$Mx1xf32>, tensor<$Mx1xf32>) {
        ^bb0(%x: f32, %y: f32, %r: i32, %c: i32):
          %none = arith.cmpf oeq, %y, %minf : f32
          %safe = arith.select %none, %zero, %y : f32
          %z = arith.subf %x, %safe : f32
          %e = math.exp2 %z : f32
          tile.yield %e : f32
        } -> tensor<$Mx1xf32>
        %ps = tile.reduce sum %p : tensor<$Mx$Nxf32> -> tensor<$Mx1xf32>
        %l2 = tile.map(%l, %alpha, %ps : tensor<$Mx1xf32>, tensor<$Mx1xf32>, tensor<$Mx1xf32>) {
        ^bb0(%x: f32, %y: f32, %w: f32, %r: i32, %c: i32):
          %z = math.fma %x, %y, %w : f32
          tile.yield %z : f32
        } -> tensor<$Mx1xf32>
        %acc1 = tile.map(%acc, %alpha : tensor<$Mx$dvxf32>, tensor<$Mx1xf32>) {
        ^bb0(%x: f32, %y: f32, %r: i32, %c: i32):
          %z = arith.mulf %x, %y : f32
          tile.yield %z : f32
        } -> tensor<$Mx$dvxf32>)" +
         narrow;
}

const char *kHead = R"(
func.func @attend(%qbase: memref<?x$T>, %kbase: memref<?x$T>, %vbase: memref<?x$T>, %obase: memref<?x$T>,
                  %lsebase: memref<?xf32>, %table: memref<?xi32>, %nq: index, %nk: index, %scale: f32,
                  %worker: index {tile.worker}) attributes {tile.kernel$invariant} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %cM = arith.constant $M : index
  %cN = arith.constant $N : index
  %kd = arith.constant $d : index
  %vd = arith.constant $dv : index
  %page = arith.constant $page : index
  %kpage = arith.muli %page, %kd : index
  %vpage = arith.muli %page, %vd : index
  %minf = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %zs = arith.constant dense<0.0> : tensor<$Mx$Nxf32>
  %za = arith.constant dense<0.0> : tensor<$Mx$dvxf32>
  %zl = arith.constant dense<0.0> : tensor<$Mx1xf32>
  %zm = arith.constant dense<0xFF800000> : tensor<$Mx1xf32>
  %lag = arith.subi %nk, %nq : index
  %full = arith.divui %nk, %cN : index
  %fullEnd = arith.muli %full, %cN : index
  scf.for %r0 = %c0 to %nq step %cM {
    %rest = arith.subi %nq, %r0 : index
    %qoff = arith.muli %r0, %kd : index
    %ooff = arith.muli %r0, %vd : index
    %qrows = tile.strided_rows %qoff, %kd, %rest : tensor<$Mx1xi64>
    %orows = tile.strided_rows %ooff, %vd, %rest : tensor<$Mx1xi64>
    %lrows = tile.strided_rows %r0, %c1, %rest : tensor<$Mx1xi64>
    %posBase0 = arith.addi %r0, %lag : index
    %posBase = arith.index_cast %posBase0 : index to i32
    %lastKey = arith.index_cast %nk : index to i32
    %pos = tile.map() {
    ^bb0(%r: i32, %c: i32):
      %p = $position
      tile.yield %p : i32
    } -> tensor<$Mx1xi32>
    %sure0 = arith.addi %posBase0, %c1 : index
    %sure1 = arith.maxsi %sure0, %c0 : index
    %sure2 = arith.divui %sure1, %cN : index
    %sure3 = arith.muli %sure2, %cN : index
    %sure = $sure
    %q = tile.load %qbase[%qrows] : memref<?x$T>, tensor<$Mx1xi64> -> tensor<$Mx$dx$T>
    %w:4 = scf.while (%t = %c0, %acc0 = %za, %m0 = %zm, %l0 = %zl)
        : (index, tensor<$Mx$dvxf32>, tensor<$Mx1xf32>, tensor<$Mx1xf32>) -> (index, tensor<$Mx$dvxf32>, tensor<$Mx1xf32>, tensor<$Mx1xf32>) {
      %more = arith.cmpi slt, %t, %nk : index
      scf.condition(%more) %t, %acc0, %m0, %l0 : index, tensor<$Mx$dvxf32>, tensor<$Mx1xf32>, tensor<$Mx1xf32>
    } do {
    ^bb0(%t: index, %acc1_: tensor<$Mx$dvxf32>, %m1_: tensor<$Mx1xf32>, %l1_: tensor<$Mx1xf32>):
      %f:3 = scf.for %u = %t to %sure step %cN iter_args(%acc = %acc1_, %m = %m1_, %l = %l1_)
          -> (tensor<$Mx$dvxf32>, tensor<$Mx1xf32>, tensor<$Mx1xf32>) {)";

const char *kMiddle = R"(
        scf.yield %acc2, %mn, %l2 : tensor<$Mx$dvxf32>, tensor<$Mx1xf32>, tensor<$Mx1xf32>
      }
      %from = arith.maxsi %t, %sure : index
      %to = arith.addi %from, %cN : index
      %stop = arith.minsi %to, %nk : index
      %g:3 = scf.for %u = %from to %stop step %cN iter_args(%acc = %f#0, %m = %f#1, %l = %f#2)
          -> (tensor<$Mx$dvxf32>, tensor<$Mx1xf32>, tensor<$Mx1xf32>) {)";

const char *kTail = R"(
        scf.yield %acc2, %mn, %l2 : tensor<$Mx$dvxf32>, tensor<$Mx1xf32>, tensor<$Mx1xf32>
      }
      scf.yield %to, %g#0, %g#1, %g#2 : index, tensor<$Mx$dvxf32>, tensor<$Mx1xf32>, tensor<$Mx1xf32>
    }
    %o = tile.map(%w#1, %w#3 : tensor<$Mx$dvxf32>, tensor<$Mx1xf32>) {
    ^bb0(%x: f32, %y: f32, %r: i32, %c: i32):
      %none = arith.cmpf oeq, %y, %zero : f32
      %z = arith.divf %x, %y : f32
      %e = arith.select %none, %zero, %z : f32
      tile.yield %e : f32
    } -> tensor<$Mx$dvxf32>
    tile.store %o, %obase[%orows] : tensor<$Mx$dvxf32>, memref<?x$T>, tensor<$Mx1xi64>
    %lse = tile.map(%w#2, %w#3 : tensor<$Mx1xf32>, tensor<$Mx1xf32>) {
    ^bb0(%x: f32, %y: f32, %r: i32, %c: i32):
      %ln2 = arith.constant 0.693147182 : f32
      %z = math.log2 %y : f32
      %s = arith.addf %x, %z : f32
      %e = arith.mulf %s, %ln2 : f32
      tile.yield %e : f32
    } -> tensor<$Mx1xf32>
    tile.store %lse, %lsebase[%lrows] : tensor<$Mx1xf32>, memref<?xf32>, tensor<$Mx1xi64>
  }
  return
})";

} // namespace

std::string llmopt::cpu::test::attentionProgram(const AttentionSpec &spec) {
  std::string text = kHead + tileBody(spec, false) + kMiddle + tileBody(spec, true) + kTail;
  return fillIn(text, {{"M", std::to_string(spec.tileRows)},
                       {"N", std::to_string(spec.tileKeys)},
                       {"d", std::to_string(spec.d)},
                       {"dv", std::to_string(spec.dv)},
                       {"T", spec.type},
                       {"page", std::to_string(std::max<int64_t>(spec.page, 1))},
                       {"invariant", spec.batchInvariant ? ", tile.batch_invariant" : ""},
                       {"position", spec.causal ? "arith.addi %posBase, %r : i32"
                                                : "arith.addi %lastKey, %r : i32"},
                       {"sure", spec.causal ? "arith.minsi %sure3, %fullEnd : index"
                                            : "arith.addi %fullEnd, %c0 : index"}});
}

AttentionData::AttentionData(const AttentionSpec &spec, int64_t rows, int64_t keys, unsigned seed)
    : spec(spec), rows(rows), keys(keys), scale(1 / std::sqrt(float(spec.d))) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  auto rounded = [&](float x) {
    return spec.type == "bf16" ? fromBf16(toBf16(x)) : spec.type == "f16" ? fromF16(toF16(x)) : x;
  };
  int64_t slots = keys;
  if (spec.page) {
    int64_t pages = (keys + spec.page - 1) / spec.page;
    slots = (pages + 2) * spec.page;
    for (int64_t i = 0; i < pages; ++i)
      table.push_back(int32_t((i * 7 + 1) % (pages + 2)));
    if (std::vector<int32_t> sorted = table; true) {
      std::sort(sorted.begin(), sorted.end());
      if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
        for (int64_t i = 0; i < pages; ++i)
          table[i] = int32_t(pages - i);
    }
    table.push_back(-1);
  }
  float nan = std::numeric_limits<float>::quiet_NaN();
  q.resize(rows * spec.d);
  k.assign((slots + 1) * spec.d, nan);
  v.assign((slots + 1) * spec.dv, nan);
  o.assign((rows + 1) * spec.dv, 777.0f);
  lses.assign(rows + 1, 777.0f);
  for (float &x : q)
    x = rounded(normal(random));
  for (int64_t key = 0; key < keys; ++key) {
    for (int64_t i = 0; i < spec.d; ++i)
      k[keySlot(key) * spec.d + i] = rounded(normal(random));
    for (int64_t i = 0; i < spec.dv; ++i)
      v[keySlot(key) * spec.dv + i] = rounded(normal(random));
  }
  if (spec.type != "f32") {
    qNarrow = narrow(q);
    kNarrow = narrow(k);
    vNarrow = narrow(v);
    oNarrow.resize(o.size());
  }
}

int64_t AttentionData::keySlot(int64_t key) const {
  return spec.page ? table[key / spec.page] * spec.page + key % spec.page : key;
}

std::vector<uint16_t> AttentionData::narrow(const std::vector<float> &values) const {
  std::vector<uint16_t> bits;
  for (float x : values)
    bits.push_back(spec.type == "bf16" ? toBf16(x) : toF16(x));
  return bits;
}

float AttentionData::read(const std::vector<float> &values, size_t i) const {
  if (spec.type == "f32")
    return values[i];
  return spec.type == "bf16" ? fromBf16(oNarrow[i]) : fromF16(oNarrow[i]);
}

void AttentionData::run(Kernel &kernel) {
  bool wide = spec.type == "f32";
  auto pick = [&](auto &a, auto &b) {
    return wide ? static_cast<const void *>(a.data()) : static_cast<const void *>(b.data());
  };
  kernel.clear();
  kernel.slot(pick(q, qNarrow))
      .slot(pick(k, kNarrow))
      .slot(pick(v, vNarrow))
      .slot(pick(o, oNarrow));
  kernel.slot(static_cast<const void *>(lses.data())).slot(static_cast<const void *>(table.data()));
  kernel.slot(rows).slot(keys).slot(scale * 1.44269504f);
  kernel.run();
}

std::pair<double, double> AttentionData::errors(int64_t step) const {
  double worst = 0, worstLse = 0;
  std::vector<double> weights(keys), sums(spec.dv);
  for (int64_t row = 0; row < rows; row += step) {
    int64_t visible = spec.causal ? std::clamp<int64_t>(row + keys - rows + 1, 0, keys) : keys;
    double most = -INFINITY, total = 0;
    for (int64_t key = 0; key < visible; ++key) {
      double s = 0;
      for (int64_t i = 0; i < spec.d; ++i)
        s += double(q[row * spec.d + i]) * k[keySlot(key) * spec.d + i];
      weights[key] = s * scale;
      most = std::max(most, weights[key]);
    }
    std::fill(sums.begin(), sums.end(), 0);
    for (int64_t key = 0; key < visible; ++key) {
      double p = std::exp(weights[key] - most);
      total += p;
      for (int64_t i = 0; i < spec.dv; ++i)
        sums[i] += p * v[keySlot(key) * spec.dv + i];
    }
    for (int64_t i = 0; i < spec.dv; ++i) {
      double wanted = visible ? sums[i] / total : 0;
      double error = std::fabs(output(row, i) - wanted);
      if (!(error <= worst))
        worst = error;
    }
    double wanted = most + std::log(total);
    double error = visible ? std::fabs(lse(row) - wanted) : (lse(row) == -INFINITY ? 0 : INFINITY);
    if (!(error <= worstLse))
      worstLse = error;
  }
  return {worst, worstLse};
}

// A program around the kernels of objects/ScalarAttention.cpp, a case to run it
// on, and the naive computation to compare with.
#pragma once

#include "runtime/base/File.h"
#include "runtime/device/BoundCall.h"
#include "runtime/device/cpu/CpuDevice.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>

namespace calltest {

using namespace llmopt;
using namespace llmopt::bundle;
using namespace llmopt::runtime;

/// What a test program looks like.
struct Spec {
  uint32_t queryHeads = 4, kvHeads = 2, dQk = 8, dV = 6;
  KvForm kvForm = KvForm::Paged;
  TableForm tableForm = TableForm::BlockTable;
  uint32_t pageSize = 4;
  uint32_t tileRows = 4, tileKeys = 8;
  bool append = false;
};

inline void addBuffers(Program &program, const Spec &s) {
  int64_t heads = s.queryHeads, kvHeads = s.kvHeads, dQk = s.dQk, dV = s.dV;
  auto add = [&](const char *name, BufferRole role, ElementType type, std::vector<int64_t> extents,
                 bool nullable = false) {
    bool output = role == BufferRole::Output || role == BufferRole::Lse;
    program.buffers.push_back({name, role, type, output, nullable, std::move(extents)});
  };
  using R = BufferRole;
  using E = ElementType;
  bool paged = s.kvForm == KvForm::Paged, ragged = s.kvForm == KvForm::Ragged;
  int64_t page = paged ? int64_t{s.pageSize} : -1;
  add("q", R::Query, E::F32, {-1, heads, dQk});
  if (ragged) {
    add("k", R::Key, E::F32, {-1, kvHeads, dQk});
    add("v", R::Value, E::F32, {-1, kvHeads, dV});
  } else {
    add("k", paged ? R::KeyPool : R::Key, E::F32, {-1, page, kvHeads, dQk});
    add("v", paged ? R::ValuePool : R::Value, E::F32, {-1, page, kvHeads, dV});
  }
  add("o", R::Output, E::F32, {-1, heads, dV});
  add("lse", R::Lse, E::F32, {-1, heads}, true);
  add("table", R::BlockTable, E::I32,
      s.tableForm == TableForm::Indptr ? std::vector<int64_t>{-1} : std::vector<int64_t>{-1, -1},
      !paged);
  add("table_indptr", R::TableIndptr, E::I32, {-1}, s.tableForm != TableForm::Indptr);
  add("cu_q", R::CuSeqlensQ, E::I32, {-1}, true);
  add("cu_k", R::CuSeqlensKv, E::I32, {-1}, true);
  add("kv_len", R::KvLen, E::I32, {-1}, !paged);
  add("slots", R::SlotMapping, E::I64, {-1}, !s.append);
  add("new_k", R::NewKey, E::F32, {-1, kvHeads, dQk}, !s.append);
  add("new_v", R::NewValue, E::F32, {-1, kvHeads, dV}, !s.append);
  add("none", R::User, E::F32, {-1}, true);
  for (R role : {R::ItemOffsets, R::Items, R::Rows, R::Sequences, R::Scalars, R::PartialOut,
                 R::PartialLse, R::MergeOffsets, R::Merges, R::Counters})
    add("", role, E::F32, {-1});
}

/// The order of Params in ScalarAttention.cpp.
inline void addSlots(Program &program, const Spec &s) {
  auto find = [&](std::string_view name, BufferRole role) {
    for (uint32_t i = 0; i < program.buffers.size(); ++i)
      if (name.empty() ? program.buffers[i].role == role : program.buffers[i].name == name)
        return i;
    return ~0u;
  };
  auto pointer = [&](const char *name) {
    program.slots.push_back({SlotKind::Pointer, find(name, {}), 0});
  };
  auto strides = [&](const char *name, std::initializer_list<uint32_t> dims) {
    for (uint32_t dim : dims)
      program.slots.push_back({SlotKind::Stride, find(name, {}), dim});
  };
  auto extent = [&](const char *name, uint32_t dim) {
    program.slots.push_back({SlotKind::Extent, find(name, {}), dim});
  };
  auto plan = [&](BufferRole role) {
    program.slots.push_back({SlotKind::Pointer, find("", role), 0});
  };
  using R = BufferRole;
  bool ragged = s.kvForm == KvForm::Ragged;
  pointer("q"), strides("q", {0, 1});
  for (const char *name : {"k", "v"}) {
    pointer(name);
    if (ragged)
      strides("none", {0}), strides(name, {0, 1}); // an absent array has stride 0
    else
      strides(name, {0, 1, 2});
  }
  pointer("o"), strides("o", {0, 1});
  pointer("lse"), strides("lse", {0});
  extent("q", 1), extent("k", ragged ? 1 : 2);
  extent("q", 2), extent("o", 2);
  pointer("table"), extent("k", 1);
  for (R role : {R::ItemOffsets, R::Items, R::Rows, R::Sequences, R::Scalars, R::PartialOut,
                 R::PartialLse, R::MergeOffsets, R::Merges})
    plan(role);
  pointer("slots");
  pointer("new_k"), strides("new_k", {0, 1});
  pointer("new_v"), strides("new_v", {0, 1});
  plan(R::Counters);
}

inline Program makeProgram(const Spec &s) {
  Program program;
  program.name = "scalar_attention";
  AttentionFacts &facts = program.facts;
  facts.queryHeads = s.queryHeads;
  facts.kvHeads = s.kvHeads;
  facts.dQk = s.dQk;
  facts.dV = s.dV;
  facts.queryForm = QueryForm::Ragged;
  facts.kvForm = s.kvForm;
  facts.tableForm = s.tableForm;
  facts.pageSize = s.kvForm == KvForm::Paged ? s.pageSize : 0;
  // Causal and within the window (scalar 1): keys (q - window, q].
  facts.may.intervals = {{.lo = {{BoundOp::QueryLo},
                                 {BoundOp::Scalar, 1},
                                 {BoundOp::Sub},
                                 {BoundOp::Const, 1},
                                 {BoundOp::Add}},
                          .hi = {{BoundOp::QueryHi}, {BoundOp::Const, 1}, {BoundOp::Add}}}};
  program.scalars = {{"scale", ScalarType::F32, 0, 0.25, -1},
                     {"window", ScalarType::I64, 1 << 30, 0, -1}};
  addBuffers(program, s);
  addSlots(program, s);
  if (s.append)
    program.kernels.push_back({"append", KernelKind::Append, 0, 0, 0, 0, 1});
  program.kernels.push_back({"attend", KernelKind::Attend, 0, s.tileRows, s.tileKeys, 256, 1});
  // The same kernel as a second variant, for short sequences.
  program.kernels.push_back({"attend", KernelKind::Attend, 0, 1, s.tileKeys, 256, 0.4});
  program.kernels.push_back({"merge", KernelKind::Merge, 0, 0, 0, 256, 1});
  StatusOr<std::vector<uint8_t>> object = readFile(SCALAR_ATTENTION, 1 << 24);
  EXPECT_TRUE(object) << object.status().toString();
  program.images = {{"x86_64-unknown-linux-gnu", "x86-64", "+sse2", *object}};
  return program;
}

/// Arrays of one batch, owned.
struct Case {
  Case(const Spec &s, std::vector<int32_t> queryLens, std::vector<int32_t> keyLens,
       uint32_t seed = 1)
      : spec(s), queryLens(std::move(queryLens)), keyLens(std::move(keyLens)), random(seed) {
    for (int32_t length : this->queryLens)
      cuQ.push_back(cuQ.back() + length);
    tokens = cuQ.back();
    query = randomArray(tokens * s.queryHeads * s.dQk);
    output.assign(tokens * s.queryHeads * s.dV, 77);
    lse.assign(tokens * s.queryHeads, 77);
    fillKeys();
  }

  std::vector<float> randomArray(int64_t size) {
    std::uniform_real_distribution<float> distribution(-2, 2);
    std::vector<float> values(size);
    for (float &value : values)
      value = distribution(random);
    return values;
  }

  /// Where key `index` of a sequence starts, in tokens of the K and V arrays.
  int64_t keyToken(size_t sequence, int64_t index) const {
    if (spec.kvForm == KvForm::Ragged)
      return cuK[sequence] + index;
    if (spec.kvForm == KvForm::Dense)
      return sequence * columnsOrLength + index;
    int64_t base = spec.tableForm == TableForm::Indptr ? int64_t{indptr[sequence]}
                                                       : int64_t(sequence) * columnsOrLength;
    return int64_t{table[base + index / spec.pageSize]} * spec.pageSize + index % spec.pageSize;
  }

  CallArguments arguments() {
    using E = ElementType;
    int64_t heads = spec.queryHeads, kvHeads = spec.kvHeads;
    int64_t dQk = spec.dQk, dV = spec.dV;
    auto batch = static_cast<int64_t>(keyLens.size());
    CallArguments given;
    auto add = [&](const char *name, auto &values, E type, std::vector<int64_t> shape) {
      given.arrays[name] = ArrayRef::contiguous(values.data(), type, std::move(shape));
    };
    add("q", query, E::F32, {tokens, heads, dQk});
    add("o", output, E::F32, {tokens, heads, dV});
    add("lse", lse, E::F32, {tokens, heads});
    add("cu_q", cuQ, E::I32, {batch + 1});
    if (spec.kvForm == KvForm::Ragged) {
      add("k", key, E::F32, {keyTokens, kvHeads, dQk});
      add("v", value, E::F32, {keyTokens, kvHeads, dV});
      add("cu_k", cuK, E::I32, {batch + 1});
      return given;
    }
    int64_t inner = spec.kvForm == KvForm::Paged ? spec.pageSize : columnsOrLength;
    int64_t outer = inner ? keyTokens / inner : batch;
    add("k", key, E::F32, {outer, inner, kvHeads, dQk});
    add("v", value, E::F32, {outer, inner, kvHeads, dV});
    add("kv_len", keyLens, E::I32, {batch});
    if (spec.kvForm == KvForm::Dense)
      return given;
    if (spec.tableForm == TableForm::Indptr) {
      add("table", table, E::I32, {static_cast<int64_t>(table.size())});
      add("table_indptr", indptr, E::I32, {batch + 1});
    } else {
      add("table", table, E::I32, {batch, columnsOrLength});
    }
    return given;
  }

  /// Pages that the table gives a sequence.
  int64_t pagesOf(size_t sequence) const {
    auto row = table.begin() + int64_t(sequence) * columnsOrLength;
    return std::find(row, row + columnsOrLength, -1) - row;
  }

  /// Compares output and LSE with softmax computed in double.
  void expectRight(double scale = 0.25, int64_t window = 1 << 30) const {
    int64_t group = spec.queryHeads / spec.kvHeads;
    for (size_t s = 0; s < keyLens.size(); ++s)
      for (int64_t q = 0; q < queryLens[s]; ++q)
        for (int64_t h = 0; h < spec.queryHeads; ++h) {
          int64_t position = q + keyLens[s] - queryLens[s];
          int64_t row = (cuQ[s] + q) * spec.queryHeads + h;
          std::vector<double> weights, out(spec.dV);
          std::vector<int64_t> at;
          double sum = 0;
          for (int64_t k = 0; k < keyLens[s]; ++k) {
            if (k > position || k <= position - window)
              continue;
            at.push_back(keyToken(s, k) * spec.kvHeads + h / group);
            double score = 0;
            for (int64_t d = 0; d < spec.dQk; ++d)
              score += double(query[row * spec.dQk + d]) * key[at.back() * spec.dQk + d];
            weights.push_back(std::exp(score * scale));
            sum += weights.back();
          }
          for (int64_t d = 0; d < spec.dV; ++d) {
            double expected = 0;
            for (size_t i = 0; i < at.size(); ++i)
              expected += weights[i] / sum * value[at[i] * spec.dV + d];
            ASSERT_NEAR(output[row * spec.dV + d], expected, 1e-4)
                << "sequence " << s << " query " << q << " head " << h;
          }
          if (at.empty()) {
            ASSERT_EQ(lse[row], -std::numeric_limits<float>::infinity());
          } else {
            ASSERT_NEAR(lse[row], std::log(sum), 1e-4);
          }
        }
  }

  Spec spec;
  std::vector<int32_t> queryLens, keyLens, cuQ = {0}, cuK = {0}, table, indptr = {0};
  int64_t tokens = 0, keyTokens = 0;
  int64_t columnsOrLength = 0; ///< of the block table, or keys of a dense sequence
  std::vector<float> query, key, value, output, lse;
  std::mt19937 random;

private:
  void fillKeys() {
    int64_t longest = 0;
    for (int32_t length : keyLens) {
      longest = std::max<int64_t>(longest, length);
      cuK.push_back(cuK.back() + length);
    }
    auto batch = static_cast<int64_t>(keyLens.size());
    if (spec.kvForm == KvForm::Ragged) {
      keyTokens = cuK.back();
    } else if (spec.kvForm == KvForm::Dense) {
      columnsOrLength = longest + 3;
      keyTokens = batch * columnsOrLength;
    } else {
      fillTable(batch, longest);
    }
    key = randomArray(keyTokens * spec.kvHeads * spec.dQk);
    value = randomArray(keyTokens * spec.kvHeads * spec.dV);
  }

  /// Pages in shuffled order; what no sequence uses is -1.
  void fillTable(int64_t batch, int64_t longest) {
    auto pagesOf = [&](int64_t length) { return (length + spec.pageSize - 1) / spec.pageSize; };
    columnsOrLength = pagesOf(longest) + 1;
    std::vector<int32_t> pages(batch * columnsOrLength + 3);
    for (size_t i = 0; i < pages.size(); ++i)
      pages[i] = static_cast<int32_t>(i);
    std::shuffle(pages.begin(), pages.end(), random);
    bool flat = spec.tableForm == TableForm::Indptr;
    for (int64_t s = 0; s < batch; ++s) {
      int64_t used = pagesOf(keyLens[s]);
      for (int64_t c = 0; c < (flat ? used : columnsOrLength); ++c)
        table.push_back(c < used ? pages[s * columnsOrLength + c] : -1);
      indptr.push_back(static_cast<int32_t>(table.size()));
    }
    keyTokens = static_cast<int64_t>(pages.size()) * spec.pageSize;
  }
};

/// A CPU device with so many threads.
inline std::shared_ptr<CpuDevice> cpuDevice(uint32_t threads = 2) {
  StatusOr<std::shared_ptr<CpuDevice>> device = CpuDevice::create(threads);
  EXPECT_TRUE(device) << device.status().toString();
  if (!device)
    std::abort();
  return *device;
}

inline std::shared_ptr<DeviceProgram> loadOrDie(Program program,
                                                std::shared_ptr<Device> device = cpuDevice()) {
  StatusOr<std::shared_ptr<DeviceProgram>> loaded = device->load(std::move(program));
  EXPECT_TRUE(loaded) << loaded.status().toString();
  if (!loaded)
    std::abort();
  return *loaded;
}

/// Runs on a stream of its own.
inline Status runCall(BoundCall &call, Device &device) {
  StatusOr<std::unique_ptr<Stream>> stream = device.createStream();
  if (!stream)
    return stream.status();
  Status status = call.run(**stream);
  return status.ok() ? (*stream)->synchronize() : status;
}

/// Binds, runs and returns the plan.
inline Plan runOrDie(const std::shared_ptr<DeviceProgram> &program, const CallArguments &arguments,
                     const BindOptions &options = {}) {
  StatusOr<BoundCall> call = BoundCall::bind(program, arguments, options);
  EXPECT_TRUE(call) << call.status().toString();
  if (!call)
    return {};
  Status status = runCall(*call, *program->device());
  EXPECT_TRUE(status.ok()) << status.toString();
  return call->plan();
}

} // namespace calltest

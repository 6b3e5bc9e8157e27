// Tile programs that are not attention, from NVRTC's PTX in the simulator; and that the
// printer prints the program: a change of one operation changes its text alone.
#include "codegen/cuda/Emit.h"
#include "codegen/cuda/nvrtc/Nvrtc.h"
#include "dialect/tile/TileDialect.h"
#include "runtime/base/Half.h"
#include "runtime/device/sim/Simulator.h"
#include "tests/support/Compiler.h"
#include "tests/support/TilePrograms.h"
#include "tests/unit/cuda/Support.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Parser/Parser.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <sstream>

using namespace llmopt;
using namespace llmopt::test;

namespace {

cuda::KernelText textOf(const std::string &program, cuda::BlockShape shape = {}) {
  auto module = mlir::parseSourceString<mlir::ModuleOp>(program, &testContext());
  if (!module || failed(cuda::lowerToGpu(*module, shape)))
    throw std::runtime_error("the program does not lower");
  auto text = cuda::emitKernel(*module->getOps<mlir::func::FuncOp>().begin(), "");
  if (failed(text))
    throw std::runtime_error("the program does not print");
  return *text;
}

/// One launch: slots in the order of the arguments.
class Launch {
public:
  explicit Launch(const cuda::KernelText &text) : text(text), params(64) {}

  template <typename T> Launch &array(std::vector<T> &data, const char *name) {
    auto added = memory.add(data.data(), data.size() * sizeof(T), name, sim::Access::ReadWrite);
    EXPECT_TRUE(added.ok()) << added.message();
    return slot(reinterpret_cast<uint64_t>(data.data()));
  }
  Launch &slot(uint64_t value) {
    params.resize(params.size() + 8);
    std::memcpy(params.data() + params.size() - 8, &value, 8);
    return *this;
  }
  void run(uint32_t workers = 1) {
    auto nvrtc = cuda::Nvrtc::load();
    ASSERT_TRUE(nvrtc);
    auto compiled = (*nvrtc)->compile({.text = text.text, .name = "tile.cu", .arch = "sm_80"});
    ASSERT_TRUE(compiled) << compiled.status().message();
    auto module = sim::loadPtx(compiled->ptx, "tile.ptx");
    ASSERT_TRUE(module) << module.status().message();
    sim::Launch launch;
    launch.kernel = text.entry;
    launch.grid = {workers, 1, 1};
    launch.block = {uint32_t(text.threads), 1, 1};
    launch.dynamicShared = text.sharedBytes;
    launch.params = params;
    auto counters = sim::run(**module, memory, launch, {.threads = 1});
    ASSERT_TRUE(counters) << counters.status().message();
  }

private:
  const cuda::KernelText &text;
  sim::GlobalMemory memory;
  std::vector<std::byte> params;
};

class CudaTile : public testing::Test {
protected:
  void SetUp() override {
    if (std::string problem = test::cudaProblem(); !problem.empty())
      GTEST_SKIP() << problem;
  }
};

TEST_F(CudaTile, row_softmax_over_strided_rows) {
  for (auto [rows, columns] : {std::pair<int64_t, int64_t>{7, 75}, {1, 1}, {65, 16}, {3, 300}}) {
    SCOPED_TRACE(testing::Message() << rows << "x" << columns);
    cuda::KernelText text = textOf(rowSoftmax(rows, columns));
    int64_t stride = columns + 3, used = rows > 1 ? rows - 1 : 1;
    std::vector<float> x((rows + 1) * stride, std::nanf("")), y(x.size(), 777.0f);
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (int64_t r = 0; r < used; ++r)
      for (int64_t c = 0; c < columns; ++c)
        x[r * stride + c] = normal(random);
    Launch(text).array(x, "x").array(y, "y").slot(stride).slot(used).run();
    for (int64_t r = 0; r < used; ++r) {
      double total = 0;
      for (int64_t c = 0; c < columns; ++c)
        total += std::exp(double(x[r * stride + c]));
      for (int64_t c = 0; c < columns; ++c)
        ASSERT_NEAR(y[r * stride + c], std::exp(double(x[r * stride + c])) / total, 4e-7);
      ASSERT_EQ(y[r * stride + columns], 777.0f);
    }
    ASSERT_EQ(y[used * stride], 777.0f);
  }
}

float valueOf(float x) { return x; }
float valueOf(uint16_t x) {
  uint32_t bits = uint32_t(x) << 16; // bf16
  float y;
  std::memcpy(&y, &bits, 4);
  return y;
}
template <typename T> T storedAs(float x);
template <> float storedAs<float>(float x) { return x; }
template <> uint16_t storedAs<uint16_t>(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits >> 16;
}

template <typename T> void checkMatmul(int64_t m, int64_t n, int64_t k, MatmulLoad load) {
  SCOPED_TRACE(testing::Message() << m << "x" << n << "x" << k << " load " << int(load));
  cuda::KernelText text = textOf(matmul(m, n, k, sizeof(T) == 4 ? "f32" : "bf16", load));
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<T> x(m * k), w(k * n);
  std::vector<float> bias(n), y(m * n, 777.0f);
  for (T &v : x)
    v = storedAs<T>(normal(random));
  for (T &v : w)
    v = storedAs<T>(normal(random));
  for (float &v : bias)
    v = normal(random);
  int64_t limit = n > 1 ? n - 1 : n;
  Launch(text).array(x, "x").array(w, "w").array(bias, "bias").array(y, "y").slot(limit).run();
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      if (j >= limit) {
        ASSERT_EQ(y[i * n + j], 777.0f);
        continue;
      }
      double want = 0.5 + bias[j], scale = 1;
      for (int64_t d = 0; d < k; ++d) {
        double a = valueOf(x[i * k + d]),
               b = valueOf(load == MatmulLoad::Plain ? w[d * n + j] : w[j * k + d]);
        want += a * b, scale += std::abs(a * b);
      }
      // f32 sums of exact products.
      ASSERT_NEAR(y[i * n + j], std::max(want, 0.0), scale * std::ldexp(1.0, -22)) << i << "," << j;
    }
}

TEST_F(CudaTile, matmul_with_bias_of_odd_sizes) {
  for (MatmulLoad load : kMatmulLoads) {
    checkMatmul<float>(5, 7, 9, load);
    checkMatmul<float>(48, 33, 65, load);
    checkMatmul<float>(1, 1, 1, load);
    checkMatmul<uint16_t>(16, 24, 17, load);
    checkMatmul<uint16_t>(64, 40, 48, load);
    checkMatmul<uint16_t>(13, 20, 30, load);
  }
}

/// The program of a lit test: y = x times the sum of tiles of w.
std::string pipelineProgram() {
  std::ifstream file(LLMOPT_SOURCE_DIR "/tests/lit/cuda/pipeline.mlir");
  return {std::istreambuf_iterator<char>(file), {}};
}

// The simulator faults a read of what a copy under way writes.
TEST_F(CudaTile, a_loop_waits_for_its_tile_however_many_are_under_way) {
  constexpr int64_t kM = 64, kK = 32, kN = 64, kTiles = 6;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> x(kM * kK), w((kTiles + kK) * kN);
  for (std::vector<uint16_t> *array : {&x, &w})
    for (uint16_t &v : *array)
      v = storedAs<uint16_t>(normal(random));
  for (int64_t stages : {2, 3, 4}) {
    cuda::KernelText text = textOf(pipelineProgram(), {.stages = stages});
    for (int64_t tiles : {1, 6}) {
      SCOPED_TRACE(testing::Message() << stages << " stages, " << tiles << " tiles");
      std::vector<float> y(kM * kN, 777.0f);
      Launch(text).array(x, "x").array(w, "w").array(y, "y").slot(0).slot(tiles).run();
      for (int64_t i = 0; i < kM; ++i)
        for (int64_t j = 0; j < kN; ++j) {
          double want = 0, scale = 1;
          for (int64_t d = 0; d < tiles * kK; ++d) { // tile t begins at row t of w
            double a = valueOf(x[i * kK + d % kK]), b = valueOf(w[(d / kK + d % kK) * kN + j]);
            want += a * b, scale += std::abs(a * b);
          }
          ASSERT_NEAR(y[i * kN + j], want, scale * std::ldexp(1.0, -20)) << i << "," << j;
        }
    }
  }
}

std::vector<std::string> linesOf(const std::string &text) {
  std::vector<std::string> lines;
  std::stringstream in(text);
  for (std::string line; std::getline(in, line);)
    lines.push_back(line);
  return lines;
}

TEST(CudaText, a_changed_operation_changes_its_own_line_alone) {
  std::string program = rowSoftmax(8, 64), changed = program;
  changed.replace(changed.find("arith.subf"), 10, "arith.addf");
  std::vector<std::string> before = linesOf(textOf(program).text),
                           after = linesOf(textOf(changed).text);
  ASSERT_EQ(before.size(), after.size());
  int different = 0;
  for (size_t i = 0; i < before.size(); ++i)
    if (before[i] != after[i]) {
      ++different;
      EXPECT_NE(before[i].find(" - "), std::string::npos) << before[i];
      EXPECT_NE(after[i].find(" + "), std::string::npos) << after[i];
    }
  EXPECT_EQ(different, 1);
}

TEST(CudaText, only_used_device_functions_are_there_and_nothing_is_included) {
  std::string text = textOf(rowSoftmax(8, 64)).text;
  EXPECT_EQ(text.find("#include"), std::string::npos);
  EXPECT_EQ(text.find("mma.sync"), std::string::npos);
  EXPECT_EQ(text.find("cp.async"), std::string::npos);
  EXPECT_NE(text.find("over_lanes"), std::string::npos);
}

TEST(CudaText, every_line_knows_its_operation) {
  cuda::KernelText text = textOf(rowSoftmax(8, 64));
  std::vector<std::string> lines = linesOf(text.text);
  ASSERT_EQ(lines.size(), text.places.size());
  for (size_t i = 0; i < lines.size(); ++i)
    if (lines[i].find("expf(") != std::string::npos) {
      auto place = llvm::dyn_cast<mlir::FileLineColLoc>(text.placeOf(i + 1));
      ASSERT_TRUE(place);
      EXPECT_GE(place.getLine(), 8u); // the lines of the tile.map that holds math.exp
      EXPECT_LE(place.getLine(), 13u);
    }
}

} // namespace

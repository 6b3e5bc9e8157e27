// Tile programs that are not attention, from NVRTC's PTX in the simulator; and that the
// printer prints the program: a change of one operation changes its text alone.
#include "codegen/cuda/Emit.h"
#include "codegen/cuda/nvrtc/Nvrtc.h"
#include "dialect/tile/TileDialect.h"
#include "runtime/base/Half.h"
#include "runtime/device/sim/Simulator.h"
#include "tests/unit/cuda/Support.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Parser/Parser.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <sstream>

using namespace llmopt;

namespace {

mlir::MLIRContext &context() {
  static mlir::MLIRContext context = [] {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    return mlir::MLIRContext(registry, mlir::MLIRContext::Threading::DISABLED);
  }();
  return context;
}

cuda::KernelText textOf(const std::string &program, cuda::BlockShape shape = {}) {
  auto module = mlir::parseSourceString<mlir::ModuleOp>(program, &context());
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

std::string with(std::string text,
                 std::initializer_list<std::pair<const char *, std::string>> names) {
  for (auto &[name, value] : names)
    for (size_t at; (at = text.find(name)) != std::string::npos;)
      text.replace(at, std::strlen(name), value);
  return text;
}

class CudaTile : public testing::Test {
protected:
  void SetUp() override {
    if (std::string problem = test::cudaProblem(); !problem.empty())
      GTEST_SKIP() << problem;
  }
};

const char *kSoftmax = R"(
func.func @softmax(%x: memref<?xf32>, %y: memref<?xf32>, %stride: index, %n: index,
                   %worker: index {tile.worker}) attributes {tile.kernel} {
  %off = arith.muli %worker, %stride : index
  %rows = tile.strided_rows %off, %stride, %n : tensor<ROWSx1xi64>
  %t = tile.load %x[%rows] : memref<?xf32>, tensor<ROWSx1xi64> -> tensor<ROWSxCOLSxf32>
  %mx = tile.reduce max %t : tensor<ROWSxCOLSxf32> -> tensor<ROWSx1xf32>
  %e = tile.map(%t, %mx : tensor<ROWSxCOLSxf32>, tensor<ROWSx1xf32>) {
  ^bb0(%a: f32, %m: f32, %r: i32, %c: i32):
    %d = arith.subf %a, %m : f32
    %p = math.exp %d : f32
    tile.yield %p : f32
  } -> tensor<ROWSxCOLSxf32>
  %l = tile.reduce sum %e : tensor<ROWSxCOLSxf32> -> tensor<ROWSx1xf32>
  %o = tile.map(%e, %l : tensor<ROWSxCOLSxf32>, tensor<ROWSx1xf32>) {
  ^bb0(%a: f32, %m: f32, %r: i32, %c: i32):
    %d = arith.divf %a, %m : f32
    tile.yield %d : f32
  } -> tensor<ROWSxCOLSxf32>
  tile.store %o, %y[%rows] : tensor<ROWSxCOLSxf32>, memref<?xf32>, tensor<ROWSx1xi64>
  return
})";

std::string softmax(int64_t rows, int64_t columns) {
  return with(kSoftmax, {{"ROWS", std::to_string(rows)}, {"COLS", std::to_string(columns)}});
}

TEST_F(CudaTile, row_softmax_over_strided_rows) {
  for (auto [rows, columns] : {std::pair<int64_t, int64_t>{7, 75}, {1, 1}, {65, 16}, {3, 300}}) {
    SCOPED_TRACE(testing::Message() << rows << "x" << columns);
    cuda::KernelText text = textOf(softmax(rows, columns));
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

/// Y = relu(X * W + bias), with a limit on columns.
const char *kMatmul = R"(
func.func @matmul(%x: memref<?xTYPE>, %w: memref<?xTYPE>, %bias: memref<?xf32>, %y: memref<?xf32>,
                  %limit: index) attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = arith.constant ROWS : index
  %k = arith.constant DEPTH : index
  %n = arith.constant COLS : index
  %xr = tile.strided_rows %c0, %k, %m : tensor<ROWSx1xi64>
  %yr = tile.strided_rows %c0, %n, %m : tensor<ROWSx1xi64>
  %br = tile.strided_rows %c0, %c0, %c1 : tensor<1x1xi64>
  %a = tile.load %x[%xr] : memref<?xTYPE>, tensor<ROWSx1xi64> -> tensor<ROWSxDEPTHxTYPE>
  LOADB
  %bt = tile.load %bias[%br] limit(%limit) : memref<?xf32>, tensor<1x1xi64> -> tensor<1xCOLSxf32>
  %z = arith.constant dense<0.5> : tensor<ROWSxCOLSxf32>
  %p = tile.mma %a, %b, %z MMA
  %o = tile.map(%p, %bt : tensor<ROWSxCOLSxf32>, tensor<1xCOLSxf32>) {
  ^bb0(%u: f32, %v: f32, %r: i32, %c: i32):
    %s = arith.addf %u, %v : f32
    %zero = arith.constant 0.0 : f32
    %q = arith.maximumf %s, %zero : f32
    tile.yield %q : f32
  } -> tensor<ROWSxCOLSxf32>
  tile.store %o, %y[%yr] limit(%limit) : tensor<ROWSxCOLSxf32>, memref<?xf32>, tensor<ROWSx1xi64>
  return
})";

/// B as K x N, as N x K, and as K x N read across its transpose (column stride).
const char *kLoads[] = {
    R"(%wr = tile.strided_rows %c0, %n, %k : tensor<DEPTHx1xi64>
  %b = tile.load %w[%wr] : memref<?xTYPE>, tensor<DEPTHx1xi64> -> tensor<DEPTHxCOLSxTYPE>)",
    R"(%wr = tile.strided_rows %c0, %k, %n : tensor<COLSx1xi64>
  %b = tile.load %w[%wr] : memref<?xTYPE>, tensor<COLSx1xi64> -> tensor<COLSxDEPTHxTYPE>)",
    R"(%wr = tile.strided_rows %c0, %c1, %k : tensor<DEPTHx1xi64>
  %b = tile.load %w[%wr] cols(%c0) stride(%k) limit(%n) : memref<?xTYPE>, tensor<DEPTHx1xi64> -> tensor<DEPTHxCOLSxTYPE>)"};

std::string matmul(int64_t m, int64_t n, int64_t k, const char *type, int load) {
  std::string product =
      load == 1 ? "transpose_b : tensor<ROWSxDEPTHxTYPE>, tensor<COLSxDEPTHxTYPE>, "
                  "tensor<ROWSxCOLSxf32>"
                : ": tensor<ROWSxDEPTHxTYPE>, tensor<DEPTHxCOLSxTYPE>, tensor<ROWSxCOLSxf32>";
  return with(kMatmul, {{"LOADB", kLoads[load]},
                        {"MMA", product},
                        {"TYPE", type},
                        {"ROWS", std::to_string(m)},
                        {"DEPTH", std::to_string(k)},
                        {"COLS", std::to_string(n)}});
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

template <typename T> void checkMatmul(int64_t m, int64_t n, int64_t k, int load) {
  SCOPED_TRACE(testing::Message() << m << "x" << n << "x" << k << " load " << load);
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
        double a = valueOf(x[i * k + d]), b = valueOf(load == 0 ? w[d * n + j] : w[j * k + d]);
        want += a * b, scale += std::abs(a * b);
      }
      // f32 sums of exact products.
      ASSERT_NEAR(y[i * n + j], std::max(want, 0.0), scale * std::ldexp(1.0, -22)) << i << "," << j;
    }
}

TEST_F(CudaTile, matmul_with_bias_of_odd_sizes) {
  for (int load : {0, 1, 2}) {
    checkMatmul<float>(5, 7, 9, load);
    checkMatmul<float>(48, 33, 65, load);
    checkMatmul<float>(1, 1, 1, load);
    checkMatmul<uint16_t>(16, 24, 17, load);
    checkMatmul<uint16_t>(64, 40, 48, load);
    checkMatmul<uint16_t>(13, 20, 30, load);
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
  std::string program = softmax(8, 64), changed = program;
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
  std::string text = textOf(softmax(8, 64)).text;
  EXPECT_EQ(text.find("#include"), std::string::npos);
  EXPECT_EQ(text.find("mma.sync"), std::string::npos);
  EXPECT_EQ(text.find("cp.async"), std::string::npos);
  EXPECT_NE(text.find("over_lanes"), std::string::npos);
}

TEST(CudaText, every_line_knows_its_operation) {
  cuda::KernelText text = textOf(softmax(8, 64));
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

// What kernels may cost, held by the simulator's counters: traffic, bank conflicts, and
// work for tiles that need none. Figures of speed are not measured here.
#include "codegen/compile/Compile.h"
#include "codegen/compile/ProgramFacts.h"
#include "codegen/cuda/nvrtc/Nvrtc.h"
#include "passes/Passes.h"
#include "runtime/device/sim/SimDevice.h"
#include "tests/support/Compiler.h"
#include "tools/llm-opt/Prepare.h"
#include "tools/llm-opt/Tables.h"
#include "tools/llm-opt/Traffic.h"
#include "tools/llm-opt/Work.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

using namespace llmopt;
using namespace llmopt::test;

namespace {

class SimGates : public testing::Test {
protected:
  void SetUp() override {
    if (auto nvrtc = cuda::Nvrtc::load(); !nvrtc)
      GTEST_SKIP() << nvrtc.status().message();
  }
};

harness::Shape shapeOf(std::vector<int64_t> queries, std::vector<int64_t> keys) {
  harness::Shape shape;
  shape.queryLengths = std::move(queries);
  shape.keyLengths = std::move(keys);
  return shape;
}

struct Measured {
  sim::Counters counters; ///< of all kernels
  cli::Work work;
  cli::Prediction prediction;

  double keyBytes = 0; ///< loaded from K and V
  /// Loaded from K, V, Q, as lanes asked for it, and from tables and plan, each sector once, as
  /// caches let it pass; and the least of that.
  double reads = 0, leastReads = 0;
  /// Partials that were read to be merged, and those that the plan has.
  double partials = 0, plannedPartials = 0;
  std::map<std::string, cli::TableTraffic> tables;
  std::map<std::string, double> leastTables;
  double conflicts = 0; ///< wavefronts over their ideal, of ldmatrix and cp.async
};

/// A spec compiled once and measured on several shapes.
class Kernel {
public:
  explicit Kernel(const std::string &text)
      : module(mlir::parseSourceString<mlir::ModuleOp>(text, &testContext())),
        device(runtime::SimDevice::create(*runtime::CudaArch::parse("sm_80"))) {
    spec = valueOf(harness::findSpec(*module));
    runner = valueOf(cli::Runner::compile(function(), {.device = device, .cache = nullptr}));
    device->startProfiling();
  }

  Measured measure(const harness::Shape &shape) {
    device->takeCounters();
    device->takeProfiles();
    cli::PreparedCall ready = valueOf(cli::prepareCall(spec, shape));
    cli::RunFigures figures;
    if (llvm::Error error = runner->run(ready.call, &figures)) {
      ADD_FAILURE() << llvm::toString(std::move(error));
      return {};
    }
    Measured measured;
    for (auto &[entry, counters] : device->takeCounters())
      measured.counters += counters;
    cli::Profiles profiles = device->takeProfiles();
    cli::Traffic traffic = cli::trafficOf(runner->program(), profiles);
    measured.keyBytes = traffic.keys;
    measured.conflicts = cli::matrixConflicts(profiles);
    measured.work = cli::workOf(runner->program(), ready.shape, ready.call);
    measured.prediction = cli::predict(runner->program(), figures.plan, ready.call);
    measured.tables = traffic.tables;
    measured.leastTables =
        cli::leastOfTables(runner->program(), figures.plan, ready.shape, ready.call);
    measured.reads = traffic.keys + traffic.queryLoads + traffic.uniqueTables();
    const harness::HostArray &q = *ready.call.find("q");
    measured.leastReads =
        measured.work.keyBytes + double(q.elements()) * double(reference::sizeOf(q.type));
    for (const auto &[name, table] : measured.tables)
      measured.leastReads += cli::leastOf(measured.leastTables, name).value_or(0);
    measured.partials = traffic.uniquePartials;
    measured.plannedPartials =
        double(figures.plan.partialRows) * (runner->program().facts.dV + 1) * sizeof(float);
    return measured;
  }

private:
  mlir::func::FuncOp function() { return llvm::cast<mlir::func::FuncOp>(spec.function); }

  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::shared_ptr<runtime::SimDevice> device;
  harness::Spec spec;
  std::unique_ptr<cli::Runner> runner;
};

/// One query for each sequence over pages of 16 keys.
std::string decodeSpec(const std::string &mask, int d = 128) {
  return fmt::format(R"(
func.func @decode(%q: tensor<?x8x{0}xbf16>, %kv: !attn.kv_cache<2x{0}xbf16, page = 16>,
                  %seq: !attn.sequences) -> tensor<?x8x{0}xbf16> {{
  %o = attn.attention %q, %kv, %seq mask({1})
       : tensor<?x8x{0}xbf16>, !attn.kv_cache<2x{0}xbf16, page = 16>, !attn.sequences
         -> tensor<?x8x{0}xbf16>
  return %o : tensor<?x8x{0}xbf16>
}})",
                     d, mask);
}

std::string prefillSpec(const std::string &mask, int d = 128) {
  return fmt::format(R"(
func.func @prefill(%q: tensor<?x?x4x{0}xbf16>, %k: tensor<?x?x2x{0}xbf16>,
                   %v: tensor<?x?x2x{0}xbf16>) -> tensor<?x?x4x{0}xbf16> {{
  %o = attn.attention %q, %k, %v {1}
       : tensor<?x?x4x{0}xbf16>, tensor<?x?x2x{0}xbf16>, tensor<?x?x2x{0}xbf16>
         -> tensor<?x?x4x{0}xbf16>
  return %o : tensor<?x?x4x{0}xbf16>
}})",
                     d, mask);
}

TEST_F(SimGates, decode_reads_each_visible_key_once) {
  for (const char *mask : {"causal", "causal and window<100>", "causal and window<512>"}) {
    Kernel kernel(decodeSpec(mask));
    for (int64_t keys : {1, 17, 4095}) {
      SCOPED_TRACE(testing::Message() << mask << ", " << keys << " keys");
      Measured measured = kernel.measure(shapeOf({1, 1, 1}, {keys, keys, keys}));
      EXPECT_GE(measured.keyBytes, measured.work.keyBytes);
      EXPECT_LE(measured.keyBytes, 1.02 * measured.work.keyBytes);
      EXPECT_LE(measured.reads, 1.02 * measured.leastReads);
      EXPECT_NEAR(measured.partials, measured.plannedPartials, 32); // the end of a sector
      // Of a table no sector that holds nothing to read; the first tile of a window may begin
      // with pages that are not visible, and has their entries read. A kernel that gets no item may
      // read the run-time numbers all the same.
      ASSERT_TRUE(measured.tables.contains("block_table"));
      for (const auto &[name, table] : measured.tables) {
        double more = name == "block_table" ? 3 * 32 : name == "plan.scalars" ? 32 : 0;
        double least = cli::leastOf(measured.leastTables, name).value_or(0);
        EXPECT_LE(table.unique, least + more) << name;
        if (name != "plan.sequences") // of a record a kernel may need one of two sectors
          EXPECT_GE(table.unique, least) << name;
      }
    }
  }
}

// Numbers with a value for each head are read from their array: what they stand for otherwise is
// not among the least. One kernel of the two has work here, and few workers.
TEST_F(SimGates, least_of_run_time_numbers_is_what_kernels_need) {
  for (const char *scale : {"", "scale(arg0) args(%s : tensor<4xf32>)"}) {
    Kernel kernel(fmt::format(R"(
func.func @f(%q: tensor<?x?x4x64xbf16>, %k: tensor<?x?x2x64xbf16>, %v: tensor<?x?x2x64xbf16>,
             %s: tensor<4xf32>) -> tensor<?x?x4x64xbf16> {{
  %o = attn.attention %q, %k, %v mask(causal) {}
       : tensor<?x?x4x64xbf16>, tensor<?x?x2x64xbf16>, tensor<?x?x2x64xbf16>
         -> tensor<?x?x4x64xbf16>
  return %o : tensor<?x?x4x64xbf16>
}})",
                              scale));
    Measured measured = kernel.measure(shapeOf({3, 3}, {40, 40}));
    EXPECT_EQ(measured.leastTables["plan.scalars"], *scale ? 0 : 32) << scale;
    for (const auto &[name, table] : measured.tables)
      if (name.find("plan.scalars") != std::string::npos ||
          name.find("plan.counters") != std::string::npos) {
        EXPECT_EQ(table.unique, cli::leastOf(measured.leastTables, name)) << name << " " << scale;
      }
  }
}

TEST_F(SimGates, prefill_reads_what_is_predicted) {
  for (const char *mask : {"", "mask(causal)", "mask(causal and window<100>)"}) {
    Kernel kernel(prefillSpec(mask));
    for (auto [queries, keys] : {std::pair<int64_t, int64_t>{256, 256}, {100, 333}, {64, 512}}) {
      SCOPED_TRACE(testing::Message()
                   << mask << ", " << queries << " queries, " << keys << " keys");
      Measured measured = kernel.measure(shapeOf({queries}, {keys}));
      EXPECT_EQ(measured.keyBytes, measured.prediction.keyBytes);
    }
  }
}

TEST_F(SimGates, matrices_are_loaded_and_copied_without_bank_conflicts) {
  for (int d : {64, 128, 192, 256, 40, 72, 80, 96, 112, 200}) {
    SCOPED_TRACE(testing::Message() << "d " << d);
    double most = d % 64 == 0 ? 1 : 1.25;
    double prefill =
        Kernel(prefillSpec("mask(causal)", d)).measure(shapeOf({100}, {200})).conflicts;
    double decode = Kernel(decodeSpec("causal", d)).measure(shapeOf({1}, {200})).conflicts;
    for (double conflicts : {prefill, decode}) {
      EXPECT_GE(conflicts, 1);
      EXPECT_LE(conflicts, most);
    }
  }
}

/// Instructions that further keys cost, all of them in full tiles.
sim::Counters costOfFullTiles(const std::string &mask) {
  Kernel kernel(prefillSpec(mask));
  // The last queries of a sequence see all that comes before them.
  sim::Counters few = kernel.measure(shapeOf({64}, {512})).counters;
  sim::Counters many = kernel.measure(shapeOf({64}, {1024})).counters;
  for (size_t i = 0; i < sim::kInstClasses; ++i)
    many.warpByClass[i] -= few.warpByClass[i];
  many.warpInstructions -= few.warpInstructions;
  many.mma -= few.mma;
  return many;
}

TEST_F(SimGates, full_tiles_execute_no_mask) {
  sim::Counters plain = costOfFullTiles("");
  ASSERT_GT(plain.mma, 0u);
  for (const char *mask : {"mask(causal)", "mask(causal and window<4000>)"}) {
    SCOPED_TRACE(mask);
    sim::Counters masked = costOfFullTiles(mask);
    EXPECT_EQ(masked.mma, plain.mma);
    // A mask compares and selects each of 64 x 64 scores; which tiles are full costs a few
    // scalar instructions a tile.
    auto more = [&](sim::InstClass c) {
      return double(masked.warpByClass[size_t(c)]) - double(plain.warpByClass[size_t(c)]);
    };
    double tiles = 8, warps = 4, heads = 4;
    for (sim::InstClass c : {sim::InstClass::Predicate, sim::InstClass::Move})
      EXPECT_LE(more(c), 16 * tiles * warps * heads) << toString(c);
    EXPECT_LE(double(masked.warpInstructions), 1.02 * double(plain.warpInstructions));
  }
}

TEST_F(SimGates, empty_tiles_cost_nothing) {
  // Keys before the window; and behind what the last query sees, in a prompt aligned to the first.
  Kernel decode(decodeSpec("causal and window<128>")),
      prefill(prefillSpec("mask(causal<top_left>)"));
  for (auto [kernel, queries] : {std::pair<Kernel *, int64_t>{&decode, 1}, {&prefill, 100}}) {
    uint64_t first = 0;
    for (int64_t keys : {1024, 2048, 8192}) {
      uint64_t now = kernel->measure(shapeOf({queries}, {keys})).counters.warpInstructions;
      if (first)
        EXPECT_EQ(now, first) << queries << " queries, " << keys << " keys";
      first = now;
    }
  }
}

} // namespace

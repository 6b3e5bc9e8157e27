// What kernels may cost, held by the simulator's counters: traffic, bank conflicts, and
// work for tiles that need none. Figures of speed are not measured here.
#include "codegen/compile/ProgramFacts.h"
#include "passes/Passes.h"
#include "runtime/device/sim/SimDevice.h"
#include "tests/unit/cuda/Support.h"
#include "tools/llm-opt/Prepare.h"
#include "tools/llm-opt/Work.h"

#include "mlir/Parser/Parser.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

using namespace llmopt;
using namespace llmopt::test;

namespace {

class CudaGates : public testing::Test {
protected:
  void SetUp() override {
    if (std::string problem = cudaProblem(); !problem.empty())
      GTEST_SKIP() << problem;
  }
};

struct Measured {
  sim::Profile profile; ///< of all kernels
  sim::Counters counters;
  cli::Work work;
  cli::Prediction prediction;

  double bytesOf(std::initializer_list<const char *> names) const {
    double bytes = 0;
    for (const sim::BufferProfile &buffer : profile.buffers)
      for (const char *name : names)
        if (buffer.name == name)
          bytes += double(buffer.loadBytes);
    return bytes;
  }
};

/// A spec compiled once and measured on several shapes.
class Kernel {
public:
  explicit Kernel(const std::string &text) : compiled(text) {}

  Measured measure(const harness::Shape &shape) {
    auto &device = compiled.device();
    device.startProfiling();
    device.takeCounters();
    llvm::Expected<cli::PreparedCall> ready = cli::prepareCall(compiled.spec, shape);
    EXPECT_TRUE(bool(ready));
    cli::RunFigures figures;
    if (llvm::Error error = compiled.run(ready->call, &figures)) {
      ADD_FAILURE() << llvm::toString(std::move(error));
      return {};
    }
    Measured measured;
    for (auto &[entry, counters] : device.takeCounters())
      measured.counters += counters;
    for (auto &[entry, profile] : device.takeProfiles()) {
      // Instructions of different kernels stand one after another.
      auto &all = measured.profile.instructions;
      all.insert(all.end(), profile.instructions.begin(), profile.instructions.end());
      sim::Profile buffers;
      buffers.buffers = profile.buffers;
      measured.profile += buffers;
    }
    auto signature = Signature::of(llvm::cast<mlir::func::FuncOp>(compiled.spec.function));
    measured.work = cli::workOf(compiled.program, ready->shape, ready->call);
    measured.prediction =
        cli::predict(compiled.program, surelyOf(*signature), figures.plan, ready->call);
    return measured;
  }

  Simulated compiled;
};

std::string decodeSpec(const std::string &mask, int d = 128) {
  return fmt::format(R"(
func.func @decode(%q: tensor<?x1x8x{0}xbf16>,
                  %cache: !attn.kv_cache<paged, page = 16, heads = 2, k = {0}, v = {0}, bf16>)
    -> tensor<?x1x8x{0}xbf16> {{
  %o = attn.attention %q, %cache {1}
       : tensor<?x1x8x{0}xbf16>, !attn.kv_cache<paged, page = 16, heads = 2, k = {0}, v = {0}, bf16>
         -> tensor<?x1x8x{0}xbf16>
  return %o : tensor<?x1x8x{0}xbf16>
}})",
                     d, mask);
}

std::string prefillSpec(const std::string &mask, int d) {
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

} // namespace

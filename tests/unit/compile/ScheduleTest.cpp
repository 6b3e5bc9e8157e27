// What a compile tells about its decisions, and the key that its result is kept under.
#include "Support.h"

#include "codegen/compile/KernelKey.h"
#include "passes/Passes.h"

#include "mlir/IR/Remarks.h"

#include <fmt/format.h>

namespace llmopt::test {
namespace {

std::string specText(int64_t heads, const std::string &clauses = "") {
  return fmt::format("func.func @f(%q: tensor<?x{0}x64xf32>, %k: tensor<?x2x64xf32>,\n"
                     "  %v: tensor<?x2x64xf32>, %s: !attn.sequences) -> tensor<?x{0}x64xf32> {{\n"
                     "%o = attn.attention %q, %k, %v, %s {1} : tensor<?x{0}x64xf32>,\n"
                     "  tensor<?x2x64xf32>, tensor<?x2x64xf32>, !attn.sequences\n"
                     "  -> tensor<?x{0}x64xf32>\nreturn %o : tensor<?x{0}x64xf32>\n}}",
                     heads, clauses);
}

struct Collected {
  std::string category, name, text, file;
};

/// Keeps the remarks of a context.
class Collector : public mlir::remark::detail::MLIRRemarkStreamerBase {
public:
  explicit Collector(std::vector<Collected> &all) : all(all) {}
  void streamOptimizationRemark(const mlir::remark::detail::Remark &remark) override {
    std::string place;
    llvm::raw_string_ostream(place) << remark.getLocation();
    std::string text;
    for (const auto &argument : remark.getArgs())
      text += argument.val;
    all.push_back(
        {remark.getCombinedCategoryName().str(), remark.getRemarkName().str(), text, place});
  }

private:
  std::vector<Collected> &all;
};

/// The remarks of compiling `text` for this machine, and its program.
std::vector<Collected> remarksOf(const std::string &text, bundle::Program &program) {
  std::vector<Collected> remarks;
  Compiled spec(text);
  mlir::MLIRContext *context = spec.spec.function->getContext();
  mlir::remark::RemarkCategories categories;
  categories.analysis = "attn-to-tile";
  auto function = llvm::cast<mlir::func::FuncOp>(spec.spec.function);
  EXPECT_TRUE(succeeded(mlir::remark::enableOptimizationRemarks(
      *context, std::make_unique<Collector>(remarks),
      std::make_unique<mlir::remark::RemarkEmittingPolicyAll>(), categories)));
  llvm::Expected<CompileOptions> options = hostOptions();
  if (!options)
    throw std::runtime_error(llvm::toString(options.takeError()));
  llvm::Expected<bundle::Program> compiled = compileSpec(function, *options);
  if (!compiled)
    throw std::runtime_error(llvm::toString(compiled.takeError()));
  context->setRemarkEngine(nullptr); // other tests share the context
  program = std::move(*compiled);
  return remarks;
}

std::string tilesOf(const bundle::Program &program) {
  std::string rows, keys;
  for (const bundle::Kernel &kernel : program.kernels)
    if (kernel.kind == bundle::KernelKind::Attend) {
      rows += fmt::format("{} ", kernel.tileRows);
      keys = std::to_string(kernel.tileKeys);
    }
  return rows + keys;
}

TEST(Remarks, OfACompileTellTheTilesAndTheNumbersThatDecided) {
  for (int64_t heads : {2, 12}) {
    bundle::Program program;
    std::vector<Collected> remarks = remarksOf(specText(heads), program);
    ASSERT_EQ(remarks.size(), 1u);
    EXPECT_EQ(remarks[0].category, "attn-to-tile");
    EXPECT_EQ(remarks[0].name, "schedule");
    EXPECT_NE(remarks[0].file.find(":3:6"), std::string::npos) << remarks[0].file; // of the op
    // rows FEW (group G) and MANY (B bytes a row in L bytes of L2, register block R), keys K
    int few = 0, group = 0, many = 0, bytes = 0, budget = 0, block = 0, keys = 0;
    ASSERT_EQ(std::sscanf(remarks[0].text.c_str(),
                          "rows %d (group %d) and %d (%d bytes a row in %d bytes of L2, "
                          "register block %d), keys %d",
                          &few, &group, &many, &bytes, &budget, &block, &keys),
              7)
        << remarks[0].text;
    EXPECT_EQ(group, heads / 2);
    EXPECT_EQ(bytes, 4 * (64 + 64 + keys));
    EXPECT_LE(many * bytes, std::max(budget, block * bytes));
    EXPECT_EQ(many % block, 0);
    EXPECT_EQ(tilesOf(program), fmt::format("{} {} {}", few, many, keys));
  }
}

TEST(Remarks, SayWhatTheSpecWishes) {
  bundle::Program program;
  std::vector<Collected> remarks = remarksOf(specText(4, "schedule(rows = 24)"), program);
  ASSERT_EQ(remarks.size(), 1u);
  EXPECT_EQ(remarks[0].text, "rows 24 as the spec wishes");
  EXPECT_EQ(tilesOf(program), "24 64");
}

TEST(KernelKey, NamesTheCompilersOwnVersion) {
  bundle::Program program;
  remarksOf(specText(4, "schedule(rows = 24)"), program);
  llvm::Expected<CompileOptions> options = hostOptions();
  ASSERT_TRUE(bool(options));
  Schedule schedule;
  schedule.rows = {24};
  EXPECT_EQ(compilerVersion().size(), 64u);
  EXPECT_EQ(program.key, kernelKey(program.ir, schedule, *options));
  EXPECT_NE(program.key, kernelKey(program.ir, schedule, *options, "another compiler"));
}

} // namespace
} // namespace llmopt::test

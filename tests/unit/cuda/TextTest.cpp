// What a reader and NVRTC see of an attention kernel's text.
#include "codegen/cuda/nvrtc/Nvrtc.h"
#include "tests/support/Compiler.h"
#include "tests/unit/cuda/Support.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <iterator>
#include <regex>
#include <sstream>

using namespace llmopt;
using namespace llmopt::test;

namespace {

std::string decodeOf(const std::string &type) {
  return fmt::format(
      "func.func @decode(%q: tensor<?x8x64x{0}>, %kv: !attn.kv_cache<2x64x{0}, page = "
      "16>,\n    %seq: !attn.sequences) -> tensor<?x8x64x{0}> {{\n"
      "  %o = attn.attention %q, %kv, %seq mask(causal) : tensor<?x8x64x{0}>,\n"
      "       !attn.kv_cache<2x64x{0}, page = 16>, !attn.sequences -> "
      "tensor<?x8x64x{0}>\n  return %o : tensor<?x8x64x{0}>\n}}\n",
      type);
}

mlir::OwningOpRef<mlir::ModuleOp> parse(const std::string &spec) {
  auto module = mlir::parseSourceString<mlir::ModuleOp>(spec, &testContext());
  if (!module)
    throw std::runtime_error("the spec does not parse");
  return module;
}

CudaBuild textOf(mlir::ModuleOp module) {
  return valueOf(buildCudaText(specsOf(module).front(), valueOf(optionsFor("cuda:sm_80"))));
}

bool holdsWord(const std::string &text, const std::string &word) {
  return std::regex_search(text, std::regex("\\b" + word + "\\b"));
}

TEST(CudaKernelText, holds_no_function_for_elements_of_another_type) {
  for (auto [type, other] : {std::pair{"bf16", "f16"}, {"f16", "bf16"}}) {
    auto module = parse(decodeOf(type));
    for (const cuda::KernelText &text : textOf(*module).texts) {
      EXPECT_TRUE(holdsWord(text.text, type)) << text.entry;
      std::regex word(std::string("\\b") + other + "\\b");
      std::istringstream lines(text.text);
      for (std::string line; std::getline(lines, line);) // assembly names both in one instruction
        EXPECT_FALSE(std::regex_search(line.substr(0, line.find('"')), word)) << line;
    }
  }
}

TEST(CudaKernelText, begins_with_heads_types_and_registers) {
  auto module = parse(decodeOf("bf16"));
  CudaBuild build = textOf(*module);
  for (const cuda::KernelText &text : build.texts) {
    EXPECT_NE(
        text.text.find("// Heads: 8 of queries, 2 of keys and values; 64 elements a query and "
                       "key, 64 a value, Q of bf16, K and V of bf16."),
        std::string::npos)
        << text.entry;
    EXPECT_NE(text.text.find("// Register budget: 255 a thread, so that a multiprocessor holds 2 "
                             "blocks at a time;"),
              std::string::npos)
        << text.entry;
  }
}

TEST(CudaKernelText, numbers_with_a_meaning_have_names) {
  auto module = parse(decodeOf("bf16"));
  for (const cuda::KernelText &text : textOf(*module).texts) {
    EXPECT_EQ(text.text.find("1.442695"), text.text.rfind("1.442695")) << "named once";
    EXPECT_EQ(text.text.find("* 1.442695"), std::string::npos);
    EXPECT_EQ(text.text.find("* 0.693147"), std::string::npos);
    EXPECT_NE(text.text.find("::words"), std::string::npos);
    EXPECT_FALSE(holdsWord(text.text, "t_1")) << text.entry;
    EXPECT_EQ(text.text.find("(0) * 0"), std::string::npos);
  }
}

TEST(CudaKernelText, k_and_v_are_one_group_with_one_wait) {
  auto module = parse(decodeOf("bf16"));
  for (const cuda::KernelText &text : textOf(*module).texts) {
    auto count = [&](const std::string &what) {
      size_t found = 0;
      for (size_t at = text.text.find(what); at != std::string::npos;
           at = text.text.find(what, at + 1))
        ++found;
      return found;
    };
    // Q's, and that of a tile's K and V; the functions themselves are not called with ";".
    EXPECT_EQ(count("  copy_commit();"), text.implied.products ? 2u : 0u) << text.entry;
    EXPECT_EQ(count("  copy_wait<0>();"), text.implied.products ? 2u : 0u) << text.entry;
  }
}

TEST(CudaKernelText, each_unit_of_a_spec_compiles_by_itself) {
  if (std::string problem = cudaProblem(); !problem.empty())
    GTEST_SKIP() << problem;
  auto module = parse(decodeOf("f16"));
  std::string all =
      valueOf(stageText(specsOf(*module).front(), Stage::Cuda, valueOf(optionsFor("cuda:sm_80"))));
  std::vector<std::string> units;
  std::istringstream lines(all);
  std::smatch match;
  std::regex head("// ==== Translation unit (\\d+) of 3: (\\w+)\\.cu ====");
  for (std::string line; std::getline(lines, line);)
    if (std::regex_match(line, match, head)) {
      units.emplace_back();
      EXPECT_EQ(match[1], std::to_string(units.size()));
    } else {
      ASSERT_FALSE(units.empty()) << "text before the first unit: " << line;
      units.back() += line + "\n";
    }
  ASSERT_EQ(units.size(), 3u);
  auto nvrtc = cuda::Nvrtc::load();
  ASSERT_TRUE(nvrtc);
  for (const std::string &unit : units) {
    auto compiled = (*nvrtc)->compile({.text = unit, .name = "unit.cu", .arch = "compute_80"});
    EXPECT_TRUE(compiled) << compiled.status().message();
  }
}

/// Lines 3 to 8 hold the mask's region, 10 to 13 the score's.
const char *kRegions =
    R"(func.func @custom(%q: tensor<?x4x64xbf16>, %k: tensor<?x4x64xbf16>, %v: tensor<?x4x64xbf16>, %seq: !attn.sequences) -> tensor<?x4x64xbf16> {
  %o = attn.attention %q, %k, %v, %seq mask(custom) where {
       ^bb0(%b: index, %h: index, %i: index, %j: index):
         %sum = arith.addi %i, %j : index
         %c3 = arith.constant 3 : index
         %mixed = arith.xori %sum, %c3 : index
         %shows = arith.cmpi sge, %mixed, %c3 : index
         attn.yield %shows : i1
       } score {
       ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
         %t = math.tanh %s : f32
         %r = arith.addf %t, %s : f32
         attn.yield %r : f32
       } : tensor<?x4x64xbf16>, tensor<?x4x64xbf16>, tensor<?x4x64xbf16>, !attn.sequences -> tensor<?x4x64xbf16>
  return %o : tensor<?x4x64xbf16>
})";

TEST(CudaKernelText, a_message_about_a_region_leads_to_the_regions_line) {
  if (std::string problem = cudaProblem(); !problem.empty())
    GTEST_SKIP() << problem;
  struct Broken {
    const char *from, *to;
    unsigned line;
  };
  for (Broken broken :
       {Broken{"= tanhf(", "= no_such_function(", 11}, {" ^ 3", " ^ no_such_number", 6}}) {
    SCOPED_TRACE(broken.from);
    auto module = parse(kRegions);
    std::vector<CudaBuild> builds;
    builds.push_back(textOf(*module));
    builds.back().texts.erase(std::next(builds.back().texts.begin()), builds.back().texts.end());
    builds.back().names.erase(std::next(builds.back().names.begin()), builds.back().names.end());
    std::string &text = builds.back().texts.front().text;
    size_t at = text.find(broken.from);
    ASSERT_NE(at, std::string::npos) << text;
    text.replace(at, std::string(broken.from).size(), broken.to);
    std::vector<unsigned> lines;
    mlir::ScopedDiagnosticHandler handler(&testContext(), [&](mlir::Diagnostic &diagnostic) {
      if (auto place = llvm::dyn_cast<mlir::FileLineColLoc>(diagnostic.getLocation()))
        lines.push_back(place.getLine());
      return mlir::success();
    });
    llvm::Error error = addCudaKernels(builds, valueOf(optionsFor("cuda:sm_80")));
    EXPECT_TRUE(bool(error));
    llvm::consumeError(std::move(error));
    ASSERT_FALSE(lines.empty());
    EXPECT_EQ(lines.front(), broken.line);
  }
}

} // namespace

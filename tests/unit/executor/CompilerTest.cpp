// The compiler behind its C API: the bundles of the C++ API, or where a spec is wrong.
#include "Specs.h"

#include "codegen/compile/llmopt_compiler.h"
#include "runtime/api/llmopt.h"
#include "runtime/bundle/BundleIO.h"

#include <gtest/gtest.h>

namespace llmopt::test {
namespace {

TEST(Compiler, GivesTheBundleOfTheCppApi) {
  std::string text = pagedSpec({}, {});
  void *bundle = nullptr;
  size_t bytes = 0;
  ASSERT_EQ(llmopt_compile(text.c_str(), "cpu", &bundle, &bytes, nullptr), LLMOPT_OK);
  StatusOr<bundle::Program> program = compileText(text);
  ASSERT_TRUE(program.ok()) << program.status().toString();
  const auto *made = static_cast<const uint8_t *>(bundle);
  EXPECT_EQ(std::vector<uint8_t>(made, made + bytes), bundle::serialize(*program));
  llmopt_compiler_free(bundle);
}

TEST(Compiler, SaysWhereASpecIsWrong) {
  void *bundle = nullptr;
  size_t bytes = 0;
  char *message = nullptr;
  EXPECT_EQ(llmopt_compile("func.func @f(%q: tensor<?x4xq32>)", "cpu", &bundle, &bytes, &message),
            LLMOPT_INVALID_ARGUMENT);
  EXPECT_TRUE(std::string(message).starts_with("line 1, column ")) << message;
  llmopt_compiler_free(message);
  EXPECT_EQ(llmopt_compile("", "cpu", &bundle, &bytes, &message), LLMOPT_INVALID_ARGUMENT);
  EXPECT_STREQ(message, "the text has no function with an attn op; write a spec");
  llmopt_compiler_free(message);
  EXPECT_EQ(llmopt_compile(nullptr, "cpu", &bundle, &bytes, nullptr), LLMOPT_INVALID_ARGUMENT);
  EXPECT_EQ(bundle, nullptr);
}

} // namespace
} // namespace llmopt::test

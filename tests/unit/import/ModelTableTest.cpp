// Every configuration of the test data with the facts that the importer must find.
#include "tests/support/TestData.h"
#include "tools/import/Import.h"
#include "tools/import/Text.h"

#include <fstream>
#include <set>
#include <sstream>

using namespace llmopt::importer;

namespace {

struct Expected {
  std::string elementType;
  /// "<name> <layers>: <query heads>/<KV heads> x <head dim>[/<V's>], scale ..."
  std::vector<std::string> kinds;
  std::string refusal; ///< a part of the one line; empty where the file is imported
};

Expected imported(std::string elementType, std::vector<std::string> kinds) {
  return {std::move(elementType), std::move(kinds), ""};
}
Expected refused(std::string feature) { return {"", {}, std::move(feature)}; }

struct Row {
  const char *model;
  Expected expected;
};

// clang-format off
const Row kRows[] = {
    {"aya-23-8b", imported("f16", {"full 0-31: 32/8 x 128, scale 0.0883883"})},
    {"baichuan-7b", imported("bf16", {"full 0-31: 32/32 x 128, scale 0.0883883"})},
    {"bigbird-roberta-base", refused("block-sparse attention")},
    {"chatglm3-6b", imported("f16", {"full 0-27: 32/2 x 128, scale 0.0883883"})},
    {"codellama-34b", imported("bf16", {"full 0-47: 64/8 x 128, scale 0.0883883"})},
    {"cohere2-class-defaults", imported("bf16", {"sliding 0-2, 4-6, 8-10, 12-14, 16-18, 20-22, 24-26, 28-30, 32-34, 36-38: 64/64 x 128, scale 0.0883883, window 4096",
      "full 3, 7, ..., 39: 64/64 x 128, scale 0.0883883"})},
    {"deepseek-r1", refused("multi-head latent attention (kv_lora_rank 512)")},
    {"deepseek-v2-lite", refused("multi-head latent attention (kv_lora_rank 512)")},
    {"deepseek-v3.2", refused("multi-head latent attention (kv_lora_rank 512)")},
    {"deepseek-v3", refused("multi-head latent attention (kv_lora_rank 512)")},
    {"deepseek-v4-flash", refused("index_topk 512")},
    {"deepseek-v4-pro", refused("index_topk 1024")},
    {"exaone-4.0-32b", imported("bf16", {"sliding 0-2, 4-6, 8-10, 12-14, 16-18, 20-22, 24-26, 28-30, 32-34, 36-38, 40-42, 44-46, 48-50, 52-54, 56-58, 60-62: 40/8 x 128, scale 0.0883883, window 4096",
      "full 3, 7, ..., 63: 40/8 x 128, scale 0.0883883"})},
    {"falcon-7b", imported("bf16", {"full 0-31: 71/1 x 64, scale 0.125"})},
    {"gemma-2-27b", imported("bf16", {"sliding 0, 2, ..., 44: 32/16 x 128, scale 0.0833333, window 4096, softcap 50",
      "full 1, 3, ..., 45: 32/16 x 128, scale 0.0833333, softcap 50"})},
    {"gemma-2-2b", imported("bf16", {"sliding 0, 2, ..., 24: 8/4 x 256, scale 0.0625, window 4096, softcap 50",
      "full 1, 3, ..., 25: 8/4 x 256, scale 0.0625, softcap 50"})},
    {"gemma-2-9b", imported("bf16", {"sliding 0, 2, ..., 40: 16/8 x 256, scale 0.0625, window 4096, softcap 50",
      "full 1, 3, ..., 41: 16/8 x 256, scale 0.0625, softcap 50"})},
    {"gemma-2b", imported("bf16", {"full 0-17: 8/1 x 256, scale 0.0625"})},
    {"gemma-3-12b-it", imported("bf16", {"sliding 0-4, 6-10, 12-16, 18-22, 24-28, 30-34, 36-40, 42-46: 16/8 x 256, scale 0.0625, window 1024",
      "full 5, 11, ..., 47: 16/8 x 256, scale 0.0625"})},
    {"gemma-3-1b-it", imported("bf16", {"sliding 0-4, 6-10, 12-16, 18-22, 24-25: 4/1 x 256, scale 0.0625, window 512",
      "full 5, 11, ..., 23: 4/1 x 256, scale 0.0625"})},
    {"gemma-3-text-class-defaults", imported("bf16", {"sliding 0-4, 6-10, 12-16, 18-22, 24-25: 8/4 x 256, scale 0.0625, window 4096",
      "full 5, 11, ..., 23: 8/4 x 256, scale 0.0625"})},
    {"gemma-4-26b-a4b", imported("bf16", {"sliding 0-4, 6-10, 12-16, 18-22, 24-28: 16/8 x 256, scale 1, window 1024",
      "full 5, 11, ..., 29: 16/2 x 512, scale 1"})},
    {"glm-4.5", imported("bf16", {"full 0-91: 96/8 x 128, scale 0.0883883"})},
    {"glm-5.2", refused("multi-head latent attention (kv_lora_rank 512)")},
    {"glm-5", refused("multi-head latent attention (kv_lora_rank 512)")},
    {"gpt-bigcode-1b", imported("bf16", {"full 0-23: 16/1 x 128, scale 0.0883883"})},
    {"gpt-j-6b", imported("bf16", {"full 0-27: 16/16 x 256, scale 0.0625"})},
    {"gpt-oss-120b", imported("bf16", {"sliding 0, 2, ..., 34: 64/8 x 64, scale 0.125, window 128, sink",
      "full 1, 3, ..., 35: 64/8 x 64, scale 0.125, sink"})},
    {"gpt-oss-20b", imported("bf16", {"sliding 0, 2, ..., 22: 64/8 x 64, scale 0.125, window 128, sink",
      "full 1, 3, ..., 23: 64/8 x 64, scale 0.125, sink"})},
    {"gpt2", imported("bf16", {"full 0-11: 12/12 x 64, scale 0.125"})},
    {"granite-3-8b", imported("bf16", {"full 0-39: 32/8 x 128, scale 0.0078125"})},
    {"kimi-k2-instruct", refused("multi-head latent attention (kv_lora_rank 512)")},
    {"kimi-k2.5", refused("multi-head latent attention (kv_lora_rank 512)")},
    {"kimi-k3", refused("multi-head latent attention (kv_lora_rank 512)")},
    {"llama-2-13b", imported("f16", {"full 0-39: 40/40 x 128, scale 0.0883883"})},
    {"llama-2-70b", imported("f16", {"full 0-79: 64/8 x 128, scale 0.0883883"})},
    {"llama-2-7b", imported("f16", {"full 0-31: 32/32 x 128, scale 0.0883883"})},
    {"llama-3.1-405b", imported("bf16", {"full 0-125: 128/8 x 128, scale 0.0883883"})},
    {"llama-3.1-70b", imported("bf16", {"full 0-79: 64/8 x 128, scale 0.0883883"})},
    {"llama-3.1-8b", imported("bf16", {"full 0-31: 32/8 x 128, scale 0.0883883"})},
    {"llama-3.2-1b", imported("bf16", {"full 0-15: 32/8 x 64, scale 0.125"})},
    {"llama-3.2-3b", imported("bf16", {"full 0-27: 24/8 x 128, scale 0.0883883"})},
    {"llama-4-maverick-17b-128e", imported("bf16", {"chunked 0-2, 4-6, 8-10, 12-14, 16-18, 20-22, 24-26, 28-30, 32-34, 36-38, 40-42, 44-46: 40/8 x 128, scale 0.0883883, chunk 8192",
      "full 3, 7, ..., 47: 40/8 x 128, scale 0.0883883"})},
    {"llama-4-scout-17b-16e", imported("bf16", {"chunked 0-2, 4-6, 8-10, 12-14, 16-18, 20-22, 24-26, 28-30, 32-34, 36-38, 40-42, 44-46: 40/8 x 128, scale 0.0883883, chunk 8192",
      "full 3, 7, ..., 47: 40/8 x 128, scale 0.0883883"})},
    {"longformer-base-4096", refused("Longformer")},
    {"mimo-7b-base", imported("bf16", {"full 0-35: 32/8 x 128, scale 0.0883883"})},
    {"mimo-v2-flash", imported("bf16", {"full 0, 5, 11, 17, 23, 29, 35, 41, 47: 64/4 x 192/128, scale 0.0721688",
      "sliding 1-4, 6-10, 12-16, 18-22, 24-28, 30-34, 36-40, 42-46: 64/8 x 192/128, scale 0.0721688, window 128, sink"})},
    {"minicpm-2b", imported("bf16", {"full 0-39: 36/36 x 64, scale 0.125"})},
    {"minimax-m2.5", imported("bf16", {"full 0-61: 48/8 x 128, scale 0.0883883"})},
    {"minimax-m3", refused("sparse_attention_config")},
    {"ministral-3-3b-2512", imported("bf16", {"full 0-25: 32/8 x 128, scale 0.0883883"})},
    {"mistral-7b-v0.1", imported("bf16", {"sliding 0-31: 32/8 x 128, scale 0.0883883, window 4096"})},
    {"mistral-7b-v0.3", imported("bf16", {"full 0-31: 32/8 x 128, scale 0.0883883"})},
    {"mixtral-8x22b-v0.1", imported("bf16", {"full 0-55: 48/8 x 128, scale 0.0883883"})},
    {"mixtral-8x7b-v0.1", imported("bf16", {"full 0-31: 32/8 x 128, scale 0.0883883"})},
    {"nemotron-3-nano-30b-a3b", imported("bf16", {"full 5, 12, 19, 26, 33, 42: 32/2 x 128, scale 0.0883883"})},
    {"olmo-2-13b", imported("f32", {"full 0-39: 40/40 x 128, scale 0.0883883"})},
    {"olmo-2-32b", imported("f32", {"full 0-63: 40/8 x 128, scale 0.0883883"})},
    {"olmo-2-7b", imported("f32", {"full 0-31: 32/32 x 128, scale 0.0883883"})},
    {"olmo-3.1-32b-instruct", imported("bf16", {"sliding 0-2, 4-6, 8-10, 12-14, 16-18, 20-22, 24-26, 28-30, 32-34, 36-38, 40-42, 44-46, 48-50, 52-54, 56-58, 60-62: 40/8 x 128, scale 0.0883883, window 4096",
      "full 3, 7, ..., 63: 40/8 x 128, scale 0.0883883"})},
    {"orion-14b", imported("bf16", {"full 0-39: 40/40 x 128, scale 0.0883883"})},
    {"phi-1_5", imported("f16", {"full 0-23: 32/32 x 64, scale 0.125"})},
    {"phi-2", imported("f16", {"full 0-31: 32/32 x 80, scale 0.111803"})},
    {"phi-3.5-mini", imported("bf16", {"sliding 0-31: 32/32 x 96, scale 0.102062, window 262144"})},
    {"phi-4", imported("bf16", {"sliding 0-31: 24/8 x 128, scale 0.0883883, window 262144"})},
    {"phi-mini-moe-instruct", imported("bf16", {"sliding 0-31: 32/8 x 128, scale 0.0883883, window 2047"})},
    {"qwen2-1.5b", imported("bf16", {"full 0-27: 12/2 x 128, scale 0.0883883"})},
    {"qwen2-7b", imported("bf16", {"full 0-27: 28/4 x 128, scale 0.0883883"})},
    {"qwen2.5-3b", imported("bf16", {"full 0-35: 16/2 x 128, scale 0.0883883"})},
    {"qwen2.5-7b-instruct", imported("bf16", {"full 0-27: 28/4 x 128, scale 0.0883883"})},
    {"qwen3-0.6b", imported("bf16", {"full 0-27: 16/8 x 128, scale 0.0883883"})},
    {"qwen3-1.7b", imported("bf16", {"full 0-27: 16/8 x 128, scale 0.0883883"})},
    {"qwen3-235b-a22b", imported("bf16", {"full 0-93: 64/4 x 128, scale 0.0883883"})},
    {"qwen3-30b-a3b-instruct-2507", imported("bf16", {"full 0-47: 32/4 x 128, scale 0.0883883"})},
    {"qwen3-30b-a3b", imported("bf16", {"full 0-47: 32/4 x 128, scale 0.0883883"})},
    {"qwen3-32b", imported("bf16", {"full 0-63: 64/8 x 128, scale 0.0883883"})},
    {"qwen3-8b", imported("bf16", {"full 0-35: 32/8 x 128, scale 0.0883883"})},
    {"qwen3-coder-480b-a35b", imported("bf16", {"full 0-61: 96/8 x 128, scale 0.0883883"})},
    {"qwen3.5-27b", refused("linear attention")},
    {"qwen3.5-397b-a17b", refused("linear attention")},
    {"smollm2-135m", imported("bf16", {"full 0-29: 9/3 x 64, scale 0.125"})},
    {"starcoder2-15b", imported("bf16", {"sliding 0-31: 36/4 x 128, scale 0.0883883, window 4096"})},
    {"step-3.7-flash", imported("bf16", {"full 0, 4, ..., 44: 64/8 x 128, scale 0.0883883",
      "sliding 1-3, 5-7, 9-11, 13-15, 17-19, 21-23, 25-27, 29-31, 33-35, 37-39, 41-43: 64/8 x 128, scale 0.0883883, window 512"})},
    {"tinyllama-1.1b-chat-v1.0", imported("bf16", {"full 0-21: 32/4 x 64, scale 0.125"})},
};
// clang-format on

std::string summary(const LayerKind &kind) {
  std::string text = fmt::format("{} {}: {}/{} x {}", kind.name, ranges(kind.layers),
                                 kind.queryHeads, kind.kvHeads, kind.headDim);
  if (kind.vHeadDim != kind.headDim)
    text += fmt::format("/{}", kind.vHeadDim);
  text += fmt::format(", scale {:.6g}", kind.scale);
  if (kind.window)
    text += fmt::format(", window {}", *kind.window);
  if (kind.chunk)
    text += fmt::format(", chunk {}", *kind.chunk);
  if (kind.softcap)
    text += fmt::format(", softcap {}", *kind.softcap);
  return kind.sink ? text + ", sink" : text;
}

std::string read(const std::filesystem::path &path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

} // namespace

TEST(ModelTable, every_file_gives_its_facts) {
  LLMOPT_NEEDS_TEST_DATA();
  for (const Row &row : kRows) {
    SCOPED_TRACE(row.model);
    std::string file = std::string(row.model) + ".json";
    std::string text = read(llmopt::test::dataFolder() / "models" / file);
    auto result = importHuggingFace(text, file);
    const std::string &message = result.status().message();
    if (!row.expected.refusal.empty()) {
      ASSERT_FALSE(result.ok());
      EXPECT_EQ(message.find(file + ": "), 0u) << message;
      EXPECT_NE(message.find(row.expected.refusal), std::string::npos) << message;
      EXPECT_TRUE(message.ends_with(" is not supported yet")) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      continue;
    }
    ASSERT_TRUE(result.ok()) << message;
    EXPECT_EQ(result->elementType, row.expected.elementType);
    std::vector<std::string> kinds;
    for (const LayerKind &kind : result->kinds)
      kinds.push_back(summary(kind));
    EXPECT_EQ(kinds, row.expected.kinds);
    EXPECT_EQ(result->functions.size(), 2 * kinds.size());
  }
}

TEST(ModelTable, has_every_file_of_the_folder) {
  LLMOPT_NEEDS_TEST_DATA();
  std::set<std::string> files, rows;
  for (const auto &entry :
       std::filesystem::directory_iterator(llmopt::test::dataFolder() / "models"))
    if (entry.path().extension() == ".json")
      files.insert(entry.path().stem().string());
  for (const Row &row : kRows)
    rows.insert(row.model);
  EXPECT_EQ(files, rows);
  EXPECT_EQ(std::size(kRows), 84u);
}

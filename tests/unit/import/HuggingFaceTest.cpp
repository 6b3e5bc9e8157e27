// Rules of the Hugging Face importer on small configs of one purpose each.
#include "tools/import/Import.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace llmopt::importer;

namespace {

/// A llama of 4 layers, 8 heads of 16, with more keys.
std::string config(std::string_view more, std::string_view type = "llama") {
  return fmt::format(R"({{"model_type": "{}", "hidden_size": 128, "num_hidden_layers": 4,)"
                     R"( "num_attention_heads": 8{}{}}})",
                     type, more.empty() ? "" : ", ", more);
}

ImportResult import(std::string_view more, std::string_view type = "llama") {
  auto result = importHuggingFace(config(more, type), "config.json");
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? std::move(*result) : ImportResult();
}

std::string failure(std::string_view text) {
  auto result = importHuggingFace(text, "config.json");
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.status().message().find('\n'), std::string::npos);
  return result.status().message();
}

std::vector<std::string> kinds(const ImportResult &result) {
  std::vector<std::string> names;
  for (const LayerKind &kind : result.kinds)
    names.push_back(fmt::format("{} {}", kind.name, fmt::join(kind.layers, ",")));
  return names;
}

using Names = std::vector<std::string>;

} // namespace

TEST(HuggingFace, absent_kv_heads_are_as_many_as_query_heads) {
  EXPECT_EQ(import("").kinds[0].kvHeads, 8);
  EXPECT_EQ(import(R"("num_key_value_heads": null)").kinds[0].kvHeads, 8);
  EXPECT_EQ(import(R"("num_key_value_heads": 2)").kinds[0].kvHeads, 2);
}

TEST(HuggingFace, multi_query_is_one_kv_head) {
  EXPECT_EQ(import(R"("multi_query": true)", "gpt_bigcode").kinds[0].kvHeads, 1);
  EXPECT_EQ(import(R"("multi_query": false)", "gpt_bigcode").kinds[0].kvHeads, 8);
  EXPECT_EQ(import("", "gpt_bigcode").kinds[0].kvHeads, 1);
  EXPECT_EQ(import(R"("multi_query_attention": true, "multi_query_group_num": 4)", "chatglm")
                .kinds[0]
                .kvHeads,
            4);
  EXPECT_EQ(import(R"("multi_query_attention": false, "multi_query_group_num": 4)", "chatglm")
                .kinds[0]
                .kvHeads,
            8);
}

TEST(HuggingFace, falcon_reads_kv_heads_only_in_its_new_form) {
  EXPECT_EQ(import(R"("num_kv_heads": 8, "multi_query": true)", "falcon").kinds[0].kvHeads, 1);
  EXPECT_EQ(
      import(R"("num_kv_heads": 2, "new_decoder_architecture": true)", "falcon").kinds[0].kvHeads,
      2);
  EXPECT_EQ(import(R"("multi_query": false)", "falcon").kinds[0].kvHeads, 8);
}

TEST(HuggingFace, explicit_head_dim_wins) {
  EXPECT_EQ(import(R"("head_dim": 80)").kinds[0].headDim, 80);
  EXPECT_EQ(import("").kinds[0].headDim, 16);
  EXPECT_EQ(import("", "gemma").kinds[0].headDim, 256);
  LayerKind kind = import(R"("head_dim": 192, "v_head_dim": 128)").kinds[0];
  EXPECT_EQ(kind.vHeadDim, 128);
}

TEST(HuggingFace, scale_forms) {
  EXPECT_DOUBLE_EQ(import("").kinds[0].scale, 0.25);
  EXPECT_DOUBLE_EQ(import(R"("query_pre_attn_scalar": 144)").kinds[0].scale, 1.0 / 12);
  EXPECT_DOUBLE_EQ(import(R"("attention_multiplier": 0.0078125)").kinds[0].scale, 0.0078125);
  EXPECT_DOUBLE_EQ(import("", "gemma4_text").kinds[0].scale, 1);
  for (const char *type : {"granite", "granitemoe", "granitemoeshared"}) {
    EXPECT_DOUBLE_EQ(import("", type).kinds[0].scale, 1) << type;
    EXPECT_DOUBLE_EQ(import(R"("attention_multiplier": 0.5)", type).kinds[0].scale, 0.5) << type;
  }
  EXPECT_DOUBLE_EQ(import(R"("scale_emb": 12, "scale_depth": 1.4)", "minicpm").kinds[0].scale,
                   0.25);
}

TEST(HuggingFace, window_is_off_where_it_is_null_or_switched_off) {
  EXPECT_EQ(import(R"("sliding_window": 64)").kinds[0].window, 64);
  EXPECT_FALSE(import(R"("sliding_window": null)", "mistral").kinds[0].window);
  EXPECT_EQ(import("", "mistral").kinds[0].window, 4096);
  EXPECT_FALSE(import(R"("sliding_window": 64, "use_sliding_window": false)").kinds[0].window);
  EXPECT_FALSE(import(R"("sliding_window": 64)", "qwen2").kinds[0].window);
}

TEST(HuggingFace, windows_that_only_the_class_names) {
  for (const char *type : {"exaone4", "olmo3"}) {
    EXPECT_EQ(kinds(import("", type)), (Names{"sliding 0,1,2", "full 3"})) << type;
    EXPECT_EQ(import("", type).kinds[0].window, 4096) << type;
    EXPECT_EQ(kinds(import(R"("sliding_window": null)", type)), (Names{"full 0,1,2,3"})) << type;
  }
}

TEST(HuggingFace, what_is_not_said_for_certain_is_refused) {
  EXPECT_EQ(failure(config("", "nemotron_h")),
            "config.json: hybrid_override_pattern is missing; models of type nemotron_h need it or "
            "layers_block_type");
  EXPECT_EQ(failure(config("", "granitemoehybrid")),
            "config.json: layer_types is missing; models of type granitemoehybrid need it");
  for (const char *type : {"llama", "smollm3"})
    EXPECT_EQ(failure(config(R"("use_sliding_window": true, "sliding_window": 64,)"
                             R"( "max_window_layers": 2)",
                             type)),
              "config.json: layer_types is missing; which layers slide is not known without it");
  EXPECT_FALSE(import(R"("sliding_window": 64)", "smollm3").kinds[0].window);
}

TEST(HuggingFace, block_types_of_nemotron_h) {
  EXPECT_EQ(kinds(import(R"("layers_block_type": ["mamba", "attention", "moe", "attention"])",
                         "nemotron_h")),
            (Names{"full 1,3"}));
  EXPECT_EQ(
      kinds(import(R"("layers_block_type": ["linear_attention", "full_attention", "mlp", "moe"],)"
                   R"( "hybrid_override_pattern": "M*-E")",
                   "nemotron_h")),
      (Names{"full 1"}));
  EXPECT_EQ(failure(config("\n\"layers_block_type\": [\"mamba\", \"attention\", \"mamba\", "
                           "\"mamba\"], \"hybrid_override_pattern\": \"MM*M\"",
                           "nemotron_h")),
            "config.json:2:1: layers_block_type is a list of 4; hybrid_override_pattern says "
            "otherwise");
  EXPECT_EQ(failure(config("\n\"layers_block_type\": [\"mamba\", \"hybrid\", \"mamba\", "
                           "\"mamba\"]")),
            "config.json:2:1: layers_block_type[1] is 'hybrid'; full_attention, sliding_attention "
            "and chunked_attention are supported");
  EXPECT_EQ(failure(config(R"("layers_block_type": ["linear_attention", "attention",)"
                           R"( "attention", "attention"])")),
            "config.json: linear attention (layers_block_type names linear_attention) is not "
            "supported yet");
}

TEST(HuggingFace, window_beyond_the_position_limit_stays) {
  EXPECT_EQ(import(R"("sliding_window": 4096, "max_position_embeddings": 128)").kinds[0].window,
            4096);
}

TEST(HuggingFace, max_window_layers_are_full_in_qwen) {
  auto more = R"("sliding_window": 64, "use_sliding_window": true, "max_window_layers": 3)";
  EXPECT_EQ(kinds(import(more, "qwen2")), (Names{"full 0,1,2", "sliding 3"}));
}

TEST(HuggingFace, layer_patterns) {
  EXPECT_EQ(kinds(import(R"("sliding_window": 64, "sliding_window_pattern": 2)")),
            (Names{"sliding 0,2", "full 1,3"}));
  EXPECT_EQ(kinds(import(R"("sliding_window": 64, "sliding_window_pattern": "LLG")")),
            (Names{"sliding 0,1,3", "full 2"}));
  EXPECT_EQ(kinds(import(R"("sliding_window": 64, "hybrid_layer_pattern": [0, 1, 1, 0])")),
            (Names{"full 0,3", "sliding 1,2"}));
  EXPECT_EQ(kinds(import(R"("hybrid_override_pattern": "M*E*")", "nemotron_h")),
            (Names{"full 1,3"}));
  EXPECT_EQ(kinds(import(R"("sliding_window": 64)", "gemma2")), (Names{"sliding 0,2", "full 1,3"}));
  EXPECT_EQ(kinds(import(R"("attention_chunk_size": 64)", "llama4_text")),
            (Names{"chunked 0,1,2", "full 3"}));
  EXPECT_EQ(
      kinds(import(R"("attention_chunk_size": 64, "no_rope_layers": [0, 1, 0, 1])", "llama4_text")),
      (Names{"full 0,2", "chunked 1,3"}));
  EXPECT_EQ(kinds(import(R"("attention_chunk_size": 64, "sliding_window": 32, "layer_types": [)"
                         R"("sliding_attention", "chunked_attention", "full_attention", "conv"])",
                         "llama4_text")),
            (Names{"sliding 0", "chunked 1", "full 2"}));
}

TEST(HuggingFace, sinks_of_the_layers_that_have_them) {
  ImportResult result = import(R"("sliding_window": 64, "sliding_window_pattern": 2,
    "add_swa_attention_sink_bias": true, "add_full_attention_sink_bias": false)");
  EXPECT_TRUE(result.kinds[0].sink);
  EXPECT_FALSE(result.kinds[1].sink);
  EXPECT_NE(result.ir.find("args(%sinks : tensor<8xf32>)"), std::string::npos);
  EXPECT_NE(result.ir.find(" sink(arg0)"), std::string::npos);
  EXPECT_TRUE(import(R"("num_key_value_heads": 2)", "gpt_oss").kinds[0].sink);
}

TEST(HuggingFace, text_config_comes_before_the_outer_object) {
  auto result = importHuggingFace(
      R"({"model_type": "gemma3", "torch_dtype": "float16", "num_attention_heads": 3,
          "vision_config": {"attention_heads": 7},
          "text_config": {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1,
                          "num_attention_heads": 4}})",
      "config.json");
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->kinds[0].queryHeads, 4);
  EXPECT_EQ(result->elementType, "f16");
}

TEST(HuggingFace, options_override_page_and_type) {
  auto result = importHuggingFace(config(R"("torch_dtype": "float32")"), "c.json",
                                  {.page = 64, .elementType = "f16"});
  ASSERT_TRUE(result.ok());
  EXPECT_NE(result->ir.find("!attn.kv_cache<8x16xf16, page = 64>"), std::string::npos);
  EXPECT_FALSE(importHuggingFace(config(""), "c.json", {.page = 0, .elementType = ""}).ok());
  EXPECT_FALSE(importHuggingFace(config(""), "c.json", {.page = 1, .elementType = "i8"}).ok());
}

TEST(HuggingFace, functions_are_named_by_phase_and_kind) {
  EXPECT_EQ(import("").functions[0].name, "prefill");
  EXPECT_EQ(import("").functions[1].name, "decode");
  EXPECT_EQ(import(R"("sliding_window": 64)", "gemma2").functions[2].name, "decode_sliding");
}

TEST(HuggingFace, foreign_text_stays_inside_its_comment) {
  auto result =
      importHuggingFace(config(R"("architectures": ["XForCausalLM"])", R"(a\nb)"), "dir/c\nd.json");
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->ir.find("// c?d.json: model type a?b, 4 layers."), 0u) << result->ir;
  EXPECT_EQ(result->notes.size(), 2u);
}

TEST(HuggingFace, wrong_json_is_located) {
  EXPECT_EQ(failure("{\n  \"a\": 1,\n  oops\n}").find("config.json:3:3: invalid JSON: "), 0u);
  EXPECT_EQ(failure("").find("config.json:1:1: invalid JSON: "), 0u);
  EXPECT_EQ(failure(std::string_view("{\n}\0\"", 5)), "config.json:2:2: invalid JSON: a NUL byte");
  EXPECT_EQ(failure("[1]"), "config.json:1:1: the value is of type array; an object is wanted");
  EXPECT_EQ(failure("{\"a\": \"\xff\"}").find("config.json:1:"), 0u);
}

TEST(HuggingFace, wrong_values_are_located) {
  struct {
    std::string text, message;
  } rows[] = {
      {config("\n\"num_key_value_heads\": 3"),
       "config.json:2:1: 8 query heads are not a multiple of 3 KV heads (full layers)"},
      {config("\n  \"head_dim\": \"64\""),
       "config.json:2:3: head_dim is \"64\"; an integer from 1 to 576 is allowed"},
      {config("\n\"head_dim\": 577"),
       "config.json:2:1: head_dim is 577; an integer from 1 to 576 is allowed"},
      {config("\n\"head_dim\": 64.0"),
       "config.json:2:1: head_dim is 64.0; an integer from 1 to 576 is allowed"},
      {config("\n\"num_key_value_heads\": 0"),
       "config.json:2:1: num_key_value_heads is 0; an integer from 1 to 65536 is allowed"},
      {config("\n\"sliding_window\": -1"),
       "config.json:2:1: sliding_window is -1; an integer from 1 to 2147483647 is allowed"},
      {config("\n\"sliding_window\": 18446744073709551615"),
       "config.json:2:1: sliding_window is 18446744073709551615; an integer from 1 to "
       "2147483647 is allowed"},
      {config("\n\"attention_multiplier\": 0"),
       "config.json:2:1: attention_multiplier is 0; a positive number is allowed"},
      {config("\n\"use_sliding_window\": 1"),
       "config.json:2:1: use_sliding_window is 1; true or false is allowed"},
      {config("\n\"n_head\": 4"), "config.json:2:1: n_head is 4; num_attention_heads is 8; the "
                                  "two are names of one thing"},
      {config("\n\"layer_types\": [\"full_attention\"]"),
       "config.json:2:1: layer_types names 1 layers; the model has 4"},
      {config("\n\"layer_types\": \"full_attention\""),
       "config.json:2:1: layer_types is \"full_attention\"; a list is allowed"},
      {config("\n\"hybrid_layer_pattern\": [0, 1, 2, 0]"),
       "config.json:2:1: hybrid_layer_pattern is a list of 4; items 0 and 1 are allowed"},
      {config("\n\"torch_dtype\": \"float8_e4m3fn\""),
       "config.json:2:1: torch_dtype is \"float8_e4m3fn\"; bfloat16, float16 and float32 are "
       "supported"},
      {R"({"num_hidden_layers": 1})",
       "config.json: num_attention_heads is missing; the number of query heads is needed"},
      {R"({"num_attention_heads": 1})",
       "config.json: num_hidden_layers is missing; the number of layers is needed"},
      {R"({"num_attention_heads": 3, "num_hidden_layers": 1, "hidden_size": 64})",
       "config.json:1:52: hidden_size is 64; without a head_dim it is a multiple of the 3 query "
       "heads"},
      {R"({"num_attention_heads": 1, "num_hidden_layers": 1, "hidden_size": 577})",
       "config.json:1:52: hidden_size is 577; that is 577 a head; head dimensions from 1 to 576 "
       "are allowed"},
      {"{\"text_config\": {\n \"head_dim\": 0, \"num_hidden_layers\": 1, "
       "\"num_attention_heads\": 1}}",
       "config.json:2:2: head_dim is 0; an integer from 1 to 576 is allowed"},
      {R"({"text_config": 1})", "config.json:1:2: text_config is 1; an object is allowed"},
  };
  for (const auto &row : rows)
    EXPECT_EQ(failure(row.text), row.message) << row.text;
}

TEST(HuggingFace, a_sliding_layer_needs_a_window) {
  EXPECT_EQ(failure(config(R"("layer_types": ["sliding_attention", "full_attention",)"
                           R"( "full_attention", "full_attention"])")),
            "config.json: sliding_window is missing; layer_types names sliding_attention, which "
            "needs it");
}

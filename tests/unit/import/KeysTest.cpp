// What is refused, and what is known to be harmless.
#include "tools/import/HfKeys.h"

#include <gtest/gtest.h>

using namespace llmopt::importer;

namespace {

std::string outcome(std::string_view more, std::string_view type = "llama") {
  std::string text =
      fmt::format(R"({{"model_type": "{}", "hidden_size": 128, "num_hidden_layers": 2,)"
                  R"( "num_attention_heads": 8, {}}})",
                  type, more);
  auto result = importHuggingFace(text, "c.json");
  return result.ok() ? "imported" : result.status().message();
}

} // namespace

TEST(Keys, features_are_refused_by_name) {
  struct {
    const char *more, *feature;
  } rows[] = {
      {R"("kv_lora_rank": 512, "index_topk": 4)", "multi-head latent attention (kv_lora_rank 512)"},
      {R"("alibi": true)", "ALiBi (alibi true)"},
      {R"("attention_window": [512])", "Longformer's windows with global tokens "
                                       "(attention_window a list of 1)"},
      {R"("index_topk": 2048)", "attention over keys that an indexer selects (index_topk 2048)"},
      {R"("is_encoder_decoder": true)", "encoder-decoder attention (is_encoder_decoder true)"},
      {R"("scale_attn_weights": false)", "attention without a scale (scale_attn_weights false)"},
      {R"("is_causal": false)", "bidirectional attention (is_causal false)"},
      {R"("use_bidirectional_attention": "all")",
       "bidirectional attention (use_bidirectional_attention \"all\")"},
      {R"("attn_type_list": [1, 0])", "linear attention (attn_type_list has 0)"},
      {R"("layer_types": ["linear_attention", "full_attention"])",
       "linear attention (layer_types names linear_attention)"},
      {R"("attention_chunk_size": 8)",
       "chunked attention in this model type (attention_chunk_size 8)"},
      {R"("position_embedding_type": "alibi")", "a position bias (position_embedding_type alibi)"},
      {R"("layer_group_size": 4)", "linear attention (layer_group_size 4)"},
      {R"("linear_silu": true)", "linear attention (linear_silu true)"},
      {R"("lambda_std_dev": 0.1)", "differential attention (lambda_std_dev 0.1)"},
      {R"("block_types": ["recurrent"])",
       "a choice of attention for single layers (block_types a list of 1)"},
      {R"("prefix_lm": true)", "a prefix that is seen in both directions (prefix_lm true)"},
      {R"("query_scale": 0.5)", "a scale of the queries (query_scale 0.5)"},
      {R"("full_attn_mod": 2)", "full attention in some layers (full_attn_mod 2)"},
  };
  for (const auto &row : rows)
    EXPECT_EQ(outcome(row.more), fmt::format("c.json: {} is not supported yet", row.feature));
}

TEST(Keys, features_that_are_off_are_none) {
  EXPECT_EQ(outcome(R"("alibi": false, "kv_lora_rank": null, "cross_attention_layers": [],)"
                    R"( "is_encoder_decoder": false, "scale_attn_weights": true,)"
                    R"( "use_bidirectional_attention": null, "attn_type_list": [1, 1],)"
                    R"( "is_causal": true, "position_embedding_type": "rope")"),
            "imported");
}

TEST(Keys, model_types_are_refused_by_what_they_imply) {
  EXPECT_EQ(outcome("\"a\": 1", "bloom"), "c.json: ALiBi (model_type bloom) is not supported yet");
  EXPECT_EQ(outcome("\"a\": 1", "bert"),
            "c.json: bidirectional encoder attention (model_type bert) is not supported yet");
  EXPECT_EQ(outcome("\"a\": 1", "diffllama"),
            "c.json: differential attention (model_type diffllama) is not supported yet");
  EXPECT_EQ(outcome("\"a\": 1", "bailing_moe_linear"),
            "c.json: linear attention (model_type bailing_moe_linear) is not supported yet");
  EXPECT_EQ(outcome("\"a\": 1", "unheard_of"),
            "c.json: model type 'unheard_of' is not supported yet");
  EXPECT_EQ(outcome(R"("architectures": ["UnheardOfForCausalLM"])", "unheard_of"), "imported");
  EXPECT_EQ(outcome("\"head_dim\": 128", "baichuan"), "imported");
  auto large = importHuggingFace(R"({"model_type": "baichuan", "hidden_size": 5120,
    "num_attention_heads": 40, "num_hidden_layers": 40})",
                                 "c.json");
  EXPECT_EQ(large.status().message(),
            "c.json: ALiBi (model_type baichuan, hidden_size 5120) is not supported yet");
}

TEST(Keys, an_unknown_key_that_sounds_like_attention_is_refused) {
  for (const char *key :
       {"fancy_attn",    "attention_style", "num_heads",    "window_shift",   "sparse_levels",
        "prefix_mask",   "score_softcap",   "chunk_rows",   "sink_count",     "qk_mix",
        "kv_merge",      "alibi_power",     "logit_bias",   "bidirectional",  "layer_type_list",
        "dilation",      "block_type_list", "layer_group",  "linear_layers",  "lambda_init",
        "prefix_size",   "query_factor",    "cross_layers", "score_function", "recurrent_layers",
        "layers_pattern"})
    EXPECT_EQ(outcome(fmt::format("\n \"{}\": 1", key)),
              fmt::format("c.json:2:2: key '{}' is not known and its name sounds like "
                          "attention; remove it if it changes nothing there",
                          key));
}

TEST(Keys, a_key_means_what_its_row_says_only_in_the_types_of_the_row) {
  struct {
    const char *key, *type;
  } rows[] = {
      {"attn_scale", "llama4_text"},
      {"attn_temperature_tuning", "llama4_text"},
      {"attention_value_scale", "mimo_v2_flash"},
      {"num_kv_shared_layers", "gemma4_text"},
      {"global_head_dim", "gemma4_text"},
      {"logit_scale", "cohere"},
      {"logits_scaling", "granitemoe"},
      {"apply_query_key_layer_scaling", "chatglm"},
  };
  for (const auto &row : rows) {
    EXPECT_EQ(outcome(fmt::format("\"{}\": 2", row.key), row.type), "imported") << row.key;
    EXPECT_EQ(outcome(fmt::format("\n\"{}\": 2", row.key)),
              fmt::format("c.json:2:1: key '{}' is not known and its name sounds like attention; "
                          "remove it if it changes nothing there",
                          row.key));
  }
}

TEST(Keys, objects_are_looked_into) {
  struct {
    const char *more, *key;
  } rows[] = {
      {R"("block_configs": [{"ffn": {}}, {"attention": {"no_op": true, "window_length": 512}}])",
       "block_configs[1].attention"},
      {R"("block_configs": [{"a": {"no_op": true}}])", "block_configs[0].a.no_op"},
      {R"("layer_cross": {"attention_window": 3})", "layer_cross.attention_window"},
      {R"("inner": {"num_attention_heads": 3})", "inner.num_attention_heads"},
      {R"("inner": {"is_causal": false})", "inner.is_causal"},
      {R"("inner": {"attn_scale": 2})", "inner.attn_scale"},
  };
  for (const auto &row : rows)
    EXPECT_EQ(outcome(fmt::format("\n{}", row.more)),
              fmt::format("c.json:2:1: key '{}' lies in an object that is not read and sounds like "
                          "attention; remove it if it changes nothing there",
                          row.key));
  EXPECT_EQ(outcome("\n\"cross_layer\": {\"attention_window\": 3}"),
            "c.json:2:1: key 'cross_layer' is not known and its name sounds like attention; remove "
            "it if it changes nothing there");
}

TEST(Keys, objects_about_other_things_are_not) {
  for (const char *more :
       {R"("rope_scaling": {"attention_factor": 1})", R"("quantization_config": {"kv": 1})",
        R"("vision_config": {"num_attention_heads": 3})", R"("audio_config": {"attention": 1})",
        R"("inner": {"rope_parameters": {"full_attention": {"a": 1}}})",
        R"("inner": {"alibi": false, "is_causal": true, "qk_norm": true, "fancy_attn": null})",
        R"("task_params": {"text": {"max_length": 50}}, "list": [[1], {"a": 2}])"})
    EXPECT_EQ(outcome(more), "imported") << more;
}

TEST(Keys, other_unknown_keys_are_ignored) {
  for (const char *key : {"rope_heads_up", "rotary_window", "moe_chunk", "expert_kv",
                          "mask_token_id", "vision_attention", "attention_probs_dropout_prob",
                          "bos_token_id", "initializer_range", "use_cache", "hidden_act"})
    EXPECT_EQ(outcome(fmt::format("\"{}\": 1", key)), "imported") << key;
  EXPECT_EQ(outcome(R"("fancy_attn": null)"), "imported");
}

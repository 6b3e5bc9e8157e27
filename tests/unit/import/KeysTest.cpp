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
       {"fancy_attn", "attention_style", "num_heads", "window_shift", "sparse_levels",
        "prefix_mask", "score_softcap", "chunk_rows", "sink_count", "qk_mix", "kv_merge",
        "alibi_power", "logit_bias", "bidirectional", "layer_type_list", "dilation"})
    EXPECT_EQ(outcome(fmt::format("\n \"{}\": 1", key)),
              fmt::format("c.json:2:2: key '{}' is not known and its name sounds like "
                          "attention; remove it if it changes nothing there",
                          key));
}

TEST(Keys, other_unknown_keys_are_ignored) {
  for (const char *key : {"rope_heads_up", "rotary_window", "moe_chunk", "expert_kv",
                          "mask_token_id", "vision_attention", "attention_probs_dropout_prob",
                          "bos_token_id", "initializer_range", "use_cache", "hidden_act"})
    EXPECT_EQ(outcome(fmt::format("\"{}\": 1", key)), "imported") << key;
  EXPECT_EQ(outcome(R"("fancy_attn": null)"), "imported");
}

// Attention nodes: alignment of the causal mask, masks, heads, and refusals.
#include "tests/unit/import/OnnxModels.h"

#include <gtest/gtest.h>

using namespace llmopt::importer;
using namespace llmopt::test;

namespace {

OnnxFunction only(const ModelBuilder &builder) {
  auto result = builder.import();
  EXPECT_TRUE(result.ok()) << result.status().message();
  if (!result.ok() || result->functions.size() != 1)
    return {};
  return result->functions[0];
}

bool irHas(const ModelBuilder &builder, std::string_view text) {
  auto result = builder.import();
  return result.ok() && result->ir.find(text) != std::string::npos;
}

} // namespace

TEST(OnnxNode, causal_without_a_cache_is_top_left) {
  ModelBuilder builder;
  setInt(builder.qkv(4, 6).node("Attention", {"Q", "K", "V"}), "is_causal", 1);
  EXPECT_EQ(only(builder).causal, OnnxCausal::TopLeft);
  EXPECT_TRUE(irHas(builder, "mask(causal<top_left>)"));
}

TEST(OnnxNode, causal_over_equal_lengths_has_one_alignment) {
  for (Dim length : {Dim(4), Dim("seq")}) {
    ModelBuilder builder;
    setInt(builder.qkv(length, length).node("Attention", {"Q", "K", "V"}), "is_causal", 1);
    EXPECT_EQ(only(builder).causal, OnnxCausal::BottomRight);
  }
}

TEST(OnnxNode, causal_with_lengths_is_bottom_right) {
  ModelBuilder builder;
  builder.qkv(1, 8).input("n", {2}, onnx::TensorProto::INT64);
  setInt(builder.node("Attention", {"Q", "K", "V", "", "", "", "n"}), "is_causal", 1);
  OnnxFunction function = only(builder);
  EXPECT_EQ(function.causal, OnnxCausal::BottomRight);
  EXPECT_TRUE(function.lengths);
  EXPECT_TRUE(irHas(builder, "%q, %k, %v, %seq mask(causal)"));
}

TEST(OnnxNode, causal_over_past_keys_counts_from_them) {
  auto build = [](Dim queries, Dim keys) {
    ModelBuilder builder;
    builder.qkv(queries, keys).input("pk", {2, 2, "P", 8}).input("pv", {2, 2, "P", 8});
    setInt(builder.node("Attention", {"Q", "K", "V", "", "pk", "pv"}), "is_causal", 1);
    return builder;
  };
  EXPECT_EQ(only(build(4, 4)).causal, OnnxCausal::BottomRight);
  OnnxFunction shifted = only(build(4, 6));
  EXPECT_EQ(shifted.causal, OnnxCausal::Shifted);
  EXPECT_EQ(shifted.causalShift, -2);
  EXPECT_TRUE(irHas(build(4, 6), "mask(custom) where {"));
  EXPECT_TRUE(irHas(build(4, 6), "arith.constant -2 : index"));
  EXPECT_EQ(build("S", "L").failure(),
            "m.onnx: is_causal over past keys with sequence lengths of Q and K that the model "
            "does not tell (node 'Y') is not supported yet");
}

TEST(OnnxNode, masks_are_extended_to_rank_4) {
  auto build = [](std::vector<Dim> dims, int element) {
    ModelBuilder builder;
    builder.qkv(4, 6).input("m", std::move(dims), element);
    builder.node("Attention", {"Q", "K", "V", "m"});
    return builder;
  };
  int boolean = onnx::TensorProto::BOOL, half = onnx::TensorProto::FLOAT16;
  EXPECT_TRUE(irHas(build({6}, boolean), "tensor<1x1x1x?xi1>) mask(dense<arg0>)"));
  EXPECT_TRUE(irHas(build({4, 6}, boolean), "tensor<1x1x?x?xi1>) mask(dense<arg0>)"));
  EXPECT_TRUE(irHas(build({4, 4, 1}, boolean), "tensor<1x4x?x?xi1>"));
  EXPECT_TRUE(irHas(build({2, 1, 4, 6}, half), "args(%mask : tensor<?x1x?x?xf16>) scale("));
  EXPECT_TRUE(irHas(build({"B", "H", 4, 6}, half), "tensor<?x?x?x?xf16>"));
  EXPECT_EQ(build({3, 4, 6}, boolean).failure(),
            "m.onnx: node 'Y': attn_mask has 3 heads; 1 or 4 is allowed");
  EXPECT_EQ(build({4, 6}, onnx::TensorProto::INT8).failure(),
            "m.onnx: an attn_mask of type int8 (node 'Y') is not supported yet");
  EXPECT_EQ(build({}, boolean).failure(),
            "m.onnx: node 'Y': attn_mask has rank 0; 1 to 4 is allowed");
}

TEST(OnnxNode, softcap_comes_before_the_added_mask) {
  ModelBuilder builder;
  builder.qkv(4, 6).input("m", {4, 6});
  setFloat(builder.node("Attention", {"Q", "K", "V", "m"}), "softcap", 2.0f);
  EXPECT_TRUE(irHas(builder, " softcap(2.0) bias(arg0)\n"));
}

TEST(OnnxNode, packed_inputs_are_split_by_their_head_counts) {
  ModelBuilder builder;
  builder.input("Q", {2, 4, 72}).input("K", {2, 6, 24}).input("V", {2, 6, 30});
  auto &node = builder.node("Attention", {"Q", "K", "V"});
  EXPECT_EQ(builder.failure(), "m.onnx: node 'Y': Q of rank 3 needs q_num_heads and kv_num_heads");
  setInt(node, "q_num_heads", 9);
  setInt(node, "kv_num_heads", 3);
  OnnxFunction function = only(builder);
  EXPECT_EQ(function.headDim, 8);
  EXPECT_EQ(function.vHeadDim, 10);
  EXPECT_EQ(function.bindings[0].form, OnnxBinding::Form::Packed);
}

TEST(OnnxNode, shapes_that_do_not_fit_are_named) {
  ModelBuilder heads;
  heads.qkv(4, 6, 4, 3).node("Attention", {"Q", "K", "V"});
  EXPECT_EQ(heads.failure(), "m.onnx: node 'Y': 4 query heads are not a multiple of 3 KV heads");
  ModelBuilder dims;
  dims.input("Q", {1, 1, 4, 8}).input("K", {1, 1, 4, 9}).input("V", {1, 1, 4, 8});
  dims.node("Attention", {"Q", "K", "V"});
  EXPECT_EQ(dims.failure(),
            "m.onnx: node 'Y': K has a last dimension of 9; Q's head dimension is 8");
  ModelBuilder large;
  large.input("Q", {1, 1, 4, 577}).input("K", {1, 1, 4, 577}).input("V", {1, 1, 4, 8});
  large.node("Attention", {"Q", "K", "V"});
  EXPECT_EQ(large.failure(), "m.onnx: node 'Y': head dimension 577; 1 to 576 is allowed");
  ModelBuilder unknown;
  unknown.qkv(4, 4).node("Attention", {"Q", "K", "W"});
  EXPECT_EQ(unknown.failure(), "m.onnx: node 'Y': the model does not tell the shape of V 'W'; "
                               "run ONNX's shape inference on it first");
}

TEST(OnnxNode, attributes_that_are_not_known_are_refused) {
  ModelBuilder builder(25);
  auto &node = builder.qkv(4, 4).node("Attention", {"Q", "K", "V"});
  setInt(node, "left_window_size", -1);
  EXPECT_EQ(builder.failure(), "imported");
  setInt(node, "left_window_size", 3);
  EXPECT_EQ(builder.failure(), "m.onnx: left_window_size 3 (node 'Y') is not supported yet");
  node.clear_attribute();
  setInt(node, "surprise", 0);
  EXPECT_EQ(builder.failure(), "m.onnx: attribute surprise (node 'Y') is not supported yet");
  node.clear_attribute();
  setInt(node, "softmax_precision", onnx::TensorProto::DOUBLE);
  EXPECT_EQ(builder.failure(), "m.onnx: a softmax in float64 (node 'Y') is not supported yet");
}

TEST(OnnxNode, the_score_output_is_told_as_missing) {
  ModelBuilder builder;
  builder.qkv(4, 4).node("Attention", {"Q", "K", "V"}, {"Y", "", "", "scores"});
  EXPECT_EQ(only(builder).missing, "score matrix output (qk_matmul_output)");
}

TEST(OnnxGraph, alike_nodes_share_a_function) {
  ModelBuilder builder;
  builder.qkv(4, 4);
  builder.node("MatMul", {"Q", "K"}, {"x"});
  builder.node("Attention", {"Q", "K", "V"}, {"y0"});
  builder.node("Attention", {"Q", "K", "V"}, {"y1"});
  setInt(builder.node("Attention", {"Q", "K", "V"}, {"y2"}), "is_causal", 1);
  auto result = builder.import();
  ASSERT_TRUE(result.ok()) << result.status().message();
  ASSERT_EQ(result->functions.size(), 2u);
  EXPECT_EQ(result->functions[0].name, "attention_0");
  EXPECT_EQ(result->functions[0].nodes, (std::vector<std::string>{"y0", "y1"}));
  EXPECT_EQ(result->otherNodes, 1u);
}

TEST(OnnxGraph, attention_that_is_not_supported_is_refused_wherever_it_is) {
  ModelBuilder linear;
  linear.qkv(4, 4).node("Attention", {"Q", "K", "V"});
  linear.node("LinearAttention", {"Q", "K", "V"});
  EXPECT_EQ(linear.failure(), "m.onnx: operator LinearAttention is not supported yet");

  ModelBuilder foreign;
  foreign.qkv(4, 4).node("GroupQueryAttention", {"Q"}).set_domain("com.microsoft");
  EXPECT_EQ(foreign.failure(),
            "m.onnx: operator com.microsoft.GroupQueryAttention is not supported yet");

  ModelBuilder nested;
  auto *branch = nested.node("If", {"c"}).add_attribute();
  branch->set_type(onnx::AttributeProto::GRAPH);
  branch->mutable_g()->add_node()->set_op_type("Attention");
  EXPECT_EQ(nested.failure(),
            "m.onnx: operator Attention in a subgraph of If is not supported yet");

  ModelBuilder flex;
  auto &node = flex.qkv(4, 4).node("FlexAttention", {"Q", "K", "V"});
  node.set_domain("ai.onnx.preview");
  EXPECT_EQ(flex.failure(), "imported");
  auto *mod = node.add_attribute();
  mod->set_name("score_mod");
  mod->set_type(onnx::AttributeProto::GRAPH);
  EXPECT_EQ(flex.failure(), "m.onnx: a score_mod subgraph (node 'Y') is not supported yet");
}

TEST(OnnxGraph, operators_beside_attention_do_no_harm) {
  ModelBuilder builder;
  builder.node("RotaryEmbedding", {"Q"});
  EXPECT_EQ(builder.failure(), "m.onnx: operator RotaryEmbedding is not supported yet");
  builder.qkv(4, 4).node("Attention", {"Q", "K", "V"});
  EXPECT_EQ(builder.failure(), "imported");
}

TEST(OnnxGraph, attention_needs_opset_23) {
  ModelBuilder builder(22);
  builder.qkv(4, 4).node("Attention", {"Q", "K", "V"});
  EXPECT_EQ(builder.failure(), "m.onnx: opset 22; Attention exists from opset 23 on");
  ModelBuilder empty;
  empty.qkv(4, 4);
  EXPECT_EQ(empty.failure(), "m.onnx: the model has no Attention node");
}

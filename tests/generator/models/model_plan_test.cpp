// What config.json files of each family become: shapes, windows, quantisation, and refusals.
#include "kernelwright/generator/models/model_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernelwright/generator/models/plan_file.h"

namespace kernelwright::model_plan_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A small model of `type` with `more` fields; every family has these.
std::string config(const std::string& type, const std::string& more = "") {
  return R"({"model_type": ")" + type + R"(", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 64, "intermediate_size": 1536, "vocab_size": 3000)" +
         (more.empty() ? "" : ", " + more) + "}";
}

const PlannedProblem& problem(const ModelPlan& plan, std::string_view suffix) {
  const std::string wanted = plan.name + "-" + std::string(suffix);
  for (const PlannedProblem& each : plan.problems)
    if (name_of(each.config) == wanted) return each;
  throw std::out_of_range("no problem " + wanted);
}
const AttentionProblem& attention(const ModelPlan& plan, const std::string& suffix) {
  return std::get<AttentionConfig>(problem(plan, suffix).config).problem;
}
const GemmProblem& gemm(const ModelPlan& plan, const std::string& suffix) {
  return std::get<GemmConfig>(problem(plan, suffix).config).problem;
}
std::pair<int, int> size(const ModelPlan& plan, const std::string& suffix) {
  return {gemm(plan, suffix).n, gemm(plan, suffix).k};
}
using Size = std::pair<int, int>;

std::vector<std::string> names(const ModelPlan& plan) {
  std::vector<std::string> all;
  for (const PlannedProblem& each : plan.problems) all.push_back(name_of(each.config).substr(plan.name.size() + 1));
  return all;
}

const MissingLayer& missing(const ModelPlan& plan, const std::string& layer) {
  for (const MissingLayer& each : plan.missing)
    if (each.layer == layer) return each;
  throw std::out_of_range("nothing missing is " + layer);
}

std::string refusal(const std::string& json, const ServingOptions& options = {}) {
  try {
    plan_model(json, options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no refusal";
}

TEST(ModelPlan, DividesHeadsAndWidthsBetweenRanks) {
  const ModelPlan plan = plan_model(config("llama"), {.tp = 2});
  EXPECT_THAT(names(plan), ElementsAre("decode", "mixed", "kv-write", "qkv", "o", "gate-up", "down", "lm-head"));
  EXPECT_EQ(plan.name, "llama-h512-l4-tp2");
  EXPECT_EQ(attention(plan, "decode").heads, (Heads{4, 2}));
  EXPECT_EQ(attention(plan, "decode").max_q_len, 1);
  EXPECT_EQ(attention(plan, "mixed").q_layout, QLayout::kRagged);
  EXPECT_EQ(size(plan, "qkv"), Size(4 * 64 + 2 * 2 * 64, 512));
  EXPECT_EQ(size(plan, "o"), Size(512, 4 * 64));
  EXPECT_EQ(size(plan, "gate-up"), Size(1536, 512));
  EXPECT_EQ(size(plan, "down"), Size(512, 768));
  EXPECT_EQ(size(plan, "lm-head"), Size(1504, 512)) << "3000 words are padded to 3008";
  EXPECT_EQ(problem(plan, "qkv").rows, (RowRange{1, 8192}));
  EXPECT_EQ(problem(plan, "lm-head").rows, (RowRange{1, 256}));
}

TEST(ModelPlan, RanksShareAKeyValueHead) {
  EXPECT_EQ(attention(plan_model(config("llama"), {.tp = 8}), "decode").heads, (Heads{1, 1}));
}

TEST(ModelPlan, EqualProblemsJoin) {
  const ModelPlan plan = plan_model(config("llama", R"("head_dim_unused": 1)"), {});
  EXPECT_EQ(size(plan, "qkv"), Size(1024, 512));
  const ModelPlan joined = plan_model(
      R"({"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8,
          "intermediate_size": 512, "vocab_size": 1024})",
      {});
  const PlannedProblem& both = problem(joined, "o");
  EXPECT_THAT(both.serves, ElementsAre(ServedLayer{"o", "0-1"}, ServedLayer{"down", "0-1"}));
  EXPECT_EQ(problem(joined, "gate-up").rows, (RowRange{1, 8192})) << "the head has fewer rows";
}

TEST(ModelPlan, ServersDifferInCachesAndFusedLayers) {
  const ModelPlan vllm = plan_model(config("llama"), {}), sglang = plan_model(config("llama"), {.server = "sglang"}),
                  hf = plan_model(config("llama"), {.server = "hf"});
  EXPECT_EQ(attention(vllm, "decode").kv_layout, (KvLayout{KvLayoutKind::kPaged, 16}));
  EXPECT_EQ(attention(sglang, "prefill").kv_layout, (KvLayout{KvLayoutKind::kPaged, 1}));
  EXPECT_EQ(attention(hf, "prefill").kv_layout.kind, KvLayoutKind::kPadded);
  EXPECT_EQ(attention(plan_model(config("llama"), {.page_size = 64}), "decode").kv_layout.page_size, 64);
  EXPECT_THAT(names(hf), ElementsAre("decode", "decode-left-padded", "prefill", "prefill-left-padded", "kv-write", "q",
                                     "kv", "gate-up", "down", "lm-head"));
  EXPECT_FALSE(attention(hf, "decode").kv_starts);
  EXPECT_TRUE(attention(hf, "decode-left-padded").kv_starts);
  EXPECT_THAT(problem(hf, "q").serves, ElementsAre(ServedLayer{"q_proj", "0-3"}, ServedLayer{"o_proj", "0-3"}));
  EXPECT_THAT(problem(hf, "kv").serves, ElementsAre(ServedLayer{"k_proj", "0-3"}, ServedLayer{"v_proj", "0-3"}));
  EXPECT_EQ(size(plan_model(config("phi3"), {.server = "hf"}), "gate-up"), Size(3072, 512)) << "one in the checkpoint";
}

TEST(ModelPlan, TheCacheMayBeE4m3) {
  const ModelPlan plan = plan_model(config("llama"), {.kv = "e4m3"});
  EXPECT_EQ(attention(plan, "decode").dtype.kv, DType::kE4m3);
  EXPECT_EQ(attention(plan, "decode").scales, ScaleKind::kPerTensor);
  EXPECT_THAT(refusal(config("llama"), {.kv = "e4m3", .server = "hf"}), HasSubstr("--kv: e4m3: the cache of hf"));
  EXPECT_THAT(refusal(config("llama"), {.kv = "f16"}), HasSubstr("it takes bf16 or e4m3"));
  for (const auto& [word, kind] : {std::pair{"per_head", ScaleKind::kPerHead}, {"per_token", ScaleKind::kPerToken}}) {
    const ModelPlan scaled = plan_model(config("llama"), {.kv = "e4m3", .kv_scales = word});
    EXPECT_EQ(attention(scaled, "decode").scales, kind);
    EXPECT_EQ(attention(scaled, "mixed").scales, kind);
  }
  EXPECT_THAT(refusal(config("llama"), {.kv_scales = "per_token"}),
              HasSubstr("--kv-scales: \"per_token\": a cache of bf16"));
  EXPECT_THAT(refusal(config("llama"), {.kv = "e4m3", .kv_scales = "per_page"}),
              HasSubstr("--kv-scales: \"per_page\" is no kind of a cache's scales; it takes per_tensor, per_head or "
                        "per_token, or of latents "
                        "per_tensor or per_block"));
  EXPECT_THAT(
      refusal(config("llama"), {.kv = "e4m3", .kv_scales = "per_block"}),
      HasSubstr("--kv-scales: \"per_block\" does not fit a cache of keys and values; it takes per_tensor, per_head or "
                "per_token"));
  EXPECT_EQ(attention(plan_model(config("llama", R"("torch_dtype": "float16")"), {}), "decode").dtype.q, DType::kF16);
}

TEST(ModelPlan, WindowsFollowEachFamilysRule) {
  const auto windows = [](const std::string& type, const std::string& more) {
    const ModelPlan plan = plan_model(config(type, more), {});
    std::string text;
    for (const PlannedProblem& each : plan.problems)
      if (const auto* of = std::get_if<AttentionConfig>(&each.config); of && of->problem.max_q_len == 1)
        text +=
            (text.empty() ? "" : "; ") + each.serves[0].layers + " " +
            (of->problem.mask.kind == MaskKind::kSlidingWindow ? std::to_string(of->problem.mask.window.left) : "full");
    return text;
  };
  EXPECT_EQ(windows("llama", R"("sliding_window": 128)"), "0-3 full");
  EXPECT_EQ(windows("mistral", R"("sliding_window": 128)"), "0-3 127");
  EXPECT_EQ(windows("mistral", R"("sliding_window": null)"), "0-3 full");
  EXPECT_EQ(windows("mistral", ""), "0-3 4095") << "transformers' default";
  EXPECT_EQ(windows("mistral", R"("sliding_window": 4096, "max_position_embeddings": 4096)"), "0-3 full");
  EXPECT_EQ(windows("qwen2", R"("sliding_window": 128, "use_sliding_window": true, "max_window_layers": 3)"),
            "3 127; 0-2 full");
  EXPECT_EQ(windows("gemma2", R"("sliding_window": 128)"), "0, 2 127; 1, 3 full");
  EXPECT_EQ(windows("gemma3_text", R"("sliding_window": 128, "sliding_window_pattern": 3)"), "0-1, 3 127; 2 full");
  EXPECT_EQ(windows("gemma3_text", R"("sliding_window": 128, "layer_types": ["full_attention", "full_attention",
                     "full_attention", "sliding_attention"])"),
            "3 127; 0-2 full");
  EXPECT_EQ(windows("qwen3_moe", R"("num_experts": 4, "moe_intermediate_size": 256, "sliding_window": 128,
                     "use_sliding_window": true, "max_window_layers": 2)"),
            "0-3 127");
  EXPECT_EQ(windows("qwen2_moe", R"("num_experts": 4, "moe_intermediate_size": 256, "sliding_window": 128,
                     "shared_expert_intermediate_size": 256, "use_sliding_window": true, "max_window_layers": 2)"),
            "0 127; 1-3 full");
  EXPECT_THAT(refusal(config("gemma3_text", R"("use_bidirectional_attention": true)")),
              HasSubstr("/use_bidirectional_attention: true: only causal attention is planned"));
  EXPECT_THAT(refusal(config("qwen3", R"("layer_types": ["full_attention", "linear_attention", "x", "x"])")),
              HasSubstr("/layer_types/1: \"linear_attention\" is no layer that is known here"));
  EXPECT_THAT(refusal(config("qwen3", R"("layer_types": ["full_attention"])")), HasSubstr("each of the 4 layers"));
}

TEST(ModelPlan, FamiliesHaveTheirBiasesSinksAndCaps) {
  EXPECT_EQ(gemm(plan_model(config("qwen2"), {}), "qkv").epilogue, "acc + bias");
  EXPECT_EQ(gemm(plan_model(config("qwen2"), {}), "o").epilogue, "acc");
  EXPECT_EQ(gemm(plan_model(config("llama", R"("attention_bias": true)"), {}), "o").epilogue, "acc + bias");
  EXPECT_EQ(attention(plan_model(config("gemma2"), {}), "full-decode").score_mod.cap, 50);
  const ModelPlan uncapped = plan_model(config("gemma2", R"("attn_logit_softcapping": null)"), {});
  EXPECT_EQ(attention(uncapped, "full-decode").score_mod.kind, ScoreModKind::kNone) << "null takes the default's place";
  EXPECT_EQ(gemm(plan_model(config("qwen2_moe", R"("num_experts": 4, "moe_intermediate_size": 256,
                                                   "shared_expert_intermediate_size": 256)"),
                            {}),
                 "qkv")
                .epilogue,
            "acc + bias");
  const std::string oss = config("gpt_oss", R"("num_local_experts": 8)");  // attention_bias is true by default
  EXPECT_TRUE(attention(plan_model(oss, {}), "window-decode").sinks);
  const ModelPlan divided = plan_model(oss, {.tp = 2});
  EXPECT_EQ(gemm(divided, "o-bias").epilogue, "acc + bias");
  EXPECT_THAT(problem(divided, "o").serves, ElementsAre(ServedLayer{"o, other ranks", "0-3"}));
}

TEST(ModelPlan, ExpertsHaveFourProblems) {
  const std::string json = config("qwen3_moe", R"("num_experts": 16, "moe_intermediate_size": 256,
                                                  "norm_topk_prob": true, "mlp_only_layers": [1])");
  const ModelPlan plan = plan_model(json, {.tp = 2});
  const GemmProblem first = gemm(plan, "expert-gate-up"), second = gemm(plan, "expert-down");
  EXPECT_EQ(first.groups, (GemmGroups{GroupKind::kRows, 16, GroupBounds::kStarts, true}));
  EXPECT_EQ(second.groups, (GemmGroups{GroupKind::kRows, 16, GroupBounds::kStarts, false}));
  EXPECT_EQ((std::pair{first.n, first.k}), (std::pair{256, 512}));
  EXPECT_EQ((std::pair{second.n, second.k}), (std::pair{512, 128}));
  EXPECT_EQ(first.epilogue, "silu(gate) * up");
  EXPECT_THAT(problem(plan, "expert-down").serves, ElementsAre(ServedLayer{"experts' down", "0, 2-3"}));
  const auto& route = std::get<RouteConfig>(problem(plan, "route").config).problem;
  EXPECT_EQ((std::tuple{route.experts, route.top_k, route.renormalize}), (std::tuple{16, 8, true}));
  const auto& sum = std::get<MoeCombineConfig>(problem(plan, "moe-combine").config).problem;
  EXPECT_EQ((std::tuple{sum.width, sum.top_k, sum.residual}), (std::tuple{512, 8, false}));
  EXPECT_EQ(problem(plan, "gate-up").serves[0].layers, "1");
  const ModelPlan divided = plan_model(json, {.tp = 2, .ep = 4});
  EXPECT_EQ(gemm(divided, "expert-gate-up").groups.count, 4);
  EXPECT_EQ(gemm(divided, "expert-gate-up").n, 512);
  EXPECT_EQ(std::get<RouteConfig>(problem(divided, "route").config).problem.local_experts, 4);
  EXPECT_THAT(refusal(json, {.ep = 3}), HasSubstr("/num_experts: num_experts 16 does not divide among ep 3; ep 2"));
}

TEST(ModelPlan, ExpertsOfEachFamilyAreChosenAndGatedAsItDoes) {
  const auto route = [](const ModelPlan& plan) { return std::get<RouteConfig>(problem(plan, "route").config).problem; };
  const std::string experts = R"("n_routed_experts": 16, "moe_intermediate_size": 128, "n_group": 4, "topk_group": 2,
      "num_experts_per_tok": 4, "first_k_dense_replace": 1)";
  const ModelPlan glm = plan_model(config("glm4_moe", experts + R"(, "routed_scaling_factor": 1.5)"), {});
  EXPECT_EQ(route(glm).score, RouteScore::kSigmoid);
  EXPECT_TRUE(route(glm).bias && route(glm).renormalize);
  EXPECT_EQ((std::tuple{route(glm).n_group, route(glm).topk_group, route(glm).factor}), (std::tuple{4, 2, 1.5}));
  EXPECT_TRUE(std::get<MoeCombineConfig>(problem(glm, "moe-combine").config).problem.residual) << "a shared expert's";
  const ModelPlan mixtral = plan_model(config("mixtral", R"("num_local_experts": 8)"), {});
  EXPECT_EQ(route(mixtral).order, RouteOrder::kTopKFirst);
  const ModelPlan oss = plan_model(config("gpt_oss", R"("num_local_experts": 8, "swiglu_limit": 6)"), {});
  EXPECT_EQ(gemm(oss, "expert-gate-up").epilogue,
            "(clamp(up + bias, -6, 6) + 1) * min(gate + bias, 6) * sigmoid(1.702 * min(gate + bias, 6))");
  EXPECT_EQ(gemm(oss, "expert-down").epilogue, "acc + bias");
  const ModelPlan shared_bias = plan_model(config("gpt_oss", R"("num_local_experts": 8)"), {.tp = 2});
  EXPECT_EQ(gemm(shared_bias, "expert-down-bias").epilogue, "acc + bias");
  EXPECT_EQ(gemm(shared_bias, "expert-down").epilogue, "acc");
  const std::string other = config("mixtral", R"("num_local_experts": 8, "hidden_act": "mish")");
  EXPECT_EQ(missing(plan_model(other, {}), "experts").reason,
            "no GEMM has gates of hidden_act mish; the server's own serves");
}

TEST(ModelPlan, QuantisedExpertsHaveFp8ProblemsOrAreMissing) {
  const std::string blocks = config("qwen3_moe", R"("num_experts": 16, "moe_intermediate_size": 256,
      "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]})");
  const ModelPlan plan = plan_model(blocks, {});
  EXPECT_EQ(gemm(plan, "expert-gate-up").scales, ScaleKind::kPerBlock);
  EXPECT_EQ(gemm(plan, "expert-down").dtype.b, DType::kE4m3);
  EXPECT_EQ(std::get<RowOpConfig>(problem(plan, "expert-tokens").config).problem.width, 512);
  EXPECT_EQ(std::get<RowOpConfig>(problem(plan, "expert-rows").config).problem.width, 256);
  const std::string kept = config("mixtral", R"("num_local_experts": 8, "quantization_config": {"quant_method": "fp8",
      "activation_scheme": "dynamic", "weight_block_size": [128, 128],
      "modules_to_not_convert": ["model.layers.1.block_sparse_moe.experts"]})");
  EXPECT_THAT(problem(plan_model(kept, {}), "expert-down-16").serves, ElementsAre(ServedLayer{"experts' down", "1"}));
  const std::string alike = config("qwen3_moe", R"("num_experts": 16, "moe_intermediate_size": 512,
      "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]})");
  const ModelPlan joined = plan_model(alike, {});
  EXPECT_EQ(std::get<RowOpConfig>(problem(joined, "expert-tokens").config).shapes[1].rows, 8 * 8192)
      << "one problem has the rows of tokens and of experts";
  const std::string mxfp4 =
      config("gpt_oss", R"("num_local_experts": 8, "quantization_config": {"quant_method": "mxfp4"})");
  EXPECT_EQ(missing(plan_model(mxfp4, {}), "experts").reason,
            "grouped GEMM of mxfp4 weights is to come; the server's own serves");
}

TEST(ModelPlan, LatentAttentionExpandsItsPromptsAndDecodesOverLatents) {
  const std::string json = config("deepseek_v3", R"("kv_lora_rank": 512, "q_lora_rank": 256, "qk_nope_head_dim": 128,
      "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 8, "moe_intermediate_size": 256,
      "n_shared_experts": 1, "first_k_dense_replace": 1)");
  const ModelPlan plan = plan_model(json, {});
  EXPECT_EQ(attention(plan, "prefill").head_dim, (HeadDim{192, 128}));
  EXPECT_EQ(attention(plan, "prefill").rope, (Rope{64, DType::kBf16})) << "all heads share it";
  EXPECT_EQ(attention(plan, "prefill-context").rope.width, 64);
  EXPECT_EQ(attention(plan, "decode").rope.width, 0);
  EXPECT_TRUE(attention(plan, "prefill").lse);
  EXPECT_EQ(attention(plan, "prefill-context").mask.kind, MaskKind::kNone);
  EXPECT_EQ(attention(plan, "decode").head_dim, (HeadDim{576, 512}));
  EXPECT_EQ(attention(plan, "decode").heads, (Heads{8, 1}));
  EXPECT_EQ(attention(plan, "decode").v_layout, VLayout::kKeyPrefix);
  for (const auto& [word, kind] : {std::pair{"", ScaleKind::kPerTensor}, {"per_block", ScaleKind::kPerBlock}}) {
    const AttentionProblem decode = attention(plan_model(json, {.kv = "e4m3", .kv_scales = word}), "decode");
    EXPECT_EQ(decode.dtype.kv, DType::kE4m3);
    EXPECT_EQ(decode.scales, kind);
  }
  EXPECT_THAT(refusal(json, {.kv = "e4m3", .kv_scales = "per_head"}),
              HasSubstr("--kv-scales: \"per_head\" does not fit a cache of latents; it takes per_tensor or per_block"));
  EXPECT_EQ(size(plan, "qkv-a"), Size(256 + 576, 512));
  EXPECT_EQ(size(plan, "shared-gate-up"), Size(512, 512));
  EXPECT_EQ(size(plan, "absorbed-q"), Size(512, 128));
  EXPECT_EQ(size(plan, "absorbed-o"), Size(128, 512));
  EXPECT_EQ(gemm(plan, "absorbed-q").layout, OperandLayout::kNn) << "kv_b_proj has columns of W_UK innermost";
  for (const char* name : {"absorbed-q", "absorbed-o"}) {
    EXPECT_EQ(gemm(plan, name).groups, (GemmGroups{.kind = GroupKind::kBatch, .count = 8}));
    EXPECT_EQ(gemm(plan, name).dtype.b, DType::kBf16);
    EXPECT_EQ(std::get<GemmConfig>(problem(plan, name).config).shapes.front().m, 256 * 8);
  }
  EXPECT_EQ(attention(plan_model(json, {.server = "hf"}), "decode").heads, (Heads{8, 8})) << "keys are expanded there";
}

TEST(ModelPlan, LatentAttentionHasWholeKeysWhereNoKernelTakesTheirParts) {
  const std::string json = config("deepseek_v3", R"("kv_lora_rank": 512, "qk_nope_head_dim": 112,
      "qk_rope_head_dim": 80, "v_head_dim": 128, "n_routed_experts": 8, "moe_intermediate_size": 256,
      "first_k_dense_replace": 1)");
  const ModelPlan plan = plan_model(json, {});
  EXPECT_EQ(attention(plan, "prefill").head_dim, (HeadDim{192, 128}));
  EXPECT_EQ(attention(plan, "prefill").rope.width, 0) << "a rotary part has 64 elements at most";
}

TEST(ModelPlan, WhatNoKernelTakesIsMissingWithThePlannersReason) {
  const std::string json = R"({"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 2,
      "num_attention_heads": 8, "head_dim": 320, "intermediate_size": 1536, "vocab_size": 1024})";
  const ModelPlan plan = plan_model(json, {});
  EXPECT_THAT(names(plan), ElementsAre("qkv", "o", "gate-up", "down", "lm-head"));
  EXPECT_THAT(missing(plan, "attention decode").reason, HasSubstr("sm_90a: /problem/head_dim/qk: 320"));
}

TEST(ModelPlan, ReadsQuantisationInItsDialects) {
  const auto block = [](const std::string& more) {
    return config("llama",
                  R"("quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128])" + more + "}");
  };
  const ModelPlan plan = plan_model(block(""), {});
  EXPECT_EQ(gemm(plan, "qkv").dtype.a, DType::kE4m3);
  EXPECT_EQ(gemm(plan, "qkv").scales, ScaleKind::kPerBlock);
  EXPECT_EQ(gemm(plan, "lm-head").dtype.a, DType::kBf16);
  const ModelPlan mixed = plan_model(block(R"(, "modules_to_not_convert": ["lm_head", "model.layers.1.mlp"])"), {});
  EXPECT_EQ(problem(mixed, "down").serves[0].layers, "0, 2-3");
  EXPECT_EQ(problem(mixed, "down-16").serves[0].layers, "1");
  EXPECT_EQ(gemm(mixed, "down-16").dtype.a, DType::kBf16);
  const auto scales = [](const std::string& text) {
    return gemm(plan_model(config("llama", R"("quantization_config": )" + text), {}), "o").scales;
  };
  EXPECT_EQ(scales(R"({"quant_method": "fp8", "activation_scheme": "static"})"), ScaleKind::kPerTensor);
  EXPECT_EQ(scales(R"({"quant_method": "fp8", "activation_scheme": "dynamic"})"), ScaleKind::kPerToken);
  const std::string e4m3 = R"("num_bits": 8, "type": "float", "strategy": )";
  EXPECT_EQ(scales(R"({"quant_method": "compressed-tensors", "ignore": ["re:.*gate_proj$"], "config_groups": {"group_0":
      {"weights": {)" +
                   e4m3 + R"("channel"}, "input_activations": {)" + e4m3 + R"("token"}}}})"),
            ScaleKind::kPerToken);
  const ModelPlan awq = plan_model(config("llama", R"("quantization_config": {"quant_method": "awq"})"), {});
  EXPECT_THAT(missing(awq, "qkv").reason, HasSubstr("no GEMM here takes weights of quant_method \"awq\""));
  EXPECT_EQ(missing(awq, "qkv").shape, "[1024, 512]");
}

TEST(ModelPlan, ReadsWhatModelOptQuantised) {
  const auto plan = [](const std::string& more) {
    return plan_model(config("llama", R"("quantization_config": {"quant_method": "modelopt", )" + more + "}"), {});
  };
  EXPECT_EQ(gemm(plan(R"("quant_algo": "FP8")"), "o").scales, ScaleKind::kPerTensor);
  EXPECT_EQ(gemm(plan(R"("quant_algo": "FP8_PER_CHANNEL_PER_TOKEN")"), "o").scales, ScaleKind::kPerToken);
  EXPECT_THAT(missing(plan(R"("quant_algo": "NVFP4")"), "o").reason,
              HasSubstr("a plan has no GEMM for what ModelOpt calls \"NVFP4\""));
  const auto layers_in_16_bits = [&](const std::string& excluded) {
    std::string text;
    const ModelPlan made = plan(R"("quant_algo": "FP8", "ignore": [")" + excluded + R"("])");
    for (const PlannedProblem& each : made.problems)
      if (name_of(each.config).ends_with("-16")) text += each.serves[0].layer + " " + each.serves[0].layers + ";";
    return text;
  };
  EXPECT_EQ(layers_in_16_bits("model.layers.2*"), "qkv 2;o 2;gate-up 2;down 2;");
  EXPECT_EQ(layers_in_16_bits("*.1.self_attn.o_proj"), "o 1;");
  EXPECT_EQ(layers_in_16_bits("*o_pro"), "") << "a pattern matches whole names";
  EXPECT_EQ(layers_in_16_bits("model.layers.1.mlp.down_proj"), "down 1;");
}

TEST(ModelPlan, ExpressionsOfModulesMatchAsWritten) {
  const auto kept = [](const std::string& expression) {
    const ModelPlan plan =
        plan_model(config("llama", R"("quantization_config": {"quant_method": "fp8", "ignored_layers":
        [")" + expression + R"("]})"),
                   {});
    std::string text;
    for (const PlannedProblem& each : plan.problems)
      if (name_of(each.config).ends_with("-16")) text += each.serves[0].layer + " " + each.serves[0].layers + ";";
    return text;
  };
  EXPECT_EQ(kept("model.layers.2"), "qkv 2;o 2;gate-up 2;down 2;");
  EXPECT_EQ(kept("re:model\\\\.layers\\\\.1\\\\..*down_proj$"), "down 1;");
  EXPECT_EQ(kept("self_attn.o_pro"), "") << "a part of a name is no module";
}

TEST(ModelPlan, RefusesByFieldAndNamesTheNearest) {
  EXPECT_EQ(refusal(config("llama"), {.tp = 3}),
            "/num_attention_heads: num_attention_heads 8 does not divide among tp 3; tp 2 is accepted");
  EXPECT_EQ(refusal(config("llama"), {.tp = 16}),
            "/num_attention_heads: num_attention_heads 8 does not divide among tp 16; tp 8 is accepted");
  const std::string fp8 = config("llama", R"("quantization_config": {"quant_method": "fp8", "weight_block_size":
      [128, 128]})");
  EXPECT_EQ(refusal(fp8, {.tp = 8}),
            "/num_attention_heads: num_attention_heads 8 / tp 8 * head_dim 64 = 64 is no whole number of the blocks of "
            "128 elements that share a scale (/quantization_config/weight_block_size); tp 2 is accepted");
  EXPECT_EQ(
      refusal(config("llana")),
      "/model_type: \"llana\" is not known here (did you mean \"llama\"?); it takes one of deepseek_v2, "
      "deepseek_v3, gemma2, gemma3_text, glm4_moe, gpt_oss, kimi_k2, llama, mistral, mixtral, phi3, qwen2, qwen2_moe, "
      "qwen3, qwen3_moe");
  EXPECT_EQ(refusal(R"({"hidden_size": 8})").substr(0, 25), "/model_type: is missing; ");
  EXPECT_EQ(refusal("{\"model_type\": \"llama\",\n \"hidden_size\": 40"),
            "line 2, column 19: the JSON ends before it is complete; the file is cut short behind the field "
            "\"hidden_size\", fetch it again");
  EXPECT_EQ(refusal(R"({"model_type": "llama", "num_hidden_layers": 2})"),
            "/hidden_size: is missing; a config.json of model_type llama has it");
  EXPECT_EQ(refusal(config("llama", R"("max_position_embeddings": -1)")),
            "/max_position_embeddings: -1 does not fit; it takes a whole number in [1, 16777216]");
  EXPECT_EQ(refusal(R"({"model_type": "gemma3", "text_config": [1]})"),
            "/text_config: an array of 1 does not fit; it takes an object");
  EXPECT_THAT(refusal(config("llama"), {.name = "a b"}), HasSubstr("--name: \"a b\" is not a name"));
  EXPECT_THAT(refusal(config("llama"), {.server = "tgi"}), HasSubstr("it takes vllm, sglang or hf"));
}

TEST(ModelPlan, HostileConfigsAreRefused) {
  EXPECT_THAT(refusal("[1]"), HasSubstr("is no config.json"));
  EXPECT_THAT(refusal(R"({"model_type": 7})"), HasSubstr("/model_type: is missing"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "hidden_size": 16777216, "num_hidden_layers": 16777216})"),
              HasSubstr("/num_hidden_layers: 16777216 is outside [1, 1024]"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "hidden_size": 16777216, "num_hidden_layers": 1, "head_dim": 16777216,
      "num_attention_heads": 16777216, "intermediate_size": 16777216, "vocab_size": 16777216})"),
              HasSubstr("is outside [1, 16777216]"));
  EXPECT_THAT(refusal(config("llama", R"("quantization_config": 3)")),
              HasSubstr("/quantization_config: 3 does not fit"));
  EXPECT_THAT(refusal(config("llama", R"("quantization_config": {"quant_method": "compressed-tensors",
      "config_groups": {"a": 1}, "ignore": ["re:(a*)*b"]})")),
              HasSubstr("/quantization_config/ignore/0: \"(a*)*b\" is an expression that is not read here"));
}

TEST(ModelPlan, AConfigThatIsCutShortAnywhereIsRefused) {
  const std::string whole = config("gpt_oss", R"("num_local_experts": 8, "layer_types": ["full_attention",
      "full_attention", "full_attention", "full_attention"], "quantization_config": {"quant_method": "mxfp4"})");
  plan_model(whole, {});
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(plan_model(whole.substr(0, size), {}), ConfigError) << size;
}

TEST(ModelPlan, EachFieldOfAnotherTypeIsRefusedOrWithoutEffect) {
  const JsonValue whole = JsonValue::parse(config("qwen3_moe", R"("num_experts": 16, "moe_intermediate_size": 256,
      "mlp_only_layers": [1], "decoder_sparse_step": 1, "sliding_window": 128, "use_sliding_window": true,
      "max_window_layers": 2, "attention_bias": true, "max_position_embeddings": 4096, "dtype": "bfloat16",
      "quantization_config": {"quant_method": "fp8"})"));
  int refused = 0;
  for (const auto& [field, unused] : whole.members())
    for (const JsonValue& value :
         {JsonValue(), JsonValue(true), JsonValue(-1), JsonValue(0), JsonValue(1e300), JsonValue(std::int64_t{1} << 60),
          JsonValue("x"), JsonValue::array({1, "x"}), JsonValue::object()}) {
      JsonValue changed = whole;
      changed.set(field, value);
      try {
        for (const PlannedProblem& each : plan_model(changed.dump(), {}).problems)
          EXPECT_FALSE(each.serves.empty()) << field;
      } catch (const ConfigError& error) {
        ++refused;
        EXPECT_THAT(error.what(), testing::StartsWith("/")) << field;
      }
    }
  EXPECT_GT(refused, 60);
}

TEST(PlanFile, IsReadBackAndRefusedByPath) {
  const ModelPlan plan = plan_model(config("llama"), {});
  const std::string text = write_plan(plan);
  const std::vector<Config> configs = read_plan(text);
  ASSERT_EQ(configs.size(), plan.problems.size());
  for (std::size_t i = 0; i < configs.size(); ++i) EXPECT_EQ(configs[i], plan.problems[i].config);
  EXPECT_EQ(read_plan(explain_plan(plan).dump()), configs) << "what explains is the plan's own";
  const auto refused = [&](const std::string& from, const std::string& to) -> std::string {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    try {
      read_plan(changed);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no refusal";
  };
  EXPECT_THAT(refused("\"q\": 8", "\"q\": 7"), HasSubstr("/problems/0/problem/heads"));
  EXPECT_EQ(refused("\"least\": 1", "\"least\": 9000"), "/problems/3/rows/most: 8192 is below least, 9000");
  EXPECT_THAT(refused("\"serving\"", "\"servant\""), HasSubstr("/servant: is not a field here"));
  EXPECT_THAT(refused("-mixed\"", "-decode\""), HasSubstr("/problems/1/name"));
  EXPECT_THAT(refused("\"version\": 1", "\"version\": 2"), HasSubstr("/version: 2 is not a version"));
}

}  // namespace
}  // namespace kernelwright::model_plan_test

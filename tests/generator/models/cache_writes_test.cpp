// The cache writes of a plan: norm, rotation, layout and dtype of each kind of layer, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernelwright/generator/models/model_plan.h"

namespace kernelwright::cache_writes_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string config(const std::string& type, const std::string& more = "") {
  return R"({"model_type": ")" + type + R"(", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 64, "intermediate_size": 1536, "vocab_size": 3000)" +
         (more.empty() ? "" : ", " + more) + "}";
}

std::vector<const PlannedProblem*> writes(const ModelPlan& plan) {
  std::vector<const PlannedProblem*> found;
  for (const PlannedProblem& each : plan.problems)
    if (std::holds_alternative<KvWriteConfig>(each.config)) found.push_back(&each);
  return found;
}
KvWriteProblem write(const std::string& json, const ServingOptions& options = {}) {
  const ModelPlan plan = plan_model(json, options);
  const auto found = writes(plan);
  if (found.size() != 1) throw std::out_of_range(std::to_string(found.size()) + " cache writes");
  return std::get<KvWriteConfig>(found[0]->config).problem;
}
std::string origin(const std::string& json, const std::string& begin) {
  const ModelPlan plan = plan_model(json, {});
  for (const std::string& line : writes(plan).at(0)->from)
    if (line.starts_with(begin)) return line;
  return "no " + begin;
}
std::string refusal(const std::string& json) {
  try {
    plan_model(json, {});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no refusal";
}

TEST(CacheWrites, HaveTheHeadsOfARankAndTheLayoutOfTheServer) {
  const KvWriteProblem vllm = write(config("llama"), {.tp = 2}), sglang = write(config("llama"), {.server = "sglang"}),
                       hf = write(config("llama"), {.server = "hf"});
  EXPECT_EQ(vllm.heads, (Heads{4, 2}));
  EXPECT_EQ(vllm.head_dim, (HeadDim{64, 64}));
  EXPECT_EQ(vllm.kv_layout, (KvLayout{KvLayoutKind::kPaged, 16}));
  EXPECT_EQ(vllm.index, CacheIndex::kSlots);
  EXPECT_EQ(vllm.rope, (RopeRotation{.style = RopeStyle::kNeox, .width = 64}));
  EXPECT_EQ(vllm.qk_norm, QkNorm{});
  EXPECT_EQ(sglang.kv_layout, (KvLayout{KvLayoutKind::kPaged, 1}));
  EXPECT_EQ(hf.kv_layout.kind, KvLayoutKind::kPadded);
  EXPECT_EQ(hf.index, CacheIndex::kPositions);
}

TEST(CacheWrites, AnE4m3CacheHasAScalePerTensor) {
  const KvWriteProblem problem = write(config("llama", R"("dtype": "float16")"), {.kv = "e4m3"});
  EXPECT_EQ(problem.dtype, (KvWriteDTypes{DType::kF16, DType::kF16, DType::kE4m3}));
  EXPECT_EQ(problem.scales.k, ScaleKind::kPerTensor);
  EXPECT_EQ(problem.scales.v, ScaleKind::kPerTensor);
}

TEST(CacheWrites, AnE4m3CacheHasTheScalesThatTheCallerNames) {
  const KvWriteProblem problem = write(config("llama"), {.kv = "e4m3", .kv_scales = "per_token"});
  EXPECT_EQ(problem.scales.k, ScaleKind::kPerToken);
  EXPECT_EQ(problem.scales.v, ScaleKind::kPerToken);
}

TEST(CacheWrites, NormsAreThoseOfTheFamily) {
  const QkNorm qwen = write(config("qwen3", R"("rms_norm_eps": 1e-5)")).qk_norm;
  EXPECT_EQ(qwen, (QkNorm{.kind = NormKind::kRms, .eps = 1e-5}));
  EXPECT_EQ(write(config("gemma3_text")).qk_norm, (QkNorm{.kind = NormKind::kRms, .weight_offset = 1}));
  const std::string experts = R"("n_routed_experts": 8, "moe_intermediate_size": 128)";
  EXPECT_EQ(write(config("glm4_moe", experts)).qk_norm.kind, NormKind::kNone);
  EXPECT_EQ(write(config("glm4_moe", experts + R"(, "use_qk_norm": true)")).qk_norm.kind, NormKind::kRms);
  EXPECT_EQ(origin(config("qwen3"), "qk_norm"),
            "qk_norm: rms of each head, model_type qwen3; rms_norm_eps 1e-06 (default)");
  EXPECT_EQ(origin(config("llama"), "qk_norm"), "qk_norm: none; model_type llama has none");
}

TEST(CacheWrites, APartOfAHeadTurns) {
  EXPECT_EQ(write(config("phi3", R"("partial_rotary_factor": 0.75)")).rope.width, 48);
  EXPECT_EQ(write(config("llama", R"("rope_parameters": {"partial_rotary_factor": 0.5})")).rope.width, 32);
  const std::string glm = config("glm4_moe", R"("n_routed_experts": 8, "moe_intermediate_size": 128)");
  EXPECT_EQ(write(glm).rope.width, 32);
  EXPECT_EQ(origin(glm, "rope"),
            "rope: neox, width head_dim 64 * partial_rotary_factor 0.5 (default of glm4_moe) = 32");
  EXPECT_THAT(refusal(config("phi3", R"("partial_rotary_factor": 1.5)")), HasSubstr("/partial_rotary_factor: 1.5"));
}

TEST(CacheWrites, LayersWithOtherAnglesShareAProblem) {
  const ModelPlan plan = plan_model(config("gemma3_text", R"("rope_theta": 1000000, "rope_local_base_freq": 10000,
      "rope_scaling": {"rope_type": "linear", "factor": 8}, "sliding_window": 64, "sliding_window_pattern": 2)"),
                                    {});
  const auto found = writes(plan);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(name_of(found[0]->config), plan.name + "-kv-write");
  EXPECT_THAT(found[0]->serves, ElementsAre(ServedLayer{"cache write", "0, 2"}, ServedLayer{"cache write", "1, 3"}));
  EXPECT_EQ(*(found[0]->from.end() - 2), "cos_sin of layers 0, 2: rope_local_base_freq 10000; a tensor of each launch");
  EXPECT_EQ(found[0]->from.back(),
            "cos_sin of layers 1, 3: rope_theta 1000000, rope_type linear, factor 8; a tensor of each launch");
}

TEST(CacheWrites, AFileMayHaveAnglesForEachTypeOfLayer) {
  const ModelPlan plan = plan_model(config("gemma3_text", R"("sliding_window": 64, "sliding_window_pattern": 2,
      "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                          "full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 4.0,
                                             "partial_rotary_factor": 0.5}})"),
                                    {});
  const auto found = writes(plan);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(name_of(found[0]->config), plan.name + "-window-kv-write");
  EXPECT_EQ(std::get<KvWriteConfig>(found[0]->config).problem.rope.width, 64);
  EXPECT_EQ(std::get<KvWriteConfig>(found[1]->config).problem.rope.width, 32);
  EXPECT_THAT(found[1]->from.back(), HasSubstr("rope_theta 500000, rope_type yarn, factor 4;"));
}

TEST(CacheWrites, AnUnknownScalingIsRefused) {
  EXPECT_THAT(
      refusal(config("llama", R"("rope_scaling": {"type": "spiral", "factor": 2})")),
      HasSubstr("/rope_scaling/type: \"spiral\" is no scaling that is known here; it takes one of default, dynamic"));
  EXPECT_THAT(refusal(config("llama", R"("rope_scaling": 3)")), HasSubstr("/rope_scaling: 3 does not fit"));
  EXPECT_EQ(refusal(config("llama", R"("rope_scaling": {"type": "yarn", "factor": 2})")), "no refusal");
}

std::string latent_config(const std::string& rank = "512") {
  return config("deepseek_v3", "\"kv_lora_rank\": " + rank + R"(, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64,
      "v_head_dim": 64, "n_routed_experts": 8, "moe_intermediate_size": 128, "first_k_dense_replace": 4)");
}

TEST(CacheWrites, LatentsAndRotaryPartsHaveALaunchEach) {
  const auto written = [](const ServingOptions& options) {
    const ModelPlan plan = plan_model(latent_config(), options);
    std::vector<KvWriteProblem> problems;
    for (const PlannedProblem* each : writes(plan)) problems.push_back(std::get<KvWriteConfig>(each->config).problem);
    EXPECT_EQ(problems.size(), 2u);
    problems.resize(2);
    return problems;
  };
  const auto problems = written({});
  const KvWriteProblem &latents = problems[0], &rotary = problems[1];
  EXPECT_EQ(latents.heads.kv * latents.head_dim.qk, 512);
  EXPECT_EQ(latents.qk_norm.kind, NormKind::kRmsAllHeads);
  EXPECT_FALSE(latents.q_out || latents.v_out || rotary.v_out);
  EXPECT_EQ(rotary.heads, (Heads{8, 1}));
  EXPECT_EQ(rotary.rope.style, RopeStyle::kGptj);
  EXPECT_EQ(rotary.rope.width, 64);
  EXPECT_TRUE(rotary.q_out);
  const auto records = written({.kv = "e4m3", .kv_scales = "per_block"});
  EXPECT_EQ(records[0].dtype.kv, DType::kE4m3);
  EXPECT_EQ(records[0].scales.k, ScaleKind::kPerToken) << "a scale for each 128 latents of a token";
  EXPECT_EQ(records[1].dtype.kv, DType::kBf16) << "a record keeps its rotary part in 16 bits";
  const auto one = written({.kv = "e4m3"});
  for (const KvWriteProblem& problem : one) {
    EXPECT_EQ(problem.dtype.kv, DType::kE4m3);
    EXPECT_EQ(problem.scales.k, ScaleKind::kPerTensor);
  }
}

TEST(CacheWrites, WidthsThatNoKernelTakesAreMissing) {
  const auto reason = [](const std::string& json, const ServingOptions& options) {
    const ModelPlan plan = plan_model(json, options);
    EXPECT_TRUE(writes(plan).empty());
    for (const MissingLayer& layer : plan.missing)
      if (layer.layer == "cache write") return layer.reason;
    return std::string("not missing");
  };
  EXPECT_THAT(reason(latent_config(), {.server = "hf"}), HasSubstr("made of two parts"));
  EXPECT_THAT(reason(latent_config("200"), {}), HasSubstr("200 latents are no multiple of 128"));
  EXPECT_THAT(reason(config("phi3", R"("partial_rotary_factor": 0.4)"), {}),
              HasSubstr("sm_90a: /problem/rope/width: 25"));
}

}  // namespace
}  // namespace kernelwright::cache_writes_test

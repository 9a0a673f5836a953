// The table of model families. Numbers are transformers' defaults of fields that published files leave out.
#include "kernelwright/generator/models/families.h"

namespace kernelwright::detail {
namespace {

constexpr ExpertRow kMixtralExperts{.count = "num_local_experts",
                                    .width = "intermediate_size",
                                    .expert = "block_sparse_moe.experts.0.w1",
                                    .choice = ChoiceRule::kChosenSoftmax};
constexpr ExpertRow kQwenExperts{.count = "num_experts", .width = "moe_intermediate_size"};
constexpr ExpertRow kQwen2Experts{.count = "num_experts",
                                  .width = "moe_intermediate_size",
                                  .shared_width = "shared_expert_intermediate_size",
                                  .shared_gate = true};
constexpr ExpertRow kGptOssExperts{.count = "num_local_experts",
                                   .width = "intermediate_size",
                                   .router_bias = true,
                                   .router = "router",
                                   .choice = ChoiceRule::kChosenSoftmax,
                                   .clamped = true};
constexpr ExpertRow deepseek_experts(ChoiceRule choice, double factor) {
  return {.count = "n_routed_experts",
          .width = "moe_intermediate_size",
          .shared_count = "n_shared_experts",
          .shared_width = "moe_intermediate_size",
          .f32_logits = true,
          .choice = choice,
          .factor = factor};
}
constexpr ExpertRow kDeepSeekV2Experts = deepseek_experts(ChoiceRule::kLimitedSoftmax, 1);
constexpr ExpertRow kDeepSeekV3Experts = deepseek_experts(ChoiceRule::kSigmoid, 2.5);
constexpr ExpertRow kGlm4Experts = deepseek_experts(ChoiceRule::kSigmoid, 1);

constexpr FieldDefault kGemma2Defaults[] = {{"head_dim", 256},
                                            {"query_pre_attn_scalar", 256},
                                            {"sliding_window", 4096},
                                            {"attn_logit_softcapping", 50},
                                            {"vocab_size", 256000}};
constexpr FieldDefault kGemma3Defaults[] = {{"head_dim", 256},
                                            {"query_pre_attn_scalar", 256},
                                            {"sliding_window", 4096},
                                            {"sliding_window_pattern", 6},
                                            {"num_attention_heads", 8},
                                            {"num_key_value_heads", 4},
                                            {"max_position_embeddings", 131072},
                                            {"vocab_size", 262208}};
constexpr FieldDefault kGptOssDefaults[] = {{"attention_bias", 1},
                                            {"head_dim", 64},
                                            {"sliding_window", 128},
                                            {"num_local_experts", 128},
                                            {"num_experts_per_tok", 4},
                                            {"vocab_size", 201088},
                                            {"max_position_embeddings", 131072}};
constexpr FieldDefault kDeepSeekV2Defaults[] = {{"n_shared_experts", 2}};
constexpr FieldDefault kDeepSeekV3Defaults[] = {{"first_k_dense_replace", 3},
                                                {"n_shared_experts", 1},
                                                {"num_experts_per_tok", 8},
                                                {"n_group", 8},
                                                {"topk_group", 4}};
constexpr FieldDefault kGlm4Defaults[] = {{"first_k_dense_replace", 1},
                                          {"n_shared_experts", 1},
                                          {"num_experts_per_tok", 8},
                                          {"n_group", 1},
                                          {"topk_group", 1}};
constexpr FieldDefault kMixtralDefaults[] = {{"num_experts_per_tok", 2}};
constexpr FieldDefault kQwen2MoeDefaults[] = {
    {"sliding_window", 4096}, {"max_window_layers", 28}, {"num_experts_per_tok", 4}};
constexpr FieldDefault kQwen3MoeDefaults[] = {
    {"sliding_window", 4096}, {"max_window_layers", 28}, {"num_experts_per_tok", 8}};
constexpr FieldDefault kMistralDefaults[] = {{"sliding_window", 4096}};
constexpr FieldDefault kQwen2Defaults[] = {{"sliding_window", 4096}, {"max_window_layers", 28}};
constexpr FieldDefault kQwen3Defaults[] = {{"head_dim", 128}, {"sliding_window", 4096}, {"max_window_layers", 28}};

constexpr FamilyRow kFamilies[] = {
    {.type = "deepseek_v2", .latent = true, .experts = &kDeepSeekV2Experts, .defaults = kDeepSeekV2Defaults},
    {.type = "deepseek_v3", .latent = true, .experts = &kDeepSeekV3Experts, .defaults = kDeepSeekV3Defaults},
    {.type = "gemma2",
     .qkv_bias = BiasRule::kAttentionBias,
     .o_bias = BiasRule::kAttentionBias,
     .windows = WindowRule::kEvenLayers,
     .softcap = true,
     .scalar = true,
     .defaults = kGemma2Defaults},
    {.type = "gemma3_text",
     .qkv_bias = BiasRule::kAttentionBias,
     .o_bias = BiasRule::kAttentionBias,
     .windows = WindowRule::kAllButEachNth,
     .softcap = true,
     .scalar = true,
     .qk_norm = NormRule::kAlways,
     .norm_offset = 1,
     .defaults = kGemma3Defaults},
    {.type = "glm4_moe",
     .qkv_bias = BiasRule::kAttentionBias,
     .qk_norm = NormRule::kIfUsed,
     .rotary_share = 0.5,
     .experts = &kGlm4Experts,
     .defaults = kGlm4Defaults},
    {.type = "gpt_oss",
     .qkv_bias = BiasRule::kAttentionBias,
     .o_bias = BiasRule::kAttentionBias,
     .windows = WindowRule::kEvenLayers,
     .sinks = true,
     .experts = &kGptOssExperts,
     .defaults = kGptOssDefaults},
    {.type = "kimi_k2", .latent = true, .experts = &kDeepSeekV3Experts, .defaults = kDeepSeekV3Defaults},
    {.type = "llama", .qkv_bias = BiasRule::kAttentionBias, .o_bias = BiasRule::kAttentionBias, .mlp_bias = true},
    {.type = "mistral", .windows = WindowRule::kEveryLayer, .defaults = kMistralDefaults},
    {.type = "mixtral", .windows = WindowRule::kEveryLayer, .experts = &kMixtralExperts, .defaults = kMixtralDefaults},
    {.type = "phi3", .windows = WindowRule::kEveryLayer, .fused = true},
    {.type = "qwen2", .qkv_bias = BiasRule::kAlways, .windows = WindowRule::kUpperLayers, .defaults = kQwen2Defaults},
    {.type = "qwen2_moe",
     .qkv_bias = BiasRule::kQkvBias,
     .windows = WindowRule::kLowerEvenLayers,
     .experts = &kQwen2Experts,
     .defaults = kQwen2MoeDefaults},
    {.type = "qwen3",
     .qkv_bias = BiasRule::kAttentionBias,
     .o_bias = BiasRule::kAttentionBias,
     .windows = WindowRule::kUpperLayers,
     .qk_norm = NormRule::kAlways,
     .defaults = kQwen3Defaults},
    {.type = "qwen3_moe",
     .qkv_bias = BiasRule::kAttentionBias,
     .o_bias = BiasRule::kAttentionBias,
     .windows = WindowRule::kEveryLayerIfUsed,
     .qk_norm = NormRule::kAlways,
     .experts = &kQwenExperts,
     .defaults = kQwen3MoeDefaults},
};

}  // namespace

std::span<const FamilyRow> family_rows() { return kFamilies; }

}  // namespace kernelwright::detail

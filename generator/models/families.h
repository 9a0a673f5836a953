/// One row for each model_type: where its layers differ from a Llama's. model_families.cpp has the rows.
#pragma once

#include <span>
#include <string_view>

#include "kernelwright/generator/models/model.h"
#include "kernelwright/generator/models/model_fields.h"

namespace kernelwright::detail {

/// Whether the linear layers around attention add a bias.
enum class BiasRule {
  kNever,
  kAlways,
  kAttentionBias,  // the field attention_bias says so
  kQkvBias,        // qkv_bias does, and a file without it has them
};

/// Which layers have a sliding window, where the file has no layer_types.
enum class WindowRule {
  kNever,
  kEveryLayer,        // sliding_window is for all layers
  kEveryLayerIfUsed,  // the same where use_sliding_window is true
  kUpperLayers,       // likewise, for layers from max_window_layers on
  kLowerEvenLayers,   // likewise, for layers of even number below max_window_layers
  kEvenLayers,        // layers 0, 2, 4 and so on
  kAllButEachNth,     // each sliding_window_pattern-th layer is full
};

/// Which queries and keys are normalised, each head by itself.
enum class NormRule {
  kNever,
  kAlways,
  kIfUsed,  // use_qk_norm says so
};

/// How a mixture chooses experts, where fields do not say otherwise.
enum class ChoiceRule {
  kSoftmax,         // of all experts; norm_topk_prob divides by the sum of the chosen ones
  kChosenSoftmax,   // of the chosen experts
  kLimitedSoftmax,  // the first, with groups of experts where topk_method is group_limited_greedy
  kSigmoid,         // with a bias for the choice, and groups of experts by the sum of two scores
};

/// The fields of a mixture of experts.
struct ExpertRow {
  std::string_view count, width, shared_count, shared_width;  // names of fields; "": the family has none
  bool router_bias = false, f32_logits = false, shared_gate = false;
  std::string_view router = "gate";                     // its module in a layer's mlp
  std::string_view expert = "mlp.experts.0.gate_proj";  // a matrix of the first one, in a layer
  ChoiceRule choice = ChoiceRule::kSoftmax;
  double factor = 1;     // of weights, where the file has no routed_scaling_factor
  bool clamped = false;  // gates and ups are clamped as gpt-oss does, and have biases
};

struct FamilyRow {
  std::string_view type;
  BiasRule qkv_bias = BiasRule::kNever, o_bias = BiasRule::kNever;
  bool mlp_bias = false;  // the field mlp_bias counts
  WindowRule windows = WindowRule::kNever;
  bool softcap = false, sinks = false;
  bool scalar = false;  // query_pre_attn_scalar gives the scale
  bool fused = false;   // the checkpoint has q, k and v as one, and gate and up
  bool latent = false;  // multi-head latent attention
  NormRule qk_norm = NormRule::kNever;
  int norm_offset = 0;      // what the norm adds to its weights
  double rotary_share = 1;  // of a head, where the file has no partial_rotary_factor
  const ExpertRow* experts = nullptr;
  std::span<const FieldDefault> defaults;
};

/// Sorted by type.
std::span<const FamilyRow> family_rows();

/// Fills how queries and keys of `layer` are normalised and rotated. `type`: a word of layer_types, for files that have
/// angles for each of them.
void fill_norm_and_rotation(const ModelFields& fields, const FamilyRow& family, std::string_view type,
                            AttentionLayer& layer);

/// The epilogue of an expert's gates and ups; "" for an activation that no GEMM has.
std::string gates_of_experts(const ModelFields& fields, const ExpertRow& row);
/// Fills how experts are chosen, by logits of that dtype.
void fill_choice(const ModelFields& fields, const ExpertRow& row, DType logits, ExpertLayer& experts);

/// Fills the layers, attention and linear layers of `model`, whose quantisation is already read.
void fill_model(const ModelFields& fields, const FamilyRow& family, Sharding& sharding, Model& model);

}  // namespace kernelwright::detail

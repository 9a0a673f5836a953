/// Inside of generator/models: the steps of plan_model().
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernelwright/generator/models/model_plan.h"

namespace kernelwright::detail {

/// The layers of each linear layer, by its name, that the checkpoint quantises.
using QuantizedLayers = std::map<std::string, Layers>;
QuantizedLayers quantized_layers(const Model& model);

/// Adds a violation for each side of a rank's weight that cuts through a block of scales.
void check_blocks(const Model& model, const QuantizedLayers& quantized, Sharding& sharding);

/// A shape for each range of rows that a plan of a GEMM tells apart, within `rows`; and one for `run`.
std::vector<GemmShape> shapes_of(const RowRange& rows);

/// The cache of keys and values as a server keeps it: its layout.
/// The scales of an e4m3 cache. Throws ConfigError for a word that is none of --kv-scales.
ScaleKind cache_scales(const ServingOptions& serving);
KvLayout cache_layout(const ServingOptions& serving);
/// "kv: e4m3, pages of 16 keys; --kv e4m3, --server vllm"
std::string cache_words(DType kv, const KvLayout& layout, const ServingOptions& serving);

/// Adds what is not yet in the plan.
void add_missing(ModelPlan& plan, const std::vector<MissingLayer>& missing);

/// Moves problems that no kernel takes to what is missing, with the planner's reason.
void judge(ModelPlan& plan);
/// Whether every architecture of `archs` has a kernel that takes the problem.
bool all_take(const std::vector<Arch>& archs, const AttentionProblem& problem);

/// Adds the problems of a model to a plan. Equal problems join: one has all the layers that it serves.
class PlanBuilder {
 public:
  PlanBuilder(const Model& model, const ServerRow& server, ModelPlan& plan)
      : model_(model), server_(server), plan_(plan) {}
  void add_attention();
  void add_cache_writes();
  void add_linears(const QuantizedLayers& quantized);
  void add_experts();

 private:
  void add_decode(const AttentionLayer& layer);
  void add_decode(const AttentionLayer& layer, AttentionProblem problem);
  void add_prefill(const AttentionLayer& layer);
  void add_passes(const AttentionLayer& layer, const std::string& pass, AttentionProblem problem,
                  std::vector<AttentionShape> shapes);
  void add_latent(const AttentionLayer& layer);
  void add_absorbed(const AttentionLayer& layer);
  void add_latent_writes(const AttentionLayer& layer);
  AttentionProblem problem_of(const AttentionLayer& layer) const;
  std::vector<std::string> origin_of(const AttentionLayer& layer) const;
  void add(const AttentionLayer& layer, const std::string& pass, AttentionProblem problem,
           std::vector<AttentionShape> shapes);
  void add_linear(const Linear& linear, const Layers& layers, bool quantized, const std::string& suffix);
  void add_gemm(const Linear& linear, const std::string& name, const std::string& layer, const Layers& layers,
                const Fact& n, bool quantized, bool bias);
  void add_route_and_sum(const ExpertLayer& experts);
  void add_expert_gemms(const ExpertLayer& experts, const Layers& layers, bool quantized, const std::string& suffix);
  void join(PlannedProblem fresh);

  const Model& model_;
  const ServerRow& server_;
  ModelPlan& plan_;
};

}  // namespace kernelwright::detail

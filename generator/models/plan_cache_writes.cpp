// What writes a model's cache: one problem for all layers whose heads, norm and rotation are alike.
#include <fmt/format.h>

#include <algorithm>

#include "contract/attention_latent_record.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/message.h"
#include "kernelwright/generator/models/plan_parts.h"

namespace kernelwright::detail {
namespace {

constexpr int kCheckTokens = 37;  // of the shape for run

KvWriteProblem write_problem(const AttentionLayer& layer, const Model& model, const ServingOptions& serving) {
  const auto number = [](const Fact& fact) { return static_cast<int>(fact.value()); };
  KvWriteProblem problem;
  problem.dtype = {model.dtype, model.dtype, model.dtype};
  problem.head_dim = {number(layer.qk), number(layer.v)};
  problem.heads = {number(layer.q_heads), number(layer.kv_heads)};
  problem.kv_layout = cache_layout(serving);
  if (problem.kv_layout.kind != KvLayoutKind::kPaged) problem.index = CacheIndex::kPositions;
  problem.qk_norm = layer.qk_norm;
  if (layer.rope_width.value() > 0)
    problem.rope.style = RopeStyle::kNeox, problem.rope.width = number(layer.rope_width);
  if (serving.kv == "e4m3") {
    problem.dtype.kv = DType::kE4m3;
    problem.scales.k = problem.scales.v = cache_scales(serving);
  }
  return problem;
}

std::vector<std::string> write_origin(const AttentionLayer& layer, const KvWriteProblem& problem,
                                      const ServingOptions& serving) {
  return {"heads.q: " + layer.q_heads.text(),
          "heads.kv: " + layer.kv_heads.text(),
          "head_dim.qk: " + layer.qk.text(),
          "head_dim.v: " + layer.v.text(),
          "qk_norm: " + layer.norm_words,
          "rope: neox, width " + layer.rope_width.text(),
          cache_words(problem.dtype.kv, problem.kv_layout, serving)};
}

/// Of latent attention: the latents of new keys, normalised over all of them. Each 128 are a head, which a record
/// scales by itself.
KvWriteProblem latent_problem(const AttentionLayer& layer, const Model& model, const ServingOptions& serving) {
  const int heads = static_cast<int>(layer.latent_v.value()) / contract::kLatentScaleBlock;
  KvWriteProblem problem;
  problem.dtype = {model.dtype, model.dtype, model.dtype};
  problem.head_dim = {contract::kLatentScaleBlock, contract::kLatentScaleBlock};
  problem.heads = {heads, heads};
  problem.kv_layout = cache_layout(serving);
  problem.qk_norm.kind = NormKind::kRmsAllHeads;
  problem.q_out = problem.v_out = false;
  if (serving.kv == "e4m3") {
    problem.dtype.kv = DType::kE4m3;
    const ScaleKind kind = cache_scales(serving);
    problem.scales.k = kind == ScaleKind::kPerBlock ? ScaleKind::kPerToken : kind;
  }
  return problem;
}

/// The rotary parts: that of new keys, which all heads share, and those of the queries. A record keeps it in 16 bits.
KvWriteProblem rotary_problem(const AttentionLayer& layer, const Model& model, const ServingOptions& serving) {
  KvWriteProblem problem = latent_problem(layer, model, serving);
  const int width = static_cast<int>(layer.shared_rope.value());
  problem.head_dim = {width, width};
  problem.heads = {static_cast<int>(layer.q_heads.value()), 1};
  problem.qk_norm = {};
  problem.rope.style = RopeStyle::kGptj, problem.rope.width = width;
  problem.q_out = true;
  if (problem.scales.k == ScaleKind::kPerToken) problem.dtype.kv = model.dtype, problem.scales = {};
  return problem;
}

std::vector<KvWriteShape> write_shapes(const ServingOptions& serving) {
  return {{.name = "decode", .tokens = serving.max_seqs},
          {.name = "prefill", .tokens = serving.max_tokens},
          {.name = "check", .tokens = kCheckTokens, .check = true}};
}

}  // namespace

ScaleKind cache_scales(const ServingOptions& serving) {
  for (const ScaleKind kind : {ScaleKind::kPerTensor, ScaleKind::kPerHead, ScaleKind::kPerToken, ScaleKind::kPerBlock})
    if (serving.kv_scales == to_string(kind) || serving.kv_scales.empty()) return kind;
  throw ConfigError("--kv-scales", quoted_for_message(serving.kv_scales) +
                                       " is no kind of a cache's scales; it takes per_tensor, per_head or per_token, "
                                       "or of latents per_tensor or per_block");
}

KvLayout cache_layout(const ServingOptions& serving) {
  if (*serving.page_size > 0) return {KvLayoutKind::kPaged, *serving.page_size};
  return {};
}

std::string cache_words(DType kv, const KvLayout& layout, const ServingOptions& serving) {
  const std::string lies = layout.kind == KvLayoutKind::kPaged ? fmt::format("pages of {} keys", layout.page_size)
                                                               : std::string(to_string(layout.kind));
  const std::string scales = serving.kv_scales.empty() ? "" : fmt::format(" --kv-scales {},", serving.kv_scales);
  return fmt::format("kv: {}, {}; --kv {},{} --server {}", to_string(kv), lies, serving.kv, scales, serving.server);
}

void PlanBuilder::add_cache_writes() {
  std::vector<PlannedProblem> writes;
  for (const AttentionLayer& layer : model_.attention) {
    const std::string layers = layers_text(layer.layers);
    if (layer.is_latent() && server_.keeps_latents) {
      add_latent_writes(layer);
      continue;
    }
    if (layer.is_latent()) {
      add_missing(plan_, {{"cache write", layers, "",
                           "keys of latent attention are made of two parts, one of which all heads share; the server's "
                           "own serves"}});
      continue;
    }
    KvWriteProblem problem = write_problem(layer, model_, plan_.serving);
    auto write = std::ranges::find_if(writes, [&](const PlannedProblem& planned) {
      return std::get<KvWriteConfig>(planned.config).problem == problem;
    });
    if (write == writes.end()) {
      PlannedProblem planned;
      planned.from = write_origin(layer, problem, plan_.serving);
      planned.config = KvWriteConfig{layer.name, std::move(problem), {}, write_shapes(plan_.serving)};
      write = writes.insert(writes.end(), std::move(planned));
    }
    write->serves.push_back({"cache write", layers});
    write->from.push_back(fmt::format("cos_sin of layers {}: {}; a tensor of each launch", layers, layer.rope_words));
  }
  for (PlannedProblem& write : writes) {
    std::string& name = std::get<KvWriteConfig>(write.config).name;  // so far, which layers
    const std::string kind = writes.size() > 1 && !name.empty() ? name + "-" : "";
    name = plan_.name + "-" + kind + "kv-write";
    join(std::move(write));
  }
}

/// A key of latents is written by two launches, which have heads of different widths.
void PlanBuilder::add_latent_writes(const AttentionLayer& layer) {
  const std::string layers = layers_text(layer.layers);
  if (layer.latent_v.value() % contract::kLatentScaleBlock != 0) {
    add_missing(plan_, {{"cache write", layers, "",
                         fmt::format("{} latents are no multiple of {}; the server's own serves",
                                     layer.latent_v.value(), contract::kLatentScaleBlock)}});
    return;
  }
  const auto add = [&](const char* name, KvWriteProblem problem, std::vector<std::string> from) {
    PlannedProblem planned;
    from.push_back(cache_words(problem.dtype.kv, problem.kv_layout, plan_.serving));
    planned.from = std::move(from);
    planned.config = KvWriteConfig{plan_.name + "-" + name, std::move(problem), {}, write_shapes(plan_.serving)};
    planned.serves = {{"cache write", layers}};
    join(std::move(planned));
  };
  KvWriteProblem latents = latent_problem(layer, model_, plan_.serving);
  std::vector<std::string> norm{
      fmt::format("heads: {} latents in parts of {}", layer.latent_v.text(), contract::kLatentScaleBlock),
      "qk_norm: rms over all of them; kv_a_layernorm"};
  add("latent-write", std::move(latents), std::move(norm));
  add("rotary-write", rotary_problem(layer, model_, plan_.serving),
      {"heads.q: " + layer.q_heads.text(), "head_dim: " + layer.shared_rope.text(), "rope: gptj, all of it",
       "cos_sin: " + layer.rope_words + "; a tensor of each launch"});
}

}  // namespace kernelwright::detail

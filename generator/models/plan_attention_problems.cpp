// The attention problems of a model: a decode and a prefill for each kind of layer.
#include <fmt/format.h>

#include <algorithm>

#include "kernelwright/generator/models/plan_parts.h"

namespace kernelwright::detail {
namespace {

constexpr int kUsualKeys = 4096;  // of a decode's sequences, for bench and tune

AttentionShape shape(std::string name, int batch, int q_len, int kv_len) {
  return {.name = std::move(name), .batch = batch, .q_len = q_len, .kv_len = kv_len};
}

/// A shape for `run`, with a length for each sequence. Queries that are not ragged have one length.
AttentionShape check(std::vector<int> q_lens, std::vector<int> kv_lens) {
  AttentionShape shape{.name = "check", .batch = static_cast<int>(kv_lens.size()), .check = true};
  shape.q_lens = std::move(q_lens), shape.kv_lens = std::move(kv_lens);
  return shape;
}

}  // namespace

void PlanBuilder::add_attention() {
  for (const AttentionLayer& layer : model_.attention) {
    if (layer.is_latent() && server_.keeps_latents) {
      add_latent(layer);
      continue;
    }
    add_decode(layer);
    add_prefill(layer);
  }
}

AttentionProblem PlanBuilder::problem_of(const AttentionLayer& layer) const {
  AttentionProblem problem;
  const auto number = [](const Fact& fact) { return static_cast<int>(fact.value()); };
  problem.dtype = {model_.dtype, model_.dtype, model_.dtype};
  problem.head_dim = {number(layer.qk), number(layer.v)};
  problem.heads = {number(layer.q_heads), number(layer.kv_heads)};
  problem.mask.kind = MaskKind::kCausal;
  if (layer.window > 0) {
    problem.mask.kind = MaskKind::kSlidingWindow;
    problem.mask.window = {layer.window - 1, 0};
  }
  if (layer.softcap > 0) problem.score_mod.kind = ScoreModKind::kSoftcap, problem.score_mod.cap = layer.softcap;
  problem.sinks = layer.sinks;
  return problem;
}

std::vector<std::string> PlanBuilder::origin_of(const AttentionLayer& layer) const {
  std::vector<std::string> from{"heads.q: " + layer.q_heads.text(), "heads.kv: " + layer.kv_heads.text(),
                                "head_dim.qk: " + layer.qk.text(), "head_dim.v: " + layer.v.text()};
  from.push_back(layer.window == 0 ? "mask: causal; " + layer.window_words
                                   : fmt::format("mask: window.left {} and the query's own key; {}", layer.window - 1,
                                                 layer.window_words));
  if (layer.softcap > 0) from.push_back(fmt::format("score_mod: attn_logit_softcapping {}", layer.softcap));
  if (layer.sinks) from.push_back("sinks: model_type " + model_.type + " has a logit for each query head");
  from.push_back("scale: " + layer.scale + "; a number of each launch");
  return from;
}

void PlanBuilder::add(const AttentionLayer& layer, const std::string& pass, AttentionProblem problem,
                      std::vector<AttentionShape> shapes) {
  const std::string name = layer.name.empty() ? pass : layer.name + "-" + pass;
  PlannedProblem planned;
  planned.config = AttentionConfig{plan_.name + "-" + name, std::move(problem), {}, std::move(shapes)};
  planned.serves = {{"attention " + name, layers_text(layer.layers)}};
  planned.from = origin_of(layer);
  const AttentionProblem& made = std::get<AttentionConfig>(planned.config).problem;
  if (made.rope.width > 0)
    planned.from.push_back("rope.width: " + layer.shared_rope.text() + "; k_rope is one for all heads");
  planned.from.push_back(cache_words(made.dtype.kv, made.kv_layout, plan_.serving));
  join(std::move(planned));
}

/// The problem, and behind it the one of batches that are padded on the left, which has a kernel of its own.
void PlanBuilder::add_passes(const AttentionLayer& layer, const std::string& pass, AttentionProblem problem,
                             std::vector<AttentionShape> shapes) {
  add(layer, pass, problem, shapes);
  if (!server_.left_pads) return;
  problem.kv_starts = true;
  for (AttentionShape& shape : shapes) {
    if (!shape.check) continue;
    shape.kv_starts.assign(static_cast<std::size_t>(shape.batch), 0);
    const auto longest = std::ranges::max_element(shape.kv_lens);
    if (longest == shape.kv_lens.end())
      shape.kv_starts.front() = shape.kv_len / 3;
    else
      shape.kv_starts[static_cast<std::size_t>(longest - shape.kv_lens.begin())] = *longest / 3;
  }
  add(layer, pass + "-left-padded", std::move(problem), std::move(shapes));
}

namespace {

void use_cache(AttentionProblem& problem, const ServingOptions& serving) {
  problem.kv_layout = cache_layout(serving);
  if (serving.kv == "e4m3") problem.dtype.kv = DType::kE4m3, problem.scales = cache_scales(serving);
}

}  // namespace

void PlanBuilder::add_decode(const AttentionLayer& layer) { add_decode(layer, problem_of(layer)); }

void PlanBuilder::add_decode(const AttentionLayer& layer, AttentionProblem problem) {
  use_cache(problem, plan_.serving);
  problem.max_q_len = 1;
  const int most = model_.most_positions > 0 ? model_.most_positions : kUsualKeys;
  const int sequences = plan_.serving.max_seqs;
  std::vector<AttentionShape> shapes{shape(fmt::format("b{}", sequences), sequences, 1, std::min(kUsualKeys, most))};
  if (sequences > 1) shapes.push_back(shape("b1", 1, 1, std::min(2 * kUsualKeys, most)));
  shapes.push_back(check({}, {1, 16, 17, 255, 1025, 0}));
  add_passes(layer, "decode", std::move(problem), std::move(shapes));
}

void PlanBuilder::add_prefill(const AttentionLayer& layer) {
  AttentionProblem problem = problem_of(layer);
  use_cache(problem, plan_.serving);
  const int most = model_.most_positions > 0 ? model_.most_positions : plan_.serving.max_tokens;
  const int tokens = std::min(plan_.serving.max_tokens, most);
  std::vector<AttentionShape> shapes{shape("prefill", 1, tokens, tokens)};
  if (server_.ragged) {
    problem.q_layout = QLayout::kRagged;
    shapes.push_back(check({70, 1, 1, 0, 33, 1}, {200, 65, 300, 5, 33, 1}));
  } else {
    shapes.push_back(shape("check", 2, 100, 165));
    shapes.back().check = true;
  }
  add_passes(layer, std::string(server_.prefill), std::move(problem), std::move(shapes));
}

/// A server that caches latents expands those of a prompt to keys and values, which are ragged and have no pages. The
/// rotary part of a key stays as the cache has it, one for all heads, where kernels take it in a tensor of its own. The
/// server attends to the prompt's own keys, then to each part of the context, and merges the parts by their LSE. A
/// decode attends to the latents themselves: one KV head, whose values are the first elements of its keys.
void PlanBuilder::add_latent(const AttentionLayer& layer) {
  AttentionProblem own = problem_of(layer);
  own.q_layout = QLayout::kRagged;
  own.kv_layout.kind = KvLayoutKind::kRagged;
  own.lse = true;
  AttentionProblem in_parts = own;
  in_parts.rope = {static_cast<int>(layer.shared_rope.value()), model_.dtype};
  if (all_take(plan_.serving.archs, in_parts)) own = in_parts;
  const int tokens = plan_.serving.max_tokens;
  AttentionProblem context = own;
  context.mask.kind = MaskKind::kNone;
  context.kv_offsets = true;
  add(layer, "prefill", std::move(own), {shape("prefill", 1, tokens, tokens), check({65, 1, 160}, {65, 1, 160})});
  add(layer, "prefill-context", std::move(context),
      {shape("context", 1, tokens, tokens), check({65, 1, 160}, {200, 64, 33})});
  AttentionLayer latent = layer;
  latent.kv_heads = 1;
  latent.qk = layer.latent_qk, latent.v = layer.latent_v;
  AttentionProblem decode = problem_of(latent);
  decode.v_layout = VLayout::kKeyPrefix;
  add_decode(latent, std::move(decode));
  add_absorbed(layer);
}

}  // namespace kernelwright::detail

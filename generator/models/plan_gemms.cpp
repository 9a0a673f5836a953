// The GEMMs of a model: one for each distinct [n, k], dtype and epilogue, with the rows that its launches have.
#include <fmt/format.h>

#include <algorithm>

#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/models/plan_parts.h"

namespace kernelwright::detail {
namespace {

constexpr int kCheckRows = 17, kCheckRowsOfHead = 3;
constexpr int kMostRowsOfHeads = 1 << 24;
constexpr std::int64_t kMostMatches = 1 << 20;  // of modules that stay in 16 bits with layers
constexpr std::int64_t kMostSize = 1 << 24;     // of a GEMM's n and k

Layers without(const Layers& all, const Layers& some) {
  Layers rest;
  std::ranges::set_difference(all, some, std::back_inserter(rest));
  return rest;
}

}  // namespace

std::vector<GemmShape> shapes_of(const RowRange& rows) {
  std::vector<GemmShape> shapes;
  std::vector<int> counts = gemm_usual_rows();
  counts.back() = std::max(counts.back(), rows.most);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const int least = i == 0 ? 1 : counts[i - 1] + 1, m = std::min(counts[i], rows.most);
    if (least <= rows.most && counts[i] >= rows.least) shapes.push_back({.name = fmt::format("m{}", m), .m = m});
  }
  shapes.push_back({.name = "check", .m = std::min(kCheckRows, rows.most), .check = true});
  return shapes;
}

QuantizedLayers quantized_layers(const Model& model) {
  QuantizedLayers found;
  const Quantization& quantization = model.quantization;
  if (!quantization.linears) return found;
  if (static_cast<std::int64_t>(quantization.kept.size()) * model.layers > kMostMatches)
    throw ConfigError(quantization.kept_field, fmt::format("{} modules of {} layers are too many to match",
                                                           quantization.kept.size(), model.layers));
  for (const Linear& linear : model.linears) {
    if (!linear.quantizes) continue;
    for (const int layer : linear.layers)
      if (std::ranges::all_of(linear.parts, [&](const Linear::Part& part) {
            return quantization.covers(fmt::format("model.layers.{}.{}", layer, part.module));
          }))
        found[linear.name].push_back(layer);
  }
  return found;
}

void check_blocks(const Model& model, const QuantizedLayers& quantized, Sharding& sharding) {
  const Quantization& quantization = model.quantization;
  if (quantization.scales != ScaleKind::kPerBlock) return;
  for (const Linear& linear : model.linears) {
    if (!quantized.contains(linear.name)) continue;
    if (linear.split == Split::kK && sharding.tp() > 1 && linear.k.value() % quantization.block_k != 0)
      sharding.refuse_block(linear.k, quantization.block_k);
    // The last part of several may end within a block, unless the next rank begins there.
    for (const Linear::Part& part : linear.parts) {
      const bool cuts = (linear.split == Split::kN && sharding.tp() > 1) || &part != &linear.parts.back();
      if (cuts && part.n.value() % quantization.block_n != 0) sharding.refuse_block(part.n, quantization.block_n);
    }
  }
}

void PlanBuilder::add_linears(const QuantizedLayers& quantized) {
  for (const Linear& linear : model_.linears) {
    const auto found = quantized.find(linear.name);
    const Layers covered = found == quantized.end() ? Layers{} : found->second;
    if (!covered.empty()) add_linear(linear, covered, true, "");
    const Layers rest = without(linear.layers, covered);
    if (rest.empty() && !linear.layers.empty()) continue;
    add_linear(linear, rest, false, covered.empty() ? "" : "-16");  // two problems, of which each has a name
  }
}

void PlanBuilder::add_linear(const Linear& linear, const Layers& layers, bool quantized, const std::string& suffix) {
  if (server_.fuses || linear.always_fused) {
    Fact n = linear.parts.front().n;
    for (std::size_t i = 1; i < linear.parts.size(); ++i) n = n + linear.parts[i].n;
    const bool on_one_rank = linear.bias && linear.split == Split::kK && plan_.serving.tp > 1;
    if (on_one_rank)
      add_gemm(linear, linear.name + "-bias" + suffix, linear.name + ", rank 0", layers, n, quantized, true);
    add_gemm(linear, linear.name + suffix, linear.name + (on_one_rank ? ", other ranks" : ""), layers, n, quantized,
             linear.bias && !on_one_rank);
    return;
  }
  for (const Linear::Part& part : linear.parts) {
    const std::size_t dot = part.module.rfind('.');
    add_gemm(linear, part.name + suffix, part.module.substr(dot == part.module.npos ? 0 : dot + 1), layers, part.n,
             quantized, linear.bias);
  }
}

void PlanBuilder::add_gemm(const Linear& linear, const std::string& name, const std::string& layer,
                           const Layers& layers, const Fact& n, bool quantized, bool bias) {
  const std::string text = layers_text(layers);
  const Quantization& quantization = model_.quantization;
  for (const Fact* side : {&n, &linear.k})
    if (side->value() < 1 || side->value() > kMostSize)
      throw ConfigError(side->field(), fmt::format("{} is outside [1, {}]", side->text(), kMostSize));
  if (quantized && !quantization.unsupported.empty())
    return add_missing(plan_, {{layer, text, fmt::format("[{}, {}]", n.value(), linear.k.value()),
                                quantization.unsupported + "; the server's own serves"}});
  GemmProblem problem{.n = static_cast<int>(n.value()), .k = static_cast<int>(linear.k.value())};
  problem.dtype = {model_.dtype, model_.dtype, linear.f32_result ? DType::kF32 : model_.dtype};
  if (quantized) problem.dtype.a = problem.dtype.b = DType::kE4m3, problem.scales = quantization.scales;
  if (bias) problem.epilogue = "acc + bias", problem.dtype.c = model_.dtype;
  const ServingOptions& serving = plan_.serving;
  const RowRange rows{1, linear.last_rows ? serving.max_seqs : serving.max_tokens};
  PlannedProblem planned;
  planned.config = GemmConfig{plan_.name + "-" + name, std::move(problem), {}, shapes_of(rows)};
  planned.rows = rows;
  planned.serves = {{layer, text}};
  planned.from = {"n: " + n.text(), "k: " + linear.k.text(),
                  linear.last_rows ? fmt::format("rows: 1 to --max-seqs {}", serving.max_seqs)
                                   : fmt::format("rows: 1 to --max-tokens {}", serving.max_tokens)};
  if (quantized)
    planned.from.push_back(
        fmt::format("dtype: e4m3, scales {}; quant_method {}", to_string(quantization.scales), quantization.method));
  if (bias) planned.from.push_back("epilogue: the layer has a bias");
  join(std::move(planned));
}

/// The products around a decode over latents, of each head with its own part of kv_b_proj's weight
/// [heads, nope + v, rank]. A query's nope elements become a query of latents, and a latent output becomes the head's.
/// Both read the weight where it lies: of the first product it has columns innermost, of the second one k.
void PlanBuilder::add_absorbed(const AttentionLayer& layer) {
  const auto add = [&](const char* name, const Fact& n, const Fact& k, OperandLayout layout, const char* part) {
    const int heads = static_cast<int>(layer.q_heads.value());
    GemmProblem problem{.n = static_cast<int>(n.value()), .k = static_cast<int>(k.value())};
    problem.dtype = {model_.dtype, model_.dtype, model_.dtype};
    problem.layout = layout;
    problem.groups = {.kind = GroupKind::kBatch, .count = heads};
    const int most = std::min(plan_.serving.max_seqs, kMostRowsOfHeads / std::max(1, heads));
    std::vector<GemmShape> shapes{{.name = fmt::format("b{}", most), .m = most * heads}};
    if (most > 1) shapes.push_back({.name = "b1", .m = heads});
    shapes.push_back({.name = "check", .m = std::min(kCheckRowsOfHead, most) * heads, .check = true});
    PlannedProblem planned;
    planned.config = GemmConfig{fmt::format("{}-absorbed-{}", plan_.name, name), std::move(problem), {}, shapes};
    planned.serves = {{fmt::format("absorbed {}", name), layers_text(layer.layers)}};
    planned.from = {"n: " + n.text(), "k: " + k.text(), "groups.count: " + layer.q_heads.text(),
                    fmt::format("b: {} of each head of kv_b_proj, in 16 bits", part),
                    fmt::format("rows: a head's, up to --max-seqs {}", plan_.serving.max_seqs)};
    join(std::move(planned));
  };
  add("q", layer.latent_v, layer.nope, OperandLayout::kNn, "the first rows");
  add("o", layer.v, layer.latent_v, OperandLayout::kNt, "the last rows");
}

}  // namespace kernelwright::detail

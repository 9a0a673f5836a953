// The kernels of a layer of experts (docs/moe.md): the choice, the two GEMMs of groups, the sum, and with fp8 weights
// the quantisation of their rows.
#include <fmt/format.h>

#include <algorithm>

#include "kernelwright/generator/models/plan_parts.h"

namespace kernelwright::detail {
namespace {

constexpr std::int64_t kMostRows = 1 << 24;  // of a shape
constexpr int kCheckExpertTokens = 37;

int whole(const Fact& fact) { return static_cast<int>(fact.value()); }

/// The layers whose experts the checkpoint quantises, and the others.
std::pair<Layers, Layers> split(const ExpertLayer& experts, const Quantization& quantization) {
  std::pair<Layers, Layers> found;
  for (const int layer : experts.layers) {
    // A method that leaves linear layers alone, as mxfp4 does, is one of experts.
    const bool covered =
        !quantization.method.empty() &&
        (!quantization.linears || quantization.covers(fmt::format("model.layers.{}.{}", layer, experts.module)));
    (covered ? found.first : found.second).push_back(layer);
  }
  return found;
}

std::vector<GemmShape> shapes_of_groups(const ExpertLayer& experts, bool gather, const ServingOptions& serving) {
  std::vector<GemmShape> shapes;
  const auto add = [&](const char* name, int tokens) {
    GemmShape shape{.name = name};
    shape.m = static_cast<int>(std::min(kMostRows, std::int64_t{tokens} * experts.top_k.value()));
    shape.skew = RowSkew::kUniform;
    if (gather) shape.source_rows = tokens;
    shapes.push_back(shape);
  };
  add("decode", serving.max_seqs);
  add("prefill", serving.max_tokens);
  GemmShape check{.name = "check", .m = 90, .check = true};
  check.rows = 75, check.skew = RowSkew::kZipf, check.active = std::min(7, whole(experts.own));
  if (gather) check.source_rows = 50;
  shapes.push_back(check);
  return shapes;
}

/// A shape for each size that a server's batches have, of a kind whose shapes have one number.
template <class Shape>
std::vector<Shape> shapes_of_tokens(int Shape::*count, std::int64_t of_token, const ServingOptions& serving) {
  std::vector<Shape> shapes(3);
  const auto fill = [&](Shape& shape, const char* name, std::int64_t tokens) {
    shape.name = name, shape.*count = static_cast<int>(std::min(kMostRows, tokens * of_token));
  };
  fill(shapes[0], "decode", serving.max_seqs);
  fill(shapes[1], "prefill", serving.max_tokens);
  fill(shapes[2], "check", 1);
  shapes[2].*count = kCheckExpertTokens, shapes[2].check = true;
  return shapes;
}

}  // namespace

void PlanBuilder::add_experts() {
  for (const ExpertLayer& experts : model_.experts) {
    add_route_and_sum(experts);
    const Quantization& quantization = model_.quantization;
    const auto [covered, rest] = split(experts, quantization);
    if (!rest.empty()) add_expert_gemms(experts, rest, false, covered.empty() ? "" : "-16");
    if (covered.empty()) continue;
    if (quantization.scales == ScaleKind::kPerBlock && quantization.unsupported.empty())
      add_expert_gemms(experts, covered, true, "");
    else
      add_missing(
          plan_,
          {{"experts", layers_text(covered), experts.shape,
            fmt::format("grouped GEMM of {} weights is to come; the server's own serves", quantization.method)}});
  }
}

void PlanBuilder::add_route_and_sum(const ExpertLayer& experts) {
  const std::string layers = layers_text(experts.layers);
  RouteProblem route = experts.route;
  route.experts = whole(experts.count), route.top_k = whole(experts.top_k);
  if (experts.own.value() != experts.count.value()) route.local_experts = whole(experts.own);
  PlannedProblem planned;
  planned.config =
      RouteConfig{plan_.name + "-route", route, {}, shapes_of_tokens(&RouteShape::tokens, 1, plan_.serving)};
  planned.serves = {{"experts' choice", layers}};
  planned.from = {"experts: " + experts.count.text(), "top_k: " + experts.top_k.text(), "choice: " + experts.choice};
  if (route.local_experts > 0) planned.from.push_back("local_experts: " + experts.own.text());
  join(std::move(planned));
  MoeCombineProblem sum{.dtype = {model_.dtype, model_.dtype}, .width = whole(model_.hidden), .top_k = route.top_k};
  // Ranks that share the experts alone have the whole shared expert each, and their sums would count it more than once.
  sum.residual = experts.shared && plan_.serving.ep <= plan_.serving.tp;
  planned = {};
  planned.config = MoeCombineConfig{
      plan_.name + "-moe-combine", sum, {}, shapes_of_tokens(&MoeCombineShape::tokens, 1, plan_.serving)};
  planned.serves = {{"experts' sum", layers}};
  planned.from = {"width: " + model_.hidden.text(), "top_k: " + experts.top_k.text()};
  if (sum.residual) planned.from.push_back("residual: the shared expert's rows");
  join(std::move(planned));
}

void PlanBuilder::add_expert_gemms(const ExpertLayer& experts, const Layers& layers, bool quantized,
                                   const std::string& suffix) {
  const std::string text = layers_text(layers);
  const auto add = [&](const char* name, const std::string& layer, const Fact& n, const Fact& k, bool first,
                       const std::string& epilogue) {
    GemmProblem problem{.n = whole(n), .k = whole(k)};
    problem.dtype = {model_.dtype, model_.dtype, model_.dtype};
    if (quantized) problem.dtype.a = problem.dtype.b = DType::kE4m3, problem.scales = ScaleKind::kPerBlock;
    problem.groups = {GroupKind::kRows, whole(experts.own), GroupBounds::kStarts, first};
    problem.epilogue = epilogue;
    if (experts.biased) problem.dtype.c = model_.dtype;
    PlannedProblem planned;
    planned.config = GemmConfig{fmt::format("{}-{}{}", plan_.name, name, suffix),
                                std::move(problem),
                                {},
                                shapes_of_groups(experts, first, plan_.serving)};
    planned.serves = {{layer, text}};
    planned.from = {
        "n: " + n.text(), "k: " + k.text(), "groups.count: " + experts.own.text(),
        fmt::format("rows: up to {} for each of --max-tokens {}", experts.top_k.text(), plan_.serving.max_tokens)};
    if (first) planned.from.push_back("b: rows of gates and ups interleaved by 8");
    if (quantized) planned.from.push_back("dtype: e4m3, scales per_block; quant_method " + model_.quantization.method);
    join(std::move(planned));
  };
  add("expert-gate-up", "experts' gate-up", Fact(2) * experts.width, model_.hidden, true, experts.gates);
  // Ranks that share an expert's inner size add up their rows, so one of them has the bias.
  const bool on_one_rank = experts.biased && plan_.serving.tp > 1 && plan_.serving.ep == 1;
  if (on_one_rank) add("expert-down-bias", "experts' down, rank 0", model_.hidden, experts.width, false, "acc + bias");
  add("expert-down", on_one_rank ? "experts' down, other ranks" : "experts' down", model_.hidden, experts.width, false,
      experts.biased && !on_one_rank ? "acc + bias" : "acc");
  if (!quantized) return;
  const auto quantize = [&](const char* name, const char* layer, const Fact& width, std::int64_t rows_of_token) {
    RowOpProblem problem;
    problem.dtype = {model_.dtype, DType::kE4m3};
    problem.width = whole(width), problem.scales.kind = ScaleKind::kPerBlock;
    PlannedProblem planned;
    planned.config = RowOpConfig{fmt::format("{}-{}{}", plan_.name, name, suffix),
                                 problem,
                                 {},
                                 shapes_of_tokens(&RowOpShape::rows, rows_of_token, plan_.serving)};
    planned.serves = {{layer, text}};
    planned.from = {"width: " + width.text()};
    join(std::move(planned));
  };
  quantize("expert-tokens", "experts' tokens, quantised", model_.hidden, 1);
  quantize("expert-rows", "experts' rows, quantised", experts.width, experts.top_k.value());
}

}  // namespace kernelwright::detail

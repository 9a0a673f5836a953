// What the steps of plan_model() share: joining equal problems, and asking the planners whether a kernel takes them.
#include "kernelwright/generator/models/plan_parts.h"

#include <algorithm>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/kv_write/plan.h"
#include "kernelwright/generator/moe_combine/plan.h"
#include "kernelwright/generator/route/plan.h"
#include "kernelwright/generator/row_op/plan.h"

namespace kernelwright::detail {
namespace {

/// Whether two configs compute the same.
bool same_problem(const Config& a, const Config& b) {
  if (a.index() != b.index()) return false;
  return std::visit([&](const auto& kind) { return kind.problem == std::get<std::decay_t<decltype(kind)>>(b).problem; },
                    a);
}

/// Rows of the largest shape.
int most_rows(const Config& config) {
  int most = 0;
  for (const RowOpShape& shape : std::get<RowOpConfig>(config).shapes) most = std::max(most, shape.rows);
  return most;
}

/// Why `plan` throws; "" if it does not.
template <class Plan>
std::string refusal_of(const Plan& plan) try {
  plan();
  return "";
} catch (const ConfigError& error) {
  return error.violations().front().text();
}

/// Why no kernel of `arch` takes the config; "" if one does. No tuned row can change that.
std::string refusal(const AttentionConfig& config, Arch arch) {
  return refusal_of([&] { plan_by_model(config.problem, config.schedule, arch); });
}
std::string refusal(const GemmConfig& config, Arch arch) {
  return refusal_of([&] { plan_by_model(config.problem, config.schedule, arch); });
}
std::string refusal(const KvWriteConfig& config, Arch arch) {
  return refusal_of([&] { plan_kv_write(config.problem, config.schedule, arch); });
}
std::string refusal(const RowOpConfig& config, Arch arch) {
  return refusal_of([&] { plan_row_op(config.problem, config.schedule, arch); });
}
std::string refusal(const RouteConfig& config, Arch arch) {
  return refusal_of([&] { plan_route(config.problem, config.schedule, arch); });
}
std::string refusal(const MoeCombineConfig& config, Arch arch) {
  return refusal_of([&] { plan_moe_combine(config.problem, config.schedule, arch); });
}

}  // namespace

void PlanBuilder::join(PlannedProblem fresh) {
  for (PlannedProblem& old : plan_.problems) {
    if (!same_problem(old.config, fresh.config)) continue;
    if (old.rows && fresh.rows && fresh.rows->most > old.rows->most) {
      old.rows = fresh.rows;
      std::get<GemmConfig>(old.config).shapes = std::get<GemmConfig>(fresh.config).shapes;
    }
    if (auto* rows = std::get_if<RowOpConfig>(&old.config); rows && most_rows(fresh.config) > most_rows(old.config))
      rows->shapes = std::get<RowOpConfig>(fresh.config).shapes;
    for (ServedLayer& layer : fresh.serves)
      if (std::ranges::find(old.serves, layer) == old.serves.end()) old.serves.push_back(std::move(layer));
    return;
  }
  plan_.problems.push_back(std::move(fresh));
}

void add_missing(ModelPlan& plan, const std::vector<MissingLayer>& missing) {
  for (const MissingLayer& layer : missing)
    if (std::ranges::find(plan.missing, layer) == plan.missing.end()) plan.missing.push_back(layer);
}

bool all_take(const std::vector<Arch>& archs, const AttentionProblem& problem) {
  const AttentionConfig config{"", problem, {}, {}};
  return std::ranges::all_of(archs, [&](Arch arch) { return refusal(config, arch).empty(); });
}

void judge(ModelPlan& plan) {
  std::vector<MissingLayer> missing;
  std::erase_if(plan.problems, [&](const PlannedProblem& problem) {
    std::size_t refused = 0;
    for (const Arch arch : plan.serving.archs) {
      const std::string why = std::visit([&](const auto& config) { return refusal(config, arch); }, problem.config);
      if (why.empty()) continue;
      ++refused;
      for (const ServedLayer& layer : problem.serves)
        missing.push_back({layer.layer, layer.layers, "", std::string(to_string(arch)) + ": " + why});
    }
    return refused == plan.serving.archs.size();
  });
  missing.insert(missing.end(), plan.missing.begin(), plan.missing.end());
  plan.missing = std::move(missing);
}

}  // namespace kernelwright::detail

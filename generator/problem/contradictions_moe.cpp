// moe: which fields of a layer of experts contradict each other, on any architecture, and what its parts refuse.
#include <fmt/format.h>

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "kernelwright/generator/problem/contradictions.h"
#include "kernelwright/generator/problem/epilogue.h"
#include "kernelwright/generator/problem/moe_parts.h"
#include "kernelwright/generator/problem/rule_check.h"

namespace kernelwright {
namespace {

using namespace detail;
using Violations = std::vector<Violation>;

void check_gates(const MoeProblem& problem, Violations& violations) {
  const char* path = "/problem/gates";
  try {
    const Epilogue gates = parse_epilogue(problem.gates);
    if (!gates.gated)
      violations.push_back(
          {path, fmt::format("{} has no gates; it takes activation(gate) * up", quoted_for_message(problem.gates))});
    else if (gates.alpha)
      violations.push_back(
          {path, fmt::format("{} has alpha, which a layer does not take", quoted_for_message(problem.gates))});
  } catch (const ConfigError& error) {
    violations.push_back({path, error.violations().front().message});
  }
}

void check_scales(const MoeProblem& problem, Violations& violations) {
  if (problem.scales != ScaleKind::kNone && problem.scales != ScaleKind::kPerBlock)
    return violations.push_back({"/problem/scales", in_quotes(to_string(problem.scales)) +
                                                        " is no kind of scales that a layer takes; it takes one of "
                                                        "none, per_block"});
  constexpr int kBlock = 128;  // elements along each side that share a scale
  const auto blocks = [&](const char* path, int elements) {
    if (problem.scales == ScaleKind::kPerBlock && elements % kBlock != 0)
      violations.push_back({path, fmt::format("{} is no multiple of {}, and blocks of so many elements share a scale",
                                              elements, kBlock)});
  };
  blocks("/problem/hidden", problem.hidden);
  blocks("/problem/intermediate", problem.intermediate);
}

void check_route(const RouteProblem& route, Violations& violations) {
  for (Violation& violation : contradictions(RouteConfig{"", route, {}, {}}))
    if (constexpr std::string_view kRoot = "/problem/"; violation.path.starts_with(kRoot))
      violations.push_back({"/problem/route/" + violation.path.substr(kRoot.size()), std::move(violation.message)});
  if (!route.sort)
    violations.push_back({"/problem/route/sort", "false leaves the layer without rows by expert; leave it out"});
  if (route.alignment != 1)
    violations.push_back({"/problem/route/alignment",
                          std::to_string(route.alignment) + " leaves rows between experts empty; 1 would do"});
}

/// What the parts refuse, once the layer's own rules hold.
void check_parts(const MoeProblem& problem, Violations& violations) {
  const MoeParts parts = moe_parts(problem);
  const auto add = [&](const char* part, const Violations& found) {
    for (const Violation& violation : found)
      violations.push_back({"/problem", fmt::format("its part {} refuses {}", part, violation.text())});
  };
  if (parts.quantize_x) add("quantize_x", contradictions(RowOpConfig{"", *parts.quantize_x, {}, {}}));
  add("gate_up", contradictions(GemmConfig{"", parts.gate_up, {}, {}}));
  if (parts.quantize_rows) add("quantize_rows", contradictions(RowOpConfig{"", *parts.quantize_rows, {}, {}}));
  add("down", contradictions(GemmConfig{"", parts.down, {}, {}}));
  add("combine", contradictions(MoeCombineConfig{"", parts.combine, {}, {}}));
}

}  // namespace

std::vector<Violation> contradictions(const MoeConfig& config) {
  Violations violations;
  MoeProblem problem = config.problem;
  const FieldPlace at{nullptr, "/problem"};
  // The route's fields are checked with their own rules below.
  visit_fields(problem, [&](const char* name, auto& member, const auto& rule, const char*) {
    if constexpr (!std::same_as<std::remove_cvref_t<decltype(member)>, RouteProblem>)
      RuleCheck(violations).check(member, FieldPlace{&at, name}, bare_rule(rule));
  });
  takes("/problem/dtype", problem.dtype, {DType::kF16, DType::kBf16}, violations);
  check_scales(problem, violations);
  check_gates(problem, violations);
  check_route(problem.route, violations);
  if (violations.empty()) check_parts(problem, violations);
  return violations;
}

}  // namespace kernelwright

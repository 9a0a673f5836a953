// GEMM: tuned rows before the model. This file finds the row that serves a row count, and says which source chose each
// field.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/plan/machine.h"
#include "kernelwright/generator/plan/tuned_choice.h"
#include "kernelwright/generator/problem/schedule_fields.h"

namespace kernelwright {
namespace {

using namespace detail;

/// A row whose schedule fits, and the plan that it leads to.
struct TunedVariant {
  const GemmTunedMatch* match;
  GemmPlan plan;
  std::set<std::string> filled;
};

std::vector<TunedVariant> tuned_variants(const std::vector<GemmTunedMatch>& matches, const GemmProblem& problem,
                                         const GemmSchedule& schedule, Arch arch, Family family,
                                         std::vector<SkippedRow>& passed_over) {
  std::vector<TunedVariant> variants;
  for (const GemmTunedMatch& match : matches) try {
      TunedVariant variant{&match, {}, {}};
      variant.plan = plan_by_model(problem, merged(schedule, match.row->schedule, variant.filled), arch);
      const Family its = variant.plan.variants.back().spec.family;
      if (its != family)
        throw ConfigError("/schedule/family", fmt::format("{} is not the family of the plan's other kernels, {}",
                                                          to_string(its), to_string(family)));
      if (!variant.filled.empty()) variants.push_back(std::move(variant));
    } catch (const ConfigError& error) {
      passed_over.push_back({match.name, one_line(error)});
    }
  return variants;
}

/// "64 x 32 swapped, 12 slots"
std::string tile_text(const GemmSpec& spec) {
  return fmt::format("{} x {}{}, {} slots", spec.block_m, spec.block_n, spec.swap_ab ? " swapped" : "", spec.stages);
}

}  // namespace

GemmPlan plan_gemm(const GemmProblem& problem, const GemmSchedule& schedule, Arch arch, const TunedTable& rows,
                   int num_sms) {
  return plan_gemm(problem, schedule, usual_machine(arch), rows, num_sms);
}

GemmPlan plan_gemm(const GemmProblem& problem, const GemmSchedule& schedule, const MachineClass& machine,
                   const TunedTable& rows, int num_sms) {
  const Arch arch = machine.arch;
  // Refusals of the problem itself, or of the schedule as it was given, come from here.
  GemmPlan model = plan_by_model(problem, schedule, arch);
  const std::set<std::string> given = given_fields(schedule);
  const auto asked = schedule.family.is_auto() ? std::nullopt : std::optional(schedule.family.value());
  const std::vector<GemmTunedMatch> matches =
      rows.matches(problem, machine.device, num_sms > 0 ? num_sms : machine.sms, asked);
  const std::vector<TunedVariant> tuned =
      tuned_variants(matches, problem, schedule, arch, model.variants.back().spec.family, model.passed_over);
  if (tuned.empty()) {
    explain_sources(given, {}, "", ChosenBy::kModel, model.choices);
    return model;
  }
  GemmPlan plan;
  plan.passed_over = std::move(model.passed_over);
  std::vector<Choice> lines;
  const TunedVariant* last = nullptr;
  for (const RowRange& range : gemm_row_ranges()) {
    // The upper end of a range stands for the range. A plan of another version, with other ranges, would ask for this m
    // too.
    const int m = range.most;
    const auto found = std::find_if(tuned.begin(), tuned.end(), [&](const TunedVariant& variant) {
      return variant.match->row->launches.rows.contains(m);
    });
    last = found == tuned.end() ? nullptr : &*found;
    GemmVariant variant = (last ? last->plan : model).variant_for(m);
    variant.most_m = m;
    if (last) variant.row = last->match->name;
    if (!plan.variants.empty() && plan.variants.back().spec == variant.spec &&
        plan.variants.back().bands_of_n == variant.bands_of_n && plan.variants.back().row == variant.row) {
      plan.variants.back().most_m = m;
      continue;
    }
    if (last)
      lines.push_back({fmt::format("rows from {}", range.least), tile_text(variant.spec), reason_of(*last->match),
                       chosen_by(*last->match)});
    plan.variants.push_back(std::move(variant));
  }
  plan.variants.back().most_m = std::numeric_limits<int>::max();
  plan.choices = last ? last->plan.choices : std::move(model.choices);
  explain_sources(given, last ? last->filled : std::set<std::string>{}, last ? reason_of(*last->match) : "",
                  last ? chosen_by(*last->match) : ChosenBy::kModel, plan.choices);
  plan.choices.insert(plan.choices.end(), lines.begin(), lines.end());
  return plan;
}

}  // namespace kernelwright

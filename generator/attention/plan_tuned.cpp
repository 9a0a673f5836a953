// Attention: tuned rows before the model. This file finds the row that fills the fields that a schedule leaves auto,
// and says which source chose each.
#include <algorithm>
#include <set>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/plan/machine.h"
#include "kernelwright/generator/plan/tuned_choice.h"
#include "kernelwright/generator/problem/schedule_fields.h"

namespace kernelwright {
namespace {

using namespace detail;

constexpr std::size_t kMostTried = 4;  // neighbours: a farther one says less, and each costs a plan

}  // namespace

AttentionPlan plan_attention(const AttentionProblem& problem, const AttentionSchedule& schedule, Arch arch,
                             const TunedTable& rows) {
  return plan_attention(problem, schedule, usual_machine(arch), rows);
}

AttentionPlan plan_attention(const AttentionProblem& problem, const AttentionSchedule& schedule,
                             const MachineClass& machine, const TunedTable& rows) {
  const std::set<std::string> given = given_fields(schedule);
  const auto family = schedule.family.is_auto() ? std::nullopt : std::optional(schedule.family.value());
  std::vector<SkippedRow> passed_over;
  std::optional<AttentionPlan> plan;
  std::set<std::string> filled;
  const TunedMatch* source = nullptr;
  const std::vector<TunedMatch> matches = rows.matches(problem, machine.device, family);
  for (std::size_t i = 0; i < std::min(matches.size(), kMostTried) && !plan; ++i) try {
      filled.clear();
      const AttentionSchedule asked = merged(schedule, matches[i].row->schedule, filled);
      plan = plan_by_model(problem, asked, machine.arch);
      source = &matches[i];
    } catch (const ConfigError& error) {
      passed_over.push_back({matches[i].name, one_line(error)});
    }
  // Refusals of the problem itself, or of the schedule as it was given, come from here.
  if (!plan) plan = plan_by_model(problem, schedule, machine.arch);

  explain_sources(given, source ? filled : std::set<std::string>{}, source ? reason_of(*source) : "",
                  source ? chosen_by(*source) : ChosenBy::kModel, plan->choices);
  if (source && !filled.empty()) plan->row = source->name;
  plan->passed_over = std::move(passed_over);
  return std::move(*plan);
}

}  // namespace kernelwright

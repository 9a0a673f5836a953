// Tuned rows before the model: which row fills the fields that a schedule leaves auto, and who chose what.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/problem/schedule_fields.h"

namespace kernelwright {
namespace {

using detail::given_fields;
using detail::merged;

constexpr std::size_t kMostTried = 4;  // neighbours: a farther one has less to say, and each costs a plan

template <class KindOfConfig>
std::string reason_of(const TunedMatchOf<KindOfConfig>& match) {
  const auto& from = match.row->provenance;
  const std::string gain =
      from.speedup > 0 ? fmt::format(", {:.2f} x the model's choice on {}", from.speedup, from.gpu) : " on " + from.gpu;
  if (match.exact) return fmt::format("tuned {}{}: row {}", from.date, gain, match.name);
  return fmt::format("tuned for a neighbour at distance {:.2f}{}: row {}", match.distance, gain, match.name);
}

/// The first lines of a refusal as one.
std::string one_line(const ConfigError& error) {
  std::string text = error.what();
  std::replace(text.begin(), text.end(), '\n', ';');
  return text;
}

/// Says of each field who chose it: the schedule, which gave `given`, or `by`, which filled `filled`.
void explain_sources(const std::set<std::string>& given, const std::set<std::string>& filled, const std::string& reason,
                     ChosenBy by, std::vector<Choice>& choices) {
  for (Choice& choice : choices) {
    if (given.count(choice.field)) {
      choice.by = ChosenBy::kSchedule;
    } else if (filled.count(choice.field)) {
      choice.by = by;
      choice.reason = reason;
    }
  }
}

}  // namespace

std::string_view to_string(ChosenBy by) {
  switch (by) {
    case ChosenBy::kModel: return "model";
    case ChosenBy::kSchedule: return "schedule";
    case ChosenBy::kRow: return "row";
    case ChosenBy::kNeighbour: return "neighbour";
  }
  return "?";
}

AttentionPlan plan_attention(const AttentionProblem& problem, const AttentionSchedule& schedule, Arch arch,
                             const TunedTable& rows) {
  const std::set<std::string> given = given_fields(schedule);
  const auto family = schedule.family.is_auto() ? std::nullopt : std::optional(schedule.family.value());
  std::vector<SkippedRow> passed_over;
  std::optional<AttentionPlan> plan;
  std::set<std::string> filled;
  const TunedMatch* source = nullptr;
  const std::vector<TunedMatch> matches = rows.matches(problem, arch, family);
  for (std::size_t i = 0; i < std::min(matches.size(), kMostTried) && !plan; ++i) try {
      filled.clear();
      const AttentionSchedule asked = merged(schedule, matches[i].row->schedule, filled);
      plan = plan_by_model(problem, asked, arch);
      source = &matches[i];
    } catch (const ConfigError& error) {
      passed_over.push_back({matches[i].name, one_line(error)});
    }
  // Refusals of the problem itself, or of the schedule as it was given, come from here.
  if (!plan) plan = plan_by_model(problem, schedule, arch);

  explain_sources(given, source ? filled : std::set<std::string>{}, source ? reason_of(*source) : "",
                  source && !source->exact ? ChosenBy::kNeighbour : ChosenBy::kRow, plan->choices);
  if (source && !filled.empty()) plan->row = source->name;
  plan->passed_over = std::move(passed_over);
  return std::move(*plan);
}

namespace {

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
  // Refusals of the problem itself, or of the schedule as it was given, come from here.
  GemmPlan model = plan_by_model(problem, schedule, arch);
  const std::set<std::string> given = given_fields(schedule);
  const auto asked = schedule.family.is_auto() ? std::nullopt : std::optional(schedule.family.value());
  const std::vector<GemmTunedMatch> matches =
      rows.matches(problem, arch, num_sms > 0 ? num_sms : arch_info(arch).typical_sms, asked);
  const std::vector<TunedVariant> tuned =
      tuned_variants(matches, problem, schedule, arch, model.variants.back().spec.family, model.passed_over);
  if (tuned.empty()) {
    explain_sources(given, {}, "", ChosenBy::kRow, model.choices);
    return model;
  }
  GemmPlan plan;
  plan.passed_over = std::move(model.passed_over);
  std::vector<Choice> lines;
  const TunedVariant* last = nullptr;
  for (const RowRange& range : gemm_row_ranges()) {
    // Its upper end stands for a range: there a plan with other ranges, of another version, would be asked too.
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
      lines.push_back(
          {fmt::format("rows from {}", range.least), tile_text(variant.spec), reason_of(*last->match), ChosenBy::kRow});
    plan.variants.push_back(std::move(variant));
  }
  plan.variants.back().most_m = std::numeric_limits<int>::max();
  plan.choices = last ? last->plan.choices : std::move(model.choices);
  explain_sources(given, last ? last->filled : std::set<std::string>{}, last ? reason_of(*last->match) : "",
                  ChosenBy::kRow, plan.choices);
  plan.choices.insert(plan.choices.end(), lines.begin(), lines.end());
  return plan;
}

}  // namespace kernelwright

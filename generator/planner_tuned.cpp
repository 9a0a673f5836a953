// Tuned rows before the model: which row fills the fields that a schedule leaves auto, and who chose what.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/planner.h"

namespace kernelwright {
namespace {

constexpr std::size_t kMostTried = 4;  // neighbours: a farther one has less to say, and each costs a plan

/// The fields that `schedule` gives.
std::set<std::string> given_fields(AttentionSchedule schedule) {
  std::set<std::string> names;
  visit_fields(schedule, [&](const char* name, const auto& value, const auto&, const char*) {
    if (!value.is_auto()) names.insert(name);
  });
  return names;
}

/// `schedule` with its auto fields from `row`; `filled` gets their names.
AttentionSchedule merged(AttentionSchedule schedule, AttentionSchedule row, std::set<std::string>& filled) {
  visit_fields(schedule, [&](const char* name, auto& value, const auto&, const char*) {
    visit_fields(row, [&](const char* from_name, const auto& from, const auto&, const char*) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, std::remove_cvref_t<decltype(from)>>) {
        if (std::string_view(name) != from_name || !value.is_auto() || from.is_auto()) return;
        value = from;
        filled.insert(name);
      }
    });
  });
  return schedule;
}

std::string reason_of(const TunedMatch& match) {
  const Provenance& from = match.row->provenance;
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

  for (Choice& choice : plan->choices) {
    if (given.count(choice.field)) {
      choice.by = ChosenBy::kSchedule;
    } else if (source && filled.count(choice.field)) {
      choice.by = source->exact ? ChosenBy::kRow : ChosenBy::kNeighbour;
      choice.reason = reason_of(*source);
    }
  }
  if (source && !filled.empty()) plan->row = source->name;
  plan->passed_over = std::move(passed_over);
  return std::move(*plan);
}

}  // namespace kernelwright

/// Inside of the generator: what a plan says of the tuned rows that were asked.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/plan/choice.h"
#include "kernelwright/generator/tuned/table.h"

namespace kernelwright::detail {

/// "tuned 2026-11-20, 1.12 x the model's choice on NVIDIA H100: row sm_90a/llama3-8b-decode"
template <class KindOfConfig>
std::string reason_of(const TunedMatchOf<KindOfConfig>& match);

/// The source that `explain` names for the fields that the row of `match` fills.
template <class KindOfConfig>
ChosenBy chosen_by(const TunedMatchOf<KindOfConfig>& match) {
  return match.exact ? ChosenBy::kRow : ChosenBy::kNeighbour;
}

/// The first lines of a refusal as one.
std::string one_line(const ConfigError& error);

/// Notes for each field what chose it: the schedule, which gave `given`, or `by`, which filled `filled`.
void explain_sources(const std::set<std::string>& given, const std::set<std::string>& filled, const std::string& reason,
                     ChosenBy by, std::vector<Choice>& choices);

}  // namespace kernelwright::detail

#include "kernelwright/generator/plan/tuned_choice.h"

#include <fmt/format.h>

#include <algorithm>

namespace kernelwright {

namespace detail {

template <class KindOfConfig>
std::string reason_of(const TunedMatchOf<KindOfConfig>& match) {
  const auto& from = match.row->provenance;
  const std::string gain =
      from.speedup > 0 ? fmt::format(", {:.2f} x the model's choice on {}", from.speedup, from.gpu) : " on " + from.gpu;
  if (match.lent)
    return fmt::format("tuned on another device class, {}, at distance {:.2f}{}: row {}", to_string(match.row->device),
                       match.distance, gain, match.name);
  if (match.exact) return fmt::format("tuned {}{}: row {}", from.date, gain, match.name);
  return fmt::format("tuned for a neighbour at distance {:.2f}{}: row {}", match.distance, gain, match.name);
}
template std::string reason_of(const TunedMatch& match);
template std::string reason_of(const GemmTunedMatch& match);

std::string one_line(const ConfigError& error) {
  std::string text = error.what();
  std::replace(text.begin(), text.end(), '\n', ';');
  return text;
}

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

}  // namespace detail
}  // namespace kernelwright

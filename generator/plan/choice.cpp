#include "kernelwright/generator/plan/choice.h"

#include <fmt/format.h>

namespace kernelwright {

std::string detail::Resolver::text_of(double value) { return fmt::format("{}", value); }

std::string_view to_string(ChosenBy by) {
  switch (by) {
    case ChosenBy::kModel: return "model";
    case ChosenBy::kSchedule: return "schedule";
    case ChosenBy::kRow: return "row";
    case ChosenBy::kNeighbour: return "neighbour";
  }
  return "?";
}

}  // namespace kernelwright

/// Inside of validate: which architecture, or which family, takes a problem that this one refuses.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/arch.h"

namespace kernelwright::detail {

/// "a, b and c"
inline std::string in_words(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return text;
}

/// Adds to the first violation of the problem itself which architectures or families take the problem: "; sm_100a and
/// sm_103a take this problem". Adds nothing if none does, or if the schedule alone is refused. `lacks` (family,
/// schedule, arch) returns what a family lacks for the problem. `arch` is the wanted architecture.
template <class Schedule, class Lacks>
void advise(const Schedule& schedule, std::optional<Arch> arch, const Lacks& lacks,
            std::vector<Violation>& violations) {
  Violation* first = nullptr;
  for (Violation& violation : violations)
    if (!first && violation.path.starts_with("/problem")) first = &violation;
  if (!first) return;
  if (!arch && !schedule.arch.is_auto()) arch = schedule.arch.value();
  const auto takes = [&](const Schedule& asked, Family family, Arch on) {
    return family_exists_on(family, on) && lacks(family, asked, on).empty();
  };
  // First the given schedule with any architecture and family, then a schedule with every field auto.
  Schedule open = schedule;
  open.arch = {};
  open.family = {};
  for (const bool own : {false, true}) {
    const Schedule asked = own ? Schedule{} : open;
    const std::string with = own && !(open == Schedule{}) ? ", with a schedule of its own" : "";
    std::vector<std::string> archs;
    for (const ArchInfo& row : all_archs())
      for (const auto& [family, word] : EnumTable<Family>::entries)
        if ((!arch || row.arch != *arch) && takes(asked, family, row.arch)) {
          archs.emplace_back(row.name);
          break;
        }
    for (const auto& [family, word] : EnumTable<Family>::entries)
      if (arch && takes(asked, family, *arch)) {
        first->message += "; the " + std::string(word) + " family takes this problem" + with;
        return;
      }
    if (archs.empty()) continue;
    first->message += "; " + in_words(archs) + (archs.size() == 1 ? " takes" : " take") + " this problem" + with;
    return;
  }
}

}  // namespace kernelwright::detail

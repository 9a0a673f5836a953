// Attention: which kernel family judges a config.
#include <iterator>

#include "kernelwright/generator/families.h"
#include "kernelwright/generator/validate.h"
#include "kernelwright/generator/validate_rules.h"

namespace kernelwright {
namespace {

using namespace detail;
using Violations = std::vector<Violation>;

Violations lacks(Family family, const AttentionConfig& config) {
  Violations violations;
  switch (family) {
    case Family::kPortable: check_portable(config.problem, config.schedule, violations); break;
    case Family::kHopper: check_hopper(config.problem, config.schedule, violations); break;
    case Family::kBlackwell:
      violations.push_back({"/schedule/family",
                            "\"blackwell\" attention kernels are not built yet; there are \"portable\" and \"hopper\" "
                            "ones"});
  }
  return violations;
}

/// With the family left to the planner, one that takes the config is enough. If none does, the one that lacks least
/// speaks.
Violations lacks(const AttentionConfig& config, std::optional<Arch> arch) {
  if (!config.schedule.family.is_auto()) return lacks(config.schedule.family.value(), config);
  Violations portable = lacks(Family::kPortable, config);
  if (!arch && !config.schedule.arch.is_auto()) arch = config.schedule.arch.value();
  if (portable.empty() || (arch && !family_exists_on(Family::kHopper, *arch))) return portable;
  Violations hopper = lacks(Family::kHopper, config);
  return hopper.size() < portable.size() ? hopper : portable;
}

}  // namespace

std::vector<Violation> validate(const AttentionConfig& config, std::optional<Arch> arch) {
  Violations violations = contradictions(config);
  check_target(config.schedule, arch, violations);
  Violations found = lacks(config, arch);
  violations.insert(violations.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
  return violations;  // shared memory and registers are judged on the resolved Spec by the planner
}

}  // namespace kernelwright

// Attention: which kernel family judges a config.
#include "kernelwright/generator/attention/validate.h"

#include <fmt/format.h>

#include <iterator>

#include "kernelwright/generator/attention/family.h"
#include "kernelwright/generator/plan/advice.h"
#include "kernelwright/generator/plan/validate_rules.h"
#include "kernelwright/generator/problem/contradictions.h"

namespace kernelwright {

namespace {

using namespace detail;
using Violations = std::vector<Violation>;

/// If the planner may choose the family, one family that takes the config is enough. If none does, the violations of
/// the family that lacks least are returned.
Violations fewest_lacks(const AttentionConfig& config, std::optional<Arch> arch) {
  const auto of = [&](Family family) { return lacks(family, config.problem, config.schedule); };
  if (!config.schedule.family.is_auto()) return of(config.schedule.family.value());
  if (!arch && !config.schedule.arch.is_auto()) arch = config.schedule.arch.value();
  Violations fewest = of(kGeneralFamily);
  for (const AttentionFamily* row : attention_families()) {
    if (fewest.empty() || (arch && !family_exists_on(row->family, *arch))) continue;
    if (row->latent != config.problem.is_latent()) continue;
    if (row->decodes_best && row->decodes_best(config.problem, config.schedule)) return {};
    Violations found = of(row->family);
    if (found.size() < fewest.size()) fewest = std::move(found);
  }
  return fewest;
}

/// Tells of latent attention, where a problem without it has the shape of one.
void advise_latent(const AttentionConfig& config, std::optional<Arch> arch, Violations& found) {
  AttentionConfig latent = config;
  latent.problem.v_layout = VLayout::kKeyPrefix;
  if (found.empty() || config.problem.v_layout != VLayout::kRows || config.problem.heads.kv != 1) return;
  if (!contradictions(latent).empty() || !fewest_lacks(latent, arch).empty()) return;
  found.push_back(
      {"/problem/v_layout", fmt::format("\"v_layout\": \"key_prefix\" takes keys of {} that hold their values",
                                        config.problem.head_dim.qk)});
}

}  // namespace

std::vector<Violation> validate(const AttentionConfig& config, std::optional<Arch> arch) {
  Violations violations = contradictions(config);
  check_target(config.schedule, arch, violations);
  Violations found = fewest_lacks(config, arch);
  if (violations.empty())
    advise(
        config.schedule, arch,
        [&](Family family, const AttentionSchedule& schedule, Arch) { return lacks(family, config.problem, schedule); },
        found);
  if (violations.empty()) advise_latent(config, arch, found);
  violations.insert(violations.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
  return violations;  // shared memory and registers are judged on the resolved Spec by the planner
}

}  // namespace kernelwright

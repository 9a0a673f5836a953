// The table of attention families, and the functions that walk it by a Spec alone.
#include "kernelwright/generator/attention/family.h"

#include <cmath>

#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/attention/shared_map.h"

namespace kernelwright {
namespace detail {

std::span<const AttentionFamily* const> attention_families() noexcept {
  static const AttentionFamily* const rows[] = {&hopper_attention(),          &hopper_latent_attention(),
                                                &blackwell_attention(),       &blackwell_latent_attention(),
                                                &portable_latent_attention(), &portable_attention()};
  return rows;
}

const AttentionFamily& attention_row(Family family, bool latent) noexcept {
  for (const bool wanted : {latent, false})
    for (const AttentionFamily* row : attention_families())
      if (row->family == family && row->latent == wanted) return *row;
  return *attention_families().back();
}

std::vector<Violation> lacks(Family family, const AttentionProblem& problem, const AttentionSchedule& schedule) {
  std::vector<Violation> violations;
  attention_row(family, problem.is_latent()).check(problem, schedule, violations);
  return violations;
}

void choose_exponentials(const AttentionSchedule& schedule, int planned, const std::string& reason, AttentionSpec& spec,
                         Resolver& resolve) {
  Auto<double> asked;
  if (!schedule.exp2_emulated.is_auto()) asked = std::round(schedule.exp2_emulated.value() * kExp2Step) / kExp2Step;
  const double fraction = resolve("exp2_emulated", asked, static_cast<double>(planned) / kExp2Step, reason);
  spec.exp2_emulated = static_cast<int>(std::lround(fraction * kExp2Step));
}

std::vector<KernelRole> alike_roles(const AttentionSpec& spec) { return {{spec.num_warps, "math"}}; }

}  // namespace detail

using detail::family_row;

std::uint32_t shared_bytes(const AttentionSpec& spec) { return family_row(spec).shared_bytes(spec); }

std::vector<SharedRegion> shared_map(const AttentionSpec& spec) { return family_row(spec).shared_map(spec); }

TensorMemoryMap tensor_memory_map(const AttentionSpec& spec) {
  const auto map = family_row(spec).tensor_memory_map;
  return map ? map(spec) : TensorMemoryMap{};
}

std::vector<KernelRole> roles(const AttentionSpec& spec) { return family_row(spec).roles(spec); }

}  // namespace kernelwright

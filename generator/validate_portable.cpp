// Attention: what the built kernel family, portable, has. A feature joins a list here when its kernel lands.
#include <algorithm>

#include "kernelwright/generator/validate.h"
#include "kernelwright/generator/validate_rules.h"

namespace kernelwright {
namespace {

using namespace detail;
using Violations = std::vector<Violation>;

const std::vector<std::string_view> kPortableFields = {"arch",       "family",    "block_m",   "block_n",   "block_k",
                                                       "num_stages", "token_gen", "num_warps", "scheduler", "swizzle",
                                                       "pack_gqa",   "splits",    "merge",     "rescale"};
const std::vector<int> kHeadDims = {64, 80, 96, 128, 192, 256};

/// Collects refusals in one wording.
class Portable {
 public:
  explicit Portable(Violations& violations) : violations_(violations) {}

  template <Enum E>
  void takes(const std::string& path, E found, std::initializer_list<E> built) {
    if (!is_one_of(found, built)) refuse(path, "\"" + std::string(to_string(found)) + "\"", join_words(built));
  }
  void takes(const std::string& path, int found, const std::vector<int>& built) {
    for (const int one : built)
      if (one == found) return;
    refuse(path, std::to_string(found), join_numbers(built));
  }
  void refuse(const std::string& path, const std::string& found, const std::string& built) {
    violations_.push_back({path, found + " is not built yet for the portable family; it has " + built});
  }

 private:
  Violations& violations_;
};

/// Fields of other families are refused by name, so that no one tunes what nothing reads.
void check_fields_exist(AttentionSchedule schedule, Violations& violations) {
  const std::vector<std::string_view>& fields = kPortableFields;
  visit_fields(schedule, [&](const char* name, const auto& value, const auto&, const char*) {
    if (value.is_auto() || std::find(fields.begin(), fields.end(), name) != fields.end()) return;
    violations.push_back({pointer_to("/schedule", name),
                          "the portable family has no " + std::string(name) + "; its fields are " + join(fields)});
  });
}

void check_portable(const AttentionProblem& problem, const AttentionSchedule& schedule, Violations& violations) {
  Portable portable(violations);
  portable.takes("/problem/dtype/q", problem.dtype.q, {DType::kF16, DType::kBf16});
  portable.takes("/problem/dtype/out", problem.dtype.out, {DType::kF16, DType::kBf16, DType::kF32});
  portable.takes("/problem/head_dim/qk", problem.head_dim.qk, kHeadDims);
  portable.takes("/problem/head_dim/v", problem.head_dim.v, kHeadDims);
  portable.takes("/problem/mask/kind", problem.mask.kind,
                 {MaskKind::kNone, MaskKind::kCausal, MaskKind::kSlidingWindow});
  portable.takes("/problem/score_mod/kind", problem.score_mod.kind, {ScoreModKind::kNone, ScoreModKind::kSoftcap});
  portable.takes("/problem/scales", problem.scales, {ScaleKind::kNone, ScaleKind::kPerTensor, ScaleKind::kPerHead});
  portable.takes("/problem/cache_length", problem.cache_length, {CacheLength::kAccurate});
  if (problem.rope.width != 0)
    portable.refuse("/problem/rope/width", std::to_string(problem.rope.width), "0, no rotary part");
  check_fields_exist(schedule, violations);
  if (!schedule.merge.is_auto()) portable.takes("/schedule/merge", schedule.merge.value(), {Merge::kCombine});
  if (!schedule.scheduler.is_auto())
    portable.takes("/schedule/scheduler", schedule.scheduler.value(), {Scheduler::kLongestFirst});
}

}  // namespace

std::vector<Violation> validate(const AttentionConfig& config, std::optional<Arch> arch) {
  Violations violations = contradictions(config);
  check_target(config.schedule, arch, violations);
  const Family family = config.schedule.family.value_or(Family::kPortable);
  if (family != Family::kPortable)
    violations.push_back(
        {"/schedule/family", "\"" + std::string(to_string(family)) +
                                 "\" attention kernels are not built yet; there are \"portable\" ones"});
  else
    check_portable(config.problem, config.schedule, violations);
  // Shared memory and registers are judged on the resolved Spec by launch_plan.
  return violations;
}

}  // namespace kernelwright

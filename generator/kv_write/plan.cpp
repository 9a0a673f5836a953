#include "kernelwright/generator/kv_write/plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "contract/kv_write.h"
#include "kernelwright/generator/plan/validate_rules.h"
#include "kernelwright/generator/problem/contradictions.h"

namespace kernelwright {
namespace {

using namespace detail;

constexpr int kWidestHead = 256;
constexpr int kMostWarps = 32;  // of a CTA
constexpr int kMostHeadsPerLane = 8;

int lanes_of(const KvWriteSpec& spec) { return contract::lanes_of_head(std::max(spec.head_dim_qk, spec.head_dim_v)); }

/// Warps that share the heads of a token. A warp has heads of one operand.
int warps_of(const KvWriteSpec& spec, int heads_per_lane) {
  const int lanes = lanes_of(spec);
  return contract::warps_of_heads(spec.q_heads, lanes, heads_per_lane) +
         (spec.v_out ? 2 : 1) * contract::warps_of_heads(spec.kv_heads, lanes, heads_per_lane);
}

/// So many loads are in flight.
int usual_heads_per_lane(const KvWriteSpec& spec) {
  constexpr int kUsual = 2;
  return std::min(kUsual, contract::warps_of_heads(std::max(spec.q_heads, spec.kv_heads), lanes_of(spec), 1));
}

/// A norm over all heads needs a token's heads in one CTA.
int heads_per_lane_of_one_cta(const KvWriteSpec& spec) {
  constexpr int kFewWarps = 12;
  for (int heads = 1; heads <= kMostHeadsPerLane; ++heads)
    if (warps_of(spec, heads) <= (heads < kMostHeadsPerLane ? kFewWarps : kMostWarps)) return heads;
  return kMostHeadsPerLane;
}

}  // namespace

KvWriteSpec kv_write_spec(const KvWriteProblem& problem, Arch arch) {
  KvWriteSpec spec;
  spec.arch = arch;
  spec.in = problem.dtype.in;
  spec.q = problem.q_out ? problem.dtype.q : problem.dtype.in;
  spec.kv = problem.dtype.kv;
  spec.head_dim_qk = problem.head_dim.qk;
  spec.head_dim_v = problem.head_dim.v;
  spec.q_heads = problem.q_out ? problem.heads.q : 0;
  spec.kv_heads = problem.heads.kv;
  spec.v_out = problem.v_out;
  spec.kv_layout = problem.kv_layout.kind;
  spec.page_size = problem.kv_layout.page_size;
  spec.v_columns = problem.v_layout == VLayout::kColumns;
  spec.index = problem.index;
  const QkNorm& norm = problem.qk_norm;
  spec.norm = norm.kind;
  if (norm.kind != NormKind::kNone) {  // without a norm these leave one kernel
    spec.norm_weight = norm.weight;
    spec.weight_offset = norm.weight_offset;
    spec.norm_before_rope = norm.before_rope || problem.rope.style == RopeStyle::kNone;
    spec.norm_v = norm.v;
  }
  const RopeRotation& rope = problem.rope;
  spec.rope = rope.style;
  spec.rope_width = rope.width;
  spec.rope_begin = rope.begin;
  spec.section_first = rope.sections.first;
  spec.section_second = rope.sections.second;
  spec.section_third = rope.sections.third;
  spec.interleaved = rope.interleaved;
  spec.hadamard = problem.hadamard;
  spec.hadamard_signs = problem.hadamard_signs;
  spec.q_scales = problem.scales.q;
  spec.k_scales = problem.scales.k;
  spec.v_scales = problem.scales.v;
  spec.power_of_two = problem.scales.power_of_two;
  spec.ue8m0 = problem.scales.ue8m0;
  spec.has_least = problem.scales.least > 0;
  return spec;
}

namespace {

void choose(KvWriteSpec& spec, const KvWriteSchedule& schedule, std::vector<Choice>& choices) {
  Resolver resolve(choices);
  resolve("family", schedule.family, Family::kPortable, "one kernel serves every architecture");
  if (spec.norm == NormKind::kRmsAllHeads) {
    spec.heads_per_lane = resolve("heads_per_lane", schedule.heads_per_lane, heads_per_lane_of_one_cta(spec),
                                  "the norm adds over all heads of a token, which one CTA has");
    spec.num_warps = resolve("num_warps", schedule.num_warps, warps_of_token(spec), "one CTA has one token");
    return;
  }
  spec.heads_per_lane = resolve("heads_per_lane", schedule.heads_per_lane, usual_heads_per_lane(spec),
                                "so many loads are in flight; of few tokens a lane has one head");
  spec.splits_few = schedule.heads_per_lane.is_auto() && spec.heads_per_lane > 1;
  spec.num_warps = resolve("num_warps", schedule.num_warps, 4, "small CTAs spread few tokens over the SMs");
}

void check_kernel(const KvWriteConfig& config, std::vector<Violation>& violations) {
  FamilyRules rules(Family::kPortable, violations);
  const auto head = [&](const char* path, int elements) {
    if (elements > kWidestHead) rules.refuse(path, std::to_string(elements), "up to " + std::to_string(kWidestHead));
  };
  head("/problem/head_dim/qk", config.problem.head_dim.qk);
  head("/problem/head_dim/v", config.problem.head_dim.v);
  if (const Family family = config.schedule.family.value_or(Family::kPortable); family != Family::kPortable)
    violations.push_back({"/schedule/family", "\"" + std::string(to_string(family)) +
                                                  "\" has no kernel that writes a cache; portable has one for every "
                                                  "architecture"});
}

/// Whether the heads of a token fit a CTA, for a norm over all of them.
void check_cta(const KvWriteSpec& spec, std::vector<Violation>& violations) {
  if (spec.norm != NormKind::kRmsAllHeads) return;
  const int needed = warps_of_token(spec);
  if (needed > kMostWarps)
    violations.push_back(
        {"/problem/heads", std::to_string(spec.items()) + " heads of a token need " + std::to_string(needed) +
                               " warps for a norm over all of them, and a CTA has " + std::to_string(kMostWarps)});
  else if (spec.num_warps != needed)
    violations.push_back({"/schedule/num_warps", std::to_string(spec.num_warps) +
                                                     " does not fit a norm over all heads of a token; " +
                                                     std::to_string(needed) + " would do"});
}

}  // namespace

int warps_of_token(const KvWriteSpec& spec) noexcept { return warps_of(spec, spec.heads_per_lane); }

std::int64_t most_tokens(const KvWriteSpec& spec) noexcept {
  constexpr std::int64_t kMostUnits = (std::int64_t{1} << 31) - 1024;  // the last CTA counts to its end
  return kMostUnits / warps_of_token(spec);
}

bool has_few(const KvWriteSpec& spec, std::int64_t tokens) noexcept {
  // About as many warps as a large GPU has at once.
  constexpr std::int64_t kFewWarps = 4096;
  return spec.splits_few && tokens * warps_of(spec, 1) <= kFewWarps;
}

LaunchPlan plan_launch(const KvWriteSpec& spec, std::int64_t tokens) noexcept {
  const int warps = has_few(spec, tokens) ? warps_of(spec, 1) : warps_of_token(spec);
  LaunchPlan plan;
  plan.block = static_cast<std::uint32_t>(32 * spec.num_warps);
  plan.grid[0] = static_cast<std::uint32_t>(ceil_div(tokens * warps, spec.num_warps));
  return plan;
}

std::vector<Violation> validate(const KvWriteConfig& config, std::optional<Arch> arch) {
  std::vector<Violation> violations = contradictions(config);
  check_target(config.schedule, arch, violations);
  check_kernel(config, violations);
  return violations;
}

KvWritePlan plan_kv_write(const KvWriteProblem& problem, const KvWriteSchedule& schedule, Arch arch) {
  std::vector<Violation> violations = validate(KvWriteConfig{"", problem, schedule, {}}, arch);
  if (!violations.empty()) throw ConfigError(std::move(violations));
  KvWritePlan plan{kv_write_spec(problem, arch), {}};
  choose(plan.spec, schedule, plan.choices);
  check_cta(plan.spec, violations);
  if (!violations.empty()) throw ConfigError(std::move(violations));
  return plan;
}

}  // namespace kernelwright

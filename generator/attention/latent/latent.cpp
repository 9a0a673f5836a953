// Latent attention: what the kernels for values in keys (VLayout::kKeyPrefix) take, and whether a tile fits.
#include <fmt/format.h>

#include <algorithm>

#include "kernelwright/generator/attention/latent/latent.h"
#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/attention/shared_map.h"
#include "kernelwright/generator/plan/validate_rules.h"
#include "kernelwright/generator/problem/range_mask.h"

namespace kernelwright::detail {
namespace {

using Violations = std::vector<Violation>;

constexpr int kValueColumns = 512;  // of every model so far; an accumulator of 64 rows fills two warpgroups

const std::vector<std::string_view>& kMappedFields =
    *new std::vector<std::string_view>{"arch", "family", "scheduler", "cluster", "splits", "merge", "rescale"};
const std::vector<std::string_view>& kPortableFields = *new std::vector<std::string_view>{
    "arch", "family", "block_m", "num_stages", "swizzle", "splits", "merge", "rescale"};

/// What all families take, and whether this one converts keys of 8 bits.
void check_problem(const AttentionProblem& problem, bool converts, FamilyRules& rules) {
  rules.takes("/problem/dtype/q", problem.dtype.q, {DType::kF16, DType::kBf16});
  std::vector<DType> keys{DType::kF16, DType::kBf16};
  std::vector<ScaleKind> scales{ScaleKind::kNone};
  if (converts) {
    keys.push_back(DType::kE4m3);
    scales.insert(scales.end(), {ScaleKind::kPerTensor, ScaleKind::kPerBlock});
  }
  rules.takes("/problem/dtype/kv", problem.dtype.kv, keys);
  rules.takes("/problem/scales", problem.scales, scales);
  if (problem.has_records() && problem.head_dim.qk == kValueColumns)
    rules.refuse("/problem/head_dim/qk", std::to_string(problem.head_dim.qk),
                 fmt::format("{} for scales \"per_block\": records of 512 latents, 4 scales and 64 elements of {}",
                             kValueColumns + 64, to_string(problem.dtype.q)));
  rules.takes("/problem/v_layout", problem.v_layout, {VLayout::kKeyPrefix});
  rules.takes("/problem/head_dim/qk", problem.head_dim.qk, {kValueColumns, kValueColumns + 64});
  rules.takes("/problem/head_dim/v", problem.head_dim.v, {kValueColumns});
  rules.takes_masks("/problem/mask", problem.mask);
  if (const OpenMask open = open_mask(problem.mask); open.tensor || open.source)
    rules.refuse("/problem/mask", "a mask of single keys", "masks that are ranges of keys");
  rules.takes("/problem/score_mod/kind", problem.score_mod.kind, {ScoreModKind::kNone, ScoreModKind::kSoftcap});
  if (problem.rope.width != 0)
    rules.refuse("/problem/rope/width", std::to_string(problem.rope.width),
                 "0: the rotary part is the end of each key, of the same dtype");
}

/// A family that loads by TMA.
template <Family kFamily>
void check_mapped_latent(const AttentionProblem& problem, const AttentionSchedule& schedule, Violations& violations) {
  const bool hopper = kFamily == Family::kHopper;
  FamilyRules family(kFamily, violations);
  check_problem(problem, hopper, family);
  family.takes("/problem/dtype/out", problem.dtype.out, {problem.dtype.q});
  if (problem.kv_layout.kind == KvLayoutKind::kPaged && contract::hopper_gathers_kv(problem.kv_layout.page_size))
    family.refuse("/problem/kv_layout/page_size", std::to_string(problem.kv_layout.page_size),
                  fmt::format("multiples of {}", contract::kMinPagedBoxRows));
  family.takes("/schedule/scheduler", schedule.scheduler.value_or(Scheduler::kGrid),
               hopper ? std::vector{Scheduler::kGrid, Scheduler::kBalanced} : std::vector{Scheduler::kGrid});
  family.has_only(schedule, kMappedFields);
}

void check_portable_latent(const AttentionProblem& problem, const AttentionSchedule& schedule, Violations& violations) {
  FamilyRules portable(Family::kPortable, violations);
  check_problem(problem, true, portable);
  portable.takes("/problem/dtype/out", problem.dtype.out, {DType::kF16, DType::kBf16, DType::kF32});
  portable.has_only(schedule, kPortableFields);
}

void refuse(Violations& violations, const char* field, std::string message) {
  violations.push_back({std::string("/schedule/") + field, std::move(message)});
}

void check_mapped_tile(const AttentionSpec& spec, const AttentionSchedule& schedule, const ArchInfo&,
                       Violations& violations) {
  const ClusterShape cluster = schedule.cluster.value_or({spec.cluster_m, 1});
  if (converts_keys(spec) && cluster != ClusterShape{1, 1})
    return refuse(violations, "cluster",
                  fmt::format("[{}, {}]: each CTA converts keys of {} for itself; [1, 1] would do", cluster.m,
                              cluster.n, to_string(spec.kv)));
  if (cluster.n != 1 || cluster.m > 2)
    refuse(violations, "cluster",
           fmt::format("[{}, {}]: two CTAs, along the query rows, may share each load of keys; [{}, 1] would do",
                       cluster.m, cluster.n, std::min(cluster.m, 2)));
  if (!spec.balanced) return;
  if (spec.score_mod != ScoreModKind::kNone || spec.kv_starts || contract::hides_low(spec.mask))
    refuse(violations, "scheduler",
           "\"balanced\": no registers are left for softcap, windows, chunks and kv_starts; \"grid\" would do");
  const auto conflict = [&](const char* field, const std::string& value, const char* remedy) {
    refuse(violations, field, fmt::format("{}: does not fit scheduler \"balanced\", which {}", value, remedy));
  };
  if (cluster.m > 1) conflict("cluster", fmt::format("[{}, 1]", cluster.m), "has teams of CTAs; [1, 1] would do");
  if (spec.kv != spec.q)
    refuse(violations, "scheduler",
           fmt::format("\"balanced\": keys of {} are not built; \"grid\" would do", to_string(spec.kv)));
  if (schedule.splits.value_or(0) > 0)
    conflict("splits", std::to_string(schedule.splits.value()), "cuts keys itself; leave it out, or take \"grid\"");
  if (schedule.merge.value_or(Merge::kInKernel) == Merge::kCombine)
    conflict("merge", "\"combine\"", "merges in its kernel; \"in_kernel\" would do");
}

void check_portable_tile(const AttentionSpec& spec, const AttentionSchedule&, const ArchInfo& arch,
                         Violations& violations) {
  if (spec.block_m != 16 && spec.block_m != 32)
    refuse(violations, "block_m",
           fmt::format("{}: a tile has 16 or 32 query rows; {} would do", spec.block_m, spec.block_m < 24 ? 16 : 32));
  if (spec.num_stages < 2)
    refuse(violations, "num_stages",
           fmt::format("{}: one tile lands while another is read; 2 would do", spec.num_stages));
  if (!violations.empty()) return;
  AttentionSpec smaller = spec;
  const auto fits = [&] { return static_cast<int>(shared_bytes(smaller)) <= arch.shared_bytes_per_cta; };
  if (fits()) return;
  std::string nearest;
  while (smaller.num_stages > 2 && nearest.empty()) {
    --smaller.num_stages;
    if (fits()) nearest = fmt::format("; num_stages {} would fit", smaller.num_stages);
  }
  const bool stages = !nearest.empty();
  smaller.block_m = 16;
  if (!stages && fits()) nearest = fmt::format("; block_m 16 with num_stages {} would fit", smaller.num_stages);
  refuse(violations, stages ? "num_stages" : "block_m",
         fmt::format("{}: needs {} shared bytes and {} has {}{}", kernel_name(spec), shared_bytes(spec), arch.name,
                     arch.shared_bytes_per_cta, nearest));
}

template <Family kFamily>
AxisSets mapped_axes(const AttentionProblem& problem, const ArchInfo&) {
  using S = AttentionSchedule;
  std::vector<ClusterShape> clusters{{1, 1}};
  const bool converts = problem.dtype.kv != problem.dtype.q;
  if (rows_of_a_kv_head(problem) > contract::kLatentRows && !converts) clusters.push_back({2, 1});
  const Axis rescale = axis("rescale", &S::rescale, {Rescale::kLazy, Rescale::kAlways});
  AxisSets sets{{axis("scheduler", &S::scheduler, {Scheduler::kGrid}), axis("cluster", &S::cluster, clusters),
                 axis("merge", &S::merge, {Merge::kInKernel, Merge::kCombine}), rescale}};
  if (kFamily == Family::kHopper && !converts)
    sets.push_back({axis("scheduler", &S::scheduler, {Scheduler::kBalanced}), rescale});
  return sets;
}

AxisSets portable_axes(const AttentionProblem&, const ArchInfo&) {
  using S = AttentionSchedule;
  return {{axis("block_m", &S::block_m, {16, 32}), axis("num_stages", &S::num_stages, {2, 3, 4}),
           axis("merge", &S::merge, {Merge::kInKernel, Merge::kCombine})}};
}

std::uint32_t hopper_bytes(const AttentionSpec& spec) {
  return static_cast<std::uint32_t>(hopper_latent_layout_of(spec).total);
}
std::uint32_t blackwell_bytes(const AttentionSpec& spec) {
  return static_cast<std::uint32_t>(contract::blackwell_latent_layout(spec.head_dim_qk).total);
}
std::uint32_t portable_bytes(const AttentionSpec& spec) {
  return static_cast<std::uint32_t>(portable_latent_layout_of(spec).total);
}

std::vector<KernelRole> hopper_roles(const AttentionSpec& spec) {
  if (converts_keys(spec)) return {{1, "load"}, {3, "convert"}, {4, "math 0"}, {4, "math 1"}};
  return {{4, "load"}, {4, "math 0"}, {4, "math 1"}};
}
std::vector<KernelRole> blackwell_roles(const AttentionSpec&) {
  return {{4, "softmax"}, {4, "correction"}, {1, "mma scores"}, {1, "mma output"}, {1, "load"}, {1, "idle"}};
}

}  // namespace

const AttentionFamily& hopper_latent_attention() {
  static constexpr AttentionFamily row = {.family = Family::kHopper,
                                          .latent = true,
                                          .check = check_mapped_latent<Family::kHopper>,
                                          .check_tile = check_mapped_tile,
                                          .plan = plan_hopper_latent,
                                          .axes = mapped_axes<Family::kHopper>,
                                          .shared_bytes = hopper_bytes,
                                          .shared_map = hopper_latent_map,
                                          .roles = hopper_roles,
                                          .mma = "wgmma",
                                          .reader = "wgmma"};
  return row;
}

const AttentionFamily& blackwell_latent_attention() {
  static constexpr AttentionFamily row = {.family = Family::kBlackwell,
                                          .latent = true,
                                          .check = check_mapped_latent<Family::kBlackwell>,
                                          .check_tile = check_mapped_tile,
                                          .plan = plan_blackwell_latent,
                                          .axes = mapped_axes<Family::kBlackwell>,
                                          .shared_bytes = blackwell_bytes,
                                          .shared_map = blackwell_latent_map,
                                          .roles = blackwell_roles,
                                          .mma = "tcgen05",
                                          .reader = "tcgen05.mma",
                                          .tensor_memory_map = blackwell_latent_tensor_memory};
  return row;
}

const AttentionFamily& portable_latent_attention() {
  static constexpr AttentionFamily row = {.family = Family::kPortable,
                                          .latent = true,
                                          .check = check_portable_latent,
                                          .check_tile = check_portable_tile,
                                          .plan = plan_portable_latent,
                                          .axes = portable_axes,
                                          .shared_bytes = portable_bytes,
                                          .shared_map = portable_latent_map,
                                          .roles = alike_roles};
  return row;
}

}  // namespace kernelwright::detail

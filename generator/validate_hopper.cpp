// Attention: what the hopper family has. A feature joins a list here when its kernel lands; then the tile against the
// machine.
#include <fmt/format.h>

#include <algorithm>

#include "kernelwright/generator/families.h"
#include "kernelwright/generator/launch_plan.h"
#include "kernelwright/generator/validate_rules.h"

namespace kernelwright::detail {
namespace {

using Violations = std::vector<Violation>;

const std::vector<std::string_view> kHopperFields = {
    "arch",          "family",        "block_m",  "block_n",         "token_gen", "q_stages",
    "num_kv_stages", "num_qk_stages", "kv_ring",  "math_warpgroups", "overlap",   "swizzle",
    "cluster",       "scheduler",     "pack_gqa", "splits",          "rescale"};
const std::vector<std::string_view> kDecodeFields = {"arch",      "family",    "block_m",    "block_n",
                                                     "token_gen", "num_warps", "num_stages", "swizzle",
                                                     "pack_gqa",  "splits",    "merge",      "rescale"};
constexpr int kMaxHeadDim = 256, kHeadDimStep = 8, kMinHeadDim = 16;

void check_problem(const AttentionProblem& problem, bool decode, FamilyRules& hopper) {
  // Decode multiplies with mma.sync, 16 columns at a time.
  const int step = decode ? 16 : kHeadDimStep;
  hopper.takes("/problem/dtype/q", problem.dtype.q, {DType::kF16, DType::kBf16});
  // K, V and O pass through the same instructions as Q, whose dtype they share.
  if (is_one_of(problem.dtype.q, {DType::kF16, DType::kBf16})) {
    hopper.takes("/problem/dtype/kv", problem.dtype.kv, {problem.dtype.q});
    hopper.takes("/problem/dtype/out", problem.dtype.out, {problem.dtype.q});
  }
  const auto check_depth = [&](const char* path, int depth) {
    const bool fits = depth >= kMinHeadDim && depth <= kMaxHeadDim && depth % step == 0;
    if (!fits)
      hopper.refuse(path, std::to_string(depth),
                    fmt::format("multiples of {} from {} to {}", step, kMinHeadDim, kMaxHeadDim));
    return fits;
  };
  const bool qk_fits = check_depth("/problem/head_dim/qk", problem.head_dim.qk);
  if (check_depth("/problem/head_dim/v", problem.head_dim.v) && qk_fits && problem.head_dim.v > problem.head_dim.qk)
    hopper.refuse("/problem/head_dim/v", std::to_string(problem.head_dim.v),
                  fmt::format("values no wider than keys, {}", problem.head_dim.qk));
  // A box of TMA lies within one page and begins where the swizzle's pattern does, every 8 rows. Prefill gathers the
  // rows of other pages.
  if (decode && problem.kv_layout.kind == KvLayoutKind::kPaged &&
      contract::hopper_gathers_kv(problem.kv_layout.page_size))
    hopper.refuse("/problem/kv_layout/page_size", std::to_string(problem.kv_layout.page_size),
                  fmt::format("multiples of {}", contract::kMinPagedBoxRows));
  hopper.takes_ranges("/problem/mask", problem.mask);
  hopper.takes("/problem/score_mod/kind", problem.score_mod.kind,
               {ScoreModKind::kNone, ScoreModKind::kSoftcap, ScoreModKind::kAlibi});
  hopper.takes("/problem/scales", problem.scales, {ScaleKind::kNone});
  hopper.takes("/problem/cache_length", problem.cache_length, {CacheLength::kAccurate});
  if (problem.rope.width != 0)
    hopper.refuse("/problem/rope/width", std::to_string(problem.rope.width), "0, no rotary part");
}

void check_decode_schedule(const AttentionSchedule& schedule, FamilyRules& hopper) {
  hopper.has_only(schedule, kDecodeFields);
  if (!schedule.swizzle.is_auto()) hopper.takes("/schedule/swizzle", schedule.swizzle.value(), {Swizzle::k128B});
}

void check_schedule(const AttentionSchedule& schedule, FamilyRules& hopper) {
  hopper.has_only(schedule, kHopperFields);
  if (!schedule.splits.is_auto()) hopper.takes("/schedule/splits", schedule.splits.value(), {1});
  if (!schedule.swizzle.is_auto()) hopper.takes("/schedule/swizzle", schedule.swizzle.value(), {Swizzle::k128B});
  if (!schedule.scheduler.is_auto())
    hopper.takes("/schedule/scheduler", schedule.scheduler.value(),
                 {Scheduler::kGrid, Scheduler::kPersistent, Scheduler::kLongestFirst, Scheduler::kQueued});
  if (const ClusterShape cluster = schedule.cluster.value_or({}); cluster.n != 1 || !is_one_of(cluster.m, {1, 2, 4}))
    hopper.refuse("/schedule/cluster", fmt::format("[{}, {}]", cluster.m, cluster.n), "[1, 1], [2, 1], [4, 1]");
  if (!schedule.math_warpgroups.is_auto())
    hopper.takes("/schedule/math_warpgroups", schedule.math_warpgroups.value(), {1, 2, 3});
}

int shared_bytes_of(const AttentionSpec& spec) { return static_cast<int>(shared_bytes(spec)); }

/// Fewer stages, then fewer keys; "" where neither would do.
std::string nearest_in_shared_memory(AttentionSpec smaller, int limit, int least_kv_stages) {
  while (smaller.num_kv_stages > least_kv_stages) {
    --smaller.num_kv_stages;
    if (shared_bytes_of(smaller) <= limit) return fmt::format("; num_kv_stages {} would fit", smaller.num_kv_stages);
  }
  if (smaller.q_stages > 1) {
    smaller.q_stages = 1;
    if (shared_bytes_of(smaller) <= limit)
      return fmt::format("; q_stages 1 with num_kv_stages {} would fit", smaller.num_kv_stages);
  }
  while (smaller.block_n > 16) {
    smaller.block_n -= 16;
    if (shared_bytes_of(smaller) <= limit)
      return fmt::format("; block_n {} with num_kv_stages {} and q_stages {} would fit", smaller.block_n,
                         smaller.num_kv_stages, smaller.q_stages);
  }
  return "";
}

}  // namespace

void check_hopper(const AttentionProblem& problem, const AttentionSchedule& schedule, Violations& violations) {
  FamilyRules hopper(Family::kHopper, violations);
  const bool decode = schedule.token_gen.value_or(false);
  check_problem(problem, decode, hopper);
  (decode ? check_decode_schedule : check_schedule)(schedule, hopper);
}

void check_hopper_tile(const AttentionSpec& spec, const ArchInfo& arch, Violations& violations) {
  const auto refuse = [&](const char* field, std::string message) {
    violations.push_back({std::string("/schedule/") + field, std::move(message)});
  };
  if (spec.block_m != 64 * spec.math_warpgroups)
    refuse("block_m",
           fmt::format("{} is not 64 rows for each math warpgroup, of which there {} {}; {} would do", spec.block_m,
                       spec.math_warpgroups == 1 ? "is" : "are", spec.math_warpgroups, 64 * spec.math_warpgroups));
  if (spec.pack_gqa && spec.block_m % spec.group != 0)
    refuse("pack_gqa", fmt::format("true: {} rows of a tile are not whole groups of {} heads; false would do",
                                   spec.block_m, spec.group));
  const bool takes_turns = spec.overlap == Overlap::kPingPong || spec.overlap == Overlap::kBoth;
  if (takes_turns && spec.math_warpgroups < 2)
    refuse("overlap", fmt::format("\"{}\" has warpgroups take turns, and there is 1; {} would do",
                                  to_string(spec.overlap), spec.overlap == Overlap::kBoth ? "intra" : "none"));
  const int slabs = contract::padded_depth(spec.head_dim_qk) / contract::kSlabColumns;
  const bool shared_ring = spec.kv_ring == KvRing::kShared;
  if (shared_ring && spec.num_qk_stages != 1)
    refuse("num_qk_stages",
           fmt::format("{}: a slot that K and V share is filled whole; 1, or kv_ring \"split\", would do",
                       spec.num_qk_stages));
  else if (slabs % spec.num_qk_stages != 0)
    refuse("num_qk_stages",
           fmt::format("{} does not divide the {} slabs of 64 columns of a key tile", spec.num_qk_stages, slabs));
  const int least_kv_stages = shared_ring ? 2 : 1;
  if (spec.num_kv_stages < least_kv_stages)
    refuse("num_kv_stages",
           fmt::format("{}: K and V of a tile are held at once; {} would do", spec.num_kv_stages, least_kv_stages));

  if (const int share = contract::kSwizzleRows * spec.cluster_m; spec.block_n % share != 0)
    refuse("block_n", fmt::format("{} keys are not a multiple of 8 for each CTA of a cluster of {}; {} would do",
                                  spec.block_n, spec.cluster_m, (spec.block_n + share - 1) / share * share));

  if (spec.cluster_m > 1 && contract::hopper_gathers_kv(spec.page_size))
    refuse("cluster", fmt::format("[{}, 1]: keys of pages of {} are gathered by each CTA for itself; [1, 1] would do",
                                  spec.cluster_m, spec.page_size));
  if (spec.scheduler == Scheduler::kQueued && spec.cluster_m > 1)
    refuse("scheduler",
           fmt::format("\"queued\" hands tiles to CTAs one by one, and a cluster of {} takes them together; "
                       "longest_first would do",
                       spec.cluster_m));

  const int budget = hopper_register_budget(spec.math_warpgroups, spec.page_size);
  if (hopper_registers(spec) > budget) {
    AttentionSpec smaller = spec;
    while (smaller.block_n > 16 && hopper_registers(smaller) > budget) smaller.block_n -= 16;
    const bool fits = hopper_registers(smaller) <= budget;
    refuse(fits ? "block_n" : "math_warpgroups",
           fmt::format("{} keys and values of {} need about {} registers a thread, and {} math warpgroup{} {}{}",
                       spec.block_n, spec.head_dim_v, hopper_registers(spec), spec.math_warpgroups,
                       spec.math_warpgroups == 1 ? " has" : "s have", budget,
                       fits ? fmt::format("; block_n {} would fit", smaller.block_n) : "; fewer warpgroups would do"));
  }
  if (const int bytes = shared_bytes_of(spec); bytes > arch.shared_bytes_per_cta) {
    const std::string nearest = nearest_in_shared_memory(spec, arch.shared_bytes_per_cta, least_kv_stages);
    refuse(nearest.starts_with("; block_n")    ? "block_n"
           : nearest.starts_with("; q_stages") ? "q_stages"
                                               : "num_kv_stages",
           fmt::format("{}: needs {} shared bytes and {} has {}{}", kernel_name(spec), bytes, arch.name,
                       arch.shared_bytes_per_cta, nearest));
  }
}

}  // namespace kernelwright::detail

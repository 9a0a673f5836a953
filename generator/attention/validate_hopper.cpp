// Attention: what the hopper family has. A feature joins a list here when its kernel lands; then the tile against the
// machine.
#include <fmt/format.h>

#include <algorithm>

#include "kernelwright/generator/attention/family.h"
#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/plan/validate_rules.h"

namespace kernelwright::detail {
namespace {

using Violations = std::vector<Violation>;

// Never destroyed: a thread may read a config while the process exits.
const std::vector<std::string_view>& kHopperFields = *new std::vector<std::string_view>{
    "arch",          "family",        "block_m",        "block_n",  "token_gen",       "q_stages",
    "num_kv_stages", "num_qk_stages", "num_mma_stages", "kv_ring",  "math_warpgroups", "overlap",
    "swizzle",       "cluster",       "scheduler",      "pack_gqa", "splits",          "rescale"};
const std::vector<std::string_view>& kDecodeFields =
    *new std::vector<std::string_view>{"arch",       "family",  "block_m",  "block_n", "token_gen", "num_warps",
                                       "num_stages", "swizzle", "pack_gqa", "splits",  "merge",     "rescale"};
constexpr int kMaxHeadDim = 256;

void check_decode_schedule(const AttentionSchedule& schedule, FamilyRules& hopper) {
  hopper.has_only(schedule, kDecodeFields);
}

void check_schedule(const AttentionSchedule& schedule, FamilyRules& hopper) {
  hopper.has_only(schedule, kHopperFields);
  if (!schedule.splits.is_auto()) hopper.takes("/schedule/splits", schedule.splits.value(), {1});
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
  const int step = staged_key_step(smaller, 16);
  while (smaller.block_n > step) {
    smaller.block_n = (smaller.block_n - 1) / step * step;
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
  // Decode multiplies with mma.sync, 16 columns at a time.
  check_mapped_problem(problem, {decode ? 16 : 8, kMaxHeadDim, kMaxHeadDim, !decode}, hopper);
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
  const int least_kv_stages = spec.kv_ring == KvRing::kShared ? 2 : 1;
  check_swizzle(spec, violations);
  check_rings(spec, least_kv_stages, violations);

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
    const int step = staged_key_step(smaller, 16);
    while (smaller.block_n > step && hopper_registers(smaller) > budget)
      smaller.block_n = (smaller.block_n - 1) / step * step;
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

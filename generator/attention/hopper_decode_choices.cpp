// The choices of hopper's decode form: attention_decode_sm90.
#include <fmt/format.h>

#include <algorithm>

#include "kernelwright/generator/attention/family.h"
#include "kernelwright/generator/attention/launch.h"

namespace kernelwright {
namespace {

/// fp8 keys: two CTAs where shared memory holds both. Registers never forbid it for four warps: each thread may have
/// 255.
int fp8_ctas(const AttentionSpec& spec, const ArchInfo& machine) {
  const int bytes = static_cast<int>(shared_bytes(spec)) + machine.reserved_shared_bytes_per_cta;
  return spec.num_warps <= 4 && 2 * bytes <= machine.shared_bytes_per_sm ? 2 : 1;
}

/// The number of CTAs for an SM: as many as shared memory holds while their registers do not spill. The registers were
/// counted for 16 rows and 16 keys a warp.
int resident_ctas(const AttentionSpec& spec, const ArchInfo& machine) {
  const int depth = std::max(spec.head_dim_qk, spec.head_dim_v);
  const bool counted = depth <= 64 || (depth == 128 && !spec.sinks);
  if (!counted || spec.block_m > 16 || spec.block_n > 16 * spec.num_warps) return 1;
  const int registers = machine.registers_per_sm / (32 * spec.num_warps * (depth > 64 ? 168 : 128));
  const int shared =
      machine.shared_bytes_per_sm / (static_cast<int>(shared_bytes(spec)) + machine.reserved_shared_bytes_per_cta);
  return std::max(1, std::min(registers, shared));
}

}  // namespace

namespace detail {
namespace {

/// fp8 keys: 32 a warp, where half of the bytes of 16-bit keys would otherwise be on their way. A warp has twice as
/// many instructions for each byte, so that two CTAs share an SM: one converts and multiplies while the other waits.
/// Not timed yet.
void plan_fp8_keys(const AttentionSchedule& schedule, const ArchInfo& machine, Resolver& resolve, AttentionPlan& plan) {
  AttentionSpec& spec = plan.main;
  constexpr int kMostStages = 6;
  const auto bytes = [&] { return static_cast<int>(shared_bytes(spec)); };
  const auto set = [&](int warps, int keys, int stages) {
    spec.num_warps = schedule.num_warps.value_or(warps);
    spec.block_n = schedule.block_n.value_or(keys * spec.num_warps);
    spec.num_stages = schedule.num_stages.value_or(stages);
  };
  const auto two_fit = [&] { return fp8_ctas(spec, machine) == 2; };
  // Two row tiles, or a wide head, leave no registers for the scores of 32 keys.
  const int keys = spec.block_m > 16 || std::max(spec.head_dim_qk, spec.head_dim_v) > 128 ? 16 : 32;
  set(4, keys, 2);
  if (bytes() > machine.shared_bytes_per_cta) set(2, keys, 2);
  const bool two = two_fit();
  while (schedule.num_stages.is_auto() && spec.num_stages < kMostStages) {
    ++spec.num_stages;
    if (two ? two_fit() : bytes() <= machine.shared_bytes_per_cta) continue;
    --spec.num_stages;
    break;
  }
  spec.num_warps = resolve("num_warps", schedule.num_warps, spec.num_warps, "each warp walks keys of its own");
  spec.block_n = resolve("block_n", schedule.block_n, spec.block_n,
                         fmt::format("{} keys a warp", spec.block_n / std::max(1, spec.num_warps)));
  spec.num_stages = resolve("num_stages", schedule.num_stages, spec.num_stages,
                            fmt::format("as many as {}, {} at most: all of them are on their way, as bytes",
                                        two ? "fit beside another CTA" : "fit", kMostStages));
  spec.min_ctas = fp8_ctas(spec, machine);
  resolve.derived("min_ctas", spec.min_ctas, "one CTA converts while another waits for bytes");
  choose_merge(schedule, plan, resolve);
}

}  // namespace

void plan_hopper_decode(const AttentionProblem& problem, const AttentionSchedule& schedule, AttentionPlan& plan) {
  AttentionSpec& spec = plan.main;
  const ArchInfo& machine = arch_info(spec.arch);
  Resolver resolve(plan.choices);
  const int max_rows = max_rows_of_a_kv_head(problem), depth = std::max(spec.head_dim_qk, spec.head_dim_v);
  spec.token_gen = resolve("token_gen", schedule.token_gen, true,
                           fmt::format("at most {} rows a KV head: bandwidth decides", max_rows));
  spec.pack_gqa = resolve("pack_gqa", schedule.pack_gqa, true, "the group's heads read the same keys");
  const PlannedSwizzle planned = planned_swizzle(spec);
  spec.swizzle = resolve("swizzle", schedule.swizzle, planned.swizzle, planned.reason);
  spec.rescale =
      resolve("rescale", schedule.rescale, Rescale::kLazy, "most tiles leave the row maximum nearly as it was");
  spec.block_k = spec.head_dim_qk;
  spec.block_m = resolve("block_m", schedule.block_m, max_rows > 16 && depth <= 128 ? 32 : 16,
                         fmt::format("{} rows: the query heads of one KV head{}", max_rows,
                                     max_rows > 16 ? ", in m16 tiles" : " fill one m16 tile"));
  const auto fits = [&] { return static_cast<int>(shared_bytes(spec)) <= machine.shared_bytes_per_cta; };
  spec.num_stages = schedule.num_stages.value_or(2);
  if (converts_to_16_bits(spec)) return plan_fp8_keys(schedule, machine, resolve, plan);
  const auto with_warps = [&](int warps) {
    spec.num_warps = schedule.num_warps.value_or(warps);
    spec.block_n = schedule.block_n.value_or(16 * spec.num_warps);
    return fits();
  };
  // On an H100, twice the keys for a warp were a little faster everywhere, with heads of 128 and three stages.
  const auto with_keys = [&](int keys, int stages) {
    spec.num_warps = schedule.num_warps.value_or(4);
    spec.block_n = schedule.block_n.value_or(keys * spec.num_warps);
    spec.num_stages = schedule.num_stages.value_or(stages);
    return fits();
  };
  const bool wide = depth > 64 && depth <= 128 && spec.block_m == 16 && with_keys(32, 3);
  if (!wide) spec.num_stages = schedule.num_stages.value_or(2);
  if (!wide && !with_warps(4) && schedule.num_stages.is_auto()) with_warps(2);
  spec.num_warps = resolve("num_warps", schedule.num_warps, spec.num_warps, "each warp walks keys of its own");
  spec.block_n = resolve("block_n", schedule.block_n, spec.block_n,
                         fmt::format("{} keys a warp", spec.block_n / std::max(1, spec.num_warps)));
  if (schedule.num_stages.is_auto())
    while (spec.num_stages < 4) {
      ++spec.num_stages;
      if (fits()) continue;
      --spec.num_stages;
      break;
    }
  spec.num_stages = resolve("num_stages", schedule.num_stages, spec.num_stages,
                            "as many as fit, 4 at most: all of them are on their way");
  spec.min_ctas = resident_ctas(spec, machine);
  resolve.derived("min_ctas", spec.min_ctas, "what shared memory holds, where the registers last");
  choose_merge(schedule, plan, resolve);
}

}  // namespace detail
}  // namespace kernelwright

// The choices of latent attention, and its maps of shared memory.
#include <fmt/format.h>

#include <algorithm>

#include "kernelwright/generator/attention/latent/latent.h"
#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/attention/shared_map.h"

namespace kernelwright::detail {
namespace {

constexpr int kHopperWarps = 12;   // four load, eight multiply
constexpr int kPortableWarps = 4;  // each has a quarter of the output's columns

void choose_common(const AttentionSchedule& schedule, AttentionSpec& spec, Resolver& resolve) {
  spec.token_gen = true;  // keys may be cut into parts
  spec.pack_gqa = true;
  resolve.derived("pack_gqa", true, "one KV head serves all query heads: rows are queries x heads");
  spec.rescale =
      resolve("rescale", schedule.rescale, Rescale::kLazy, "most tiles leave the row maximum nearly as it was");
  spec.block_k = spec.head_dim_qk;
}

SharedRegion region(std::string name, std::int32_t begin, std::int32_t end, std::string use, int stage = 0) {
  return {.name = std::move(name),
          .offset = static_cast<std::uint32_t>(begin),
          .bytes = static_cast<std::uint32_t>(end - begin),
          .stage_bytes = static_cast<std::uint32_t>(stage),
          .use = std::move(use)};
}

}  // namespace

void plan_hopper_latent(const AttentionProblem& problem, const AttentionSchedule& schedule, AttentionPlan& plan) {
  AttentionSpec& spec = plan.main;
  Resolver resolve(plan.choices);
  choose_common(schedule, spec, resolve);
  spec.block_m = spec.block_n = contract::kLatentRows;
  resolve.derived("block_m", spec.block_m, "64 rows of the output fill the registers of two warpgroups");
  resolve.derived("block_n", spec.block_n, "two tiles of 64 keys fill shared memory beside Q");
  spec.num_warps = kHopperWarps, spec.num_stages = contract::kLatentSlots;
  spec.swizzle = Swizzle::k128B;
  const int rows = rows_of_a_kv_head(problem);
  const ClusterShape cluster =
      resolve("cluster", schedule.cluster, ClusterShape{1, 1},
              converts_keys(spec) ? "each CTA converts its own keys"
              : rows > contract::kLatentRows || rows == 0
                  ? "CTAs of a sequence meet in the L2: a shared load would wait for both of them"
                  : fmt::format("{} rows of a KV head are one tile", rows));
  spec.cluster_m = spec.multicast = cluster.m;
  const Scheduler scheduler = resolve("scheduler", schedule.scheduler, Scheduler::kGrid,
                                      "for sequences of like lengths; \"balanced\" suits a server's batches");
  spec.balanced = scheduler == Scheduler::kBalanced;
  if (!spec.balanced) return choose_merge(schedule, plan, resolve);
  spec.merge = Merge::kInKernel;
  resolve.derived("splits", 0, "0: CTAs cut keys where their pieces end");
  resolve.derived("merge", spec.merge, "all CTAs that have a part of a sequence merge a share of its rows");
}

void plan_portable_latent(const AttentionProblem& problem, const AttentionSchedule& schedule, AttentionPlan& plan) {
  AttentionSpec& spec = plan.main;
  const ArchInfo& machine = arch_info(spec.arch);
  Resolver resolve(plan.choices);
  choose_common(schedule, spec, resolve);
  spec.swizzle = resolve("swizzle", schedule.swizzle, Swizzle::k128B, "no bank conflicts");
  spec.staging = Staging::kCpAsync;
  spec.num_warps = kPortableWarps;
  spec.block_n = kPortableWarps * contract::kLatentWarpKeys;
  spec.warp_n = contract::kLatentWarpKeys;
  resolve.derived("num_warps", spec.num_warps, "each has a quarter of the output's columns");
  resolve.derived("block_n", spec.block_n, "each warp has the scores of eight keys");
  const auto fits = [&](int rows, int stages) {
    spec.block_m = rows, spec.num_stages = stages;
    return static_cast<int>(shared_bytes(spec)) <= machine.shared_bytes_per_cta;
  };
  const int rows = rows_of_a_kv_head(problem), least = schedule.num_stages.value_or(2);
  // ptxas spilled registers of 32 rows with lower limits of masks, with scales of records, and for sm_100a.
  const bool crowded =
      spec.kv_starts || contract::hides_low(spec.mask) || spec.has_records() || spec.arch >= Arch::kSm100a;
  const int tall = (rows == 0 || rows > 16) && !crowded && fits(32, least) ? 32 : 16;
  const int block_m =
      resolve("block_m", schedule.block_m, tall,
              tall == 32  ? "two row tiles: each fragment of keys serves twice"
              : rows > 16 ? crowded ? "32 rows would leave no register for limits of the mask, or for scales"
                                    : "32 rows do not fit shared memory beside two tiles of keys"
                          : "the rows of a KV head fill one row tile");
  int stages = least;
  while (schedule.num_stages.is_auto() && stages < 3 && fits(block_m, stages + 1)) ++stages;
  spec.block_m = block_m;
  spec.num_stages = resolve("num_stages", schedule.num_stages, stages, "as many as fit, 3 at most");
  spec.min_ctas = 1;
  resolve.derived("min_ctas", spec.min_ctas, "shared memory bounds the CTAs of an SM");
  choose_merge(schedule, plan, resolve);
}

std::vector<SharedRegion> hopper_latent_map(const AttentionSpec& spec) {
  const contract::HopperLatentLayout map = hopper_latent_layout_of(spec);
  const int slabs = spec.head_dim_qk / 64;
  const bool records = spec.has_records();
  return {region("queries", map.queries, map.odd_probabilities, fmt::format("[{}][64][64]", slabs - 1)),
          region("queries, then odd probabilities", map.odd_probabilities, map.keys, "[64][64]"),
          region("keys", map.keys, map.probabilities, fmt::format("2 slots of [{}][64][64]", slabs), map.slot),
          region("even probabilities", map.probabilities, map.maxima, "[64][64]"),
          region("maxima", map.maxima, map.sums, "[2][64]"),
          records
              ? region("scales, then sums", map.scales, map.barriers, "2 slots of [64][4]", contract::kLatentScaleBytes)
              : region("sums", map.sums, map.barriers, "[2][64]"),
          region("barriers", map.barriers, map.last,
                 fmt::format("{} mbarriers", (map.last - map.barriers) / contract::kBarrierBytes)),
          region("merges", map.last, map.total, "a flag")};
}

std::vector<SharedRegion> portable_latent_map(const AttentionSpec& spec) {
  const contract::PortableLatentLayout map = portable_latent_layout_of(spec);
  std::vector<SharedRegion> regions{
      region("queries", map.queries, map.keys, fmt::format("[{}][{}]", spec.block_m, spec.head_dim_qk))};
  const std::string tile = fmt::format("[{}][{}]", spec.block_n, spec.head_dim_qk);
  if (converts_keys(spec)) {
    regions.push_back(region("keys", map.keys, map.raw, tile));
    regions.push_back(region(
        "keys as they land", map.raw, map.scores,
        fmt::format("{} stages of [{}][{} bytes]", spec.num_stages - 1, spec.block_n, spec.key_width()), map.raw_slot));
  } else {
    regions.push_back(
        region("keys", map.keys, map.scores, fmt::format("{} stages of {}", spec.num_stages, tile), map.slot));
  }
  regions.push_back(region("scores", map.scores, map.total,
                           fmt::format("2 stages of [{}][{}]", spec.block_m, map.score_stride),
                           spec.block_m * map.score_stride * 4));
  return regions;
}

}  // namespace kernelwright::detail

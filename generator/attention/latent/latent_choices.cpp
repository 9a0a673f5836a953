// The choices of latent attention, and its maps of shared memory.
#include <fmt/format.h>

#include <algorithm>

#include "kernelwright/generator/attention/latent/latent.h"
#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/attention/shared_map.h"

namespace kernelwright::detail {
namespace {

constexpr int kMappedWarps = 12;  // Hopper: four load, eight multiply; Blackwell: eight have rows
static_assert(kMappedWarps * 32 == contract::kBlackwellLatentThreads);
constexpr int kPortableWarps = 4;  // each has a quarter of the output's columns

void choose_common(const AttentionSchedule& schedule, AttentionSpec& spec, Resolver& resolve) {
  spec.token_gen = true;  // keys may be cut into parts
  spec.pack_gqa = true;
  resolve.derived("pack_gqa", true, "one KV head serves all query heads: rows are queries x heads");
  spec.rescale =
      resolve("rescale", schedule.rescale, Rescale::kLazy, "most tiles leave the row maximum nearly as it was");
  spec.block_k = spec.head_dim_qk;
}

/// Why a kernel that loads by TMA has what it has.
struct MappedReasons {
  const char *rows, *no_cluster, *scheduler;
};

void plan_mapped_latent(const AttentionProblem& problem, const AttentionSchedule& schedule, AttentionPlan& plan,
                        const MappedReasons& why) {
  AttentionSpec& spec = plan.main;
  Resolver resolve(plan.choices);
  choose_common(schedule, spec, resolve);
  spec.block_m = spec.block_n = contract::kLatentRows;
  resolve.derived("block_m", spec.block_m, why.rows);
  resolve.derived("block_n", spec.block_n, "two tiles of 64 keys fill shared memory beside Q");
  spec.num_warps = kMappedWarps, spec.num_stages = contract::kLatentSlots;
  spec.swizzle = Swizzle::k128B;
  const int rows = rows_of_a_kv_head(problem);
  const ClusterShape cluster =
      resolve("cluster", schedule.cluster, ClusterShape{1, 1},
              converts_keys(spec)                         ? std::string("each CTA converts its own keys")
              : rows > contract::kLatentRows || rows == 0 ? std::string(why.no_cluster)
                                                          : fmt::format("{} rows of a KV head are one tile", rows));
  spec.cluster_m = spec.multicast = cluster.m;
  const Scheduler scheduler = resolve("scheduler", schedule.scheduler, Scheduler::kGrid, why.scheduler);
  spec.balanced = scheduler == Scheduler::kBalanced;
  if (!spec.balanced) return choose_merge(schedule, plan, resolve);
  spec.merge = Merge::kInKernel;
  resolve.derived("splits", 0, "0: CTAs cut keys where their pieces end");
  resolve.derived("merge", spec.merge, "all CTAs that have a part of a sequence merge a share of its rows");
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
  plan_mapped_latent(problem, schedule, plan,
                     {.rows = "64 rows of the output fill the registers of two warpgroups",
                      .no_cluster = "CTAs of a sequence meet in the L2: a shared load would wait for both of them",
                      .scheduler = "for sequences of like lengths; \"balanced\" suits a server's batches"});
}

void plan_blackwell_latent(const AttentionProblem& problem, const AttentionSchedule& schedule, AttentionPlan& plan) {
  plan_mapped_latent(problem, schedule, plan,
                     {.rows = "more rows of Q would leave shared memory no room for two tiles of keys",
                      .no_cluster = "a shared load would wait for both CTAs; no measurement says which is faster",
                      .scheduler = "a CTA has one part of a sequence"});
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

std::vector<SharedRegion> blackwell_latent_map(const AttentionSpec& spec) {
  const contract::BlackwellLatentLayout map = contract::blackwell_latent_layout(spec.head_dim_qk);
  const contract::BlackwellLatentBarriers barriers = contract::blackwell_latent_barriers();
  const int slabs = spec.head_dim_qk / 64;
  std::vector<SharedRegion> regions{
      region("queries", map.queries, map.keys, fmt::format("[{}][64][64], later the output", slabs)),
      region("keys", map.keys, map.probabilities, fmt::format("2 slots of [{}][64][64]", slabs), map.slot),
      region("probabilities", map.probabilities, map.maxima, "[64][64]"),
      region("maxima, then sums", map.maxima, map.factors, "[2][128] f32, of two lanes of a row"),
      region("factors", map.factors, map.barriers, "[2][128] f32: what correction multiplies lanes with")};
  const auto name = [&](const char* of, int first, int end) {
    regions.push_back(region(of, map.barriers + first * contract::kBarrierBytes,
                             map.barriers + end * contract::kBarrierBytes,
                             fmt::format("{} mbarrier{}", end - first, end - first == 1 ? "" : "s")));
  };
  name("keys full", barriers.key_full, barriers.key_empty);
  name("keys empty", barriers.key_empty, barriers.query_full);
  name("query full", barriers.query_full, barriers.score_full);
  name("score full", barriers.score_full, barriers.score_empty);
  name("score empty", barriers.score_empty, barriers.factor_full);
  name("factor full", barriers.factor_full, barriers.probability_ready);
  name("probability ready", barriers.probability_ready, barriers.output_full);
  name("output full", barriers.output_full, barriers.count);
  regions.push_back(region("tensor memory's address", map.tensor_address, map.last, "what tcgen05.alloc wrote"));
  regions.push_back(region("merges", map.last, map.total, "a flag"));
  return regions;
}

TensorMemoryMap blackwell_latent_tensor_memory(const AttentionSpec& spec) {
  const contract::BlackwellLatentColumns columns = contract::blackwell_latent_columns(spec.head_dim_v);
  TensorMemoryMap map;
  map.used = columns.used, map.allocated = columns.allocated;
  for (int i = 0; i < contract::kLatentScoreTiles; ++i)
    map.regions.push_back({fmt::format("S{}", i), columns.scores[i], spec.block_n / contract::kLatentFolds,
                           fmt::format("scores, [{}][{}] f32, folded", spec.block_m, spec.block_n)});
  for (int i = 0; i < contract::kLatentOutputs; ++i)
    map.regions.push_back({fmt::format("O{}", i), columns.outputs[i], columns.output_columns,
                           fmt::format("half of the output, [{}][{}] f32, folded", spec.block_m,
                                       spec.head_dim_v / contract::kLatentOutputs)});
  return map;
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

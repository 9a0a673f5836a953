// The portable family's choices. Numbers come from the register counts that ptxas reports and from bench/results/.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "kernelwright/generator/attention/family.h"
#include "kernelwright/generator/attention/launch.h"

namespace kernelwright {
namespace {

using detail::Resolver;

void choose_prefill_tile(AttentionSpec& spec, const AttentionSchedule& schedule, const ArchInfo& arch,
                         Resolver& resolve) {
  const int depth = std::max(spec.head_dim_qk, spec.head_dim_v);
  // A warp with two row tiles reads each fragment of K and V once for 32 rows. Its accumulators take head_dim.v
  // registers, its scores block_n: 128 + 64 leave just enough of 255.
  const bool registers = spec.staging == Staging::kRegisters;
  const bool two_row_tiles = depth <= 128 && !registers;
  const bool roomy = arch.shared_bytes_per_cta >= 128 * 1024;
  const int most_rows = depth > 192 && !roomy ? 64 : 128;
  // Lower limits, of windows and starts, and a softcap's constants need the registers that 16 more keys of scores would
  // take.
  const bool low_limits = spec.kv_starts || spec.mask == MaskKind::kSlidingWindow || spec.mask == MaskKind::kChunked;
  const int roomy_depth = spec.kv_starts ? 80 : 96;
  const bool crowded = depth > roomy_depth && two_row_tiles &&
                       (low_limits || spec.opens_scores() || spec.score_mod != ScoreModKind::kNone);
  const int keys = depth > 192 && !roomy ? 32 : crowded ? 48 : 64;
  // Warps that split the keys of a tile keep the rows of one warp that does not. So there are more warps, or fewer rows
  // in all.
  const int block_n = schedule.block_n.value_or(keys);
  const int columns = std::max(1, block_n / schedule.warp_n.value_or(block_n));
  const int warps = std::min(std::max(8, columns), (two_row_tiles ? 4 : most_rows / 16) * columns);
  spec.num_warps = resolve("num_warps", schedule.num_warps, warps,
                           two_row_tiles ? "32 rows a warp: each fragment of K and V serves twice"
                                         : "16 rows a warp: 32 would not leave registers for their accumulators");
  const int row_groups = std::max(1, spec.num_warps / columns);
  const int rows = columns == 1 ? most_rows : std::min(most_rows, row_groups * (two_row_tiles ? 32 : 16));
  spec.block_m = resolve("block_m", schedule.block_m, rows,
                         columns > 1   ? fmt::format("{} warps split the keys of the same rows", columns)
                         : rows == 128 ? "128 rows share each key tile"
                                       : "64 rows, so that the tile fits shared memory");
  spec.block_n = resolve("block_n", schedule.block_n, keys,
                         fmt::format("{} keys of scores fit the registers beside the accumulators", keys));
  spec.warp_n =
      resolve("warp_n", schedule.warp_n, spec.block_n, "all keys of a tile: nothing of a score row has to cross warps");
  // Measured on an H100: two stages gain 5 % at head dim 64 and cost 3 % at 128, where other values need their
  // registers.
  const bool two_stages = depth <= 64 && !registers;
  spec.num_stages = resolve(
      "num_stages", schedule.num_stages, two_stages ? 2 : 1,
      two_stages ? "a whole tile ahead: one barrier a tile"
                 : "one slot each for K and V: V lands behind Q K^T, the next K behind P V, and two CTAs fit an SM");
  spec.min_ctas = spec.num_warps <= 4 ? 2 : 1;
  resolve.derived("min_ctas", spec.min_ctas, "eight warps an SM may use 255 registers each");
}

void choose_decode_tile(AttentionSpec& spec, const AttentionSchedule& schedule, const ArchInfo& arch, int max_rows,
                        Resolver& resolve) {
  const int depth = std::max(spec.head_dim_qk, spec.head_dim_v);
  spec.block_m = resolve("block_m", schedule.block_m, max_rows > 16 && depth <= 128 ? 32 : 16,
                         fmt::format("{} rows: the query heads of one KV head{}", max_rows,
                                     max_rows > 16 ? ", in m16 tiles" : " fill one m16 tile"));
  const auto fits = [&](int ctas) {
    return static_cast<int>(shared_bytes(spec)) + arch.reserved_shared_bytes_per_cta <=
               arch.shared_bytes_per_sm / ctas &&
           static_cast<int>(shared_bytes(spec)) <= arch.shared_bytes_per_cta;
  };
  const auto warps = [&] { return schedule.num_warps.value_or(4); };
  spec.num_warps = warps();
  spec.block_n = schedule.block_n.value_or(16 * spec.num_warps);
  const bool registers = spec.staging == Staging::kRegisters;
  spec.num_stages = schedule.num_stages.value_or(registers ? 1 : 2);
  if (!fits(1) && schedule.num_warps.is_auto() && schedule.block_n.is_auto()) {
    spec.num_warps = 2;
    spec.block_n = 32;
  }
  spec.num_warps = resolve("num_warps", schedule.num_warps, spec.num_warps, "each warp walks keys of its own");
  spec.block_n = resolve("block_n", schedule.block_n, spec.block_n, "16 keys a warp");
  spec.warp_n = resolve("warp_n", schedule.warp_n, spec.block_n / spec.num_warps, "each warp walks keys of its own");
  if (schedule.num_stages.is_auto() && !registers) {
    spec.num_stages = 4;
    while (spec.num_stages > 2 && !fits(1)) --spec.num_stages;
  }
  spec.num_stages = resolve("num_stages", schedule.num_stages, spec.num_stages,
                            registers ? "the next tile waits in registers"
                                      : "three tiles in flight hide the memory's latency; deeper gains nothing");
  spec.min_ctas = 1;
  resolve.derived("min_ctas", spec.min_ctas, "shared memory bounds the CTAs of an SM");
}

}  // namespace

void detail::choose_merge(const AttentionSchedule& schedule, AttentionPlan& plan, Resolver& resolve) {
  AttentionSpec& spec = plan.main;
  plan.splits = schedule.splits.value_or(0);
  resolve.derived("splits", plan.splits, plan.splits > 0 ? "the schedule says so" : "0: from the shape, at launch");
  const bool apart = plan.splits == 1 || spec.latent;
  spec.merge = resolve("merge", schedule.merge, apart ? Merge::kCombine : Merge::kInKernel,
                       plan.splits == 1 ? "one part: there is nothing to merge"
                       : spec.latent ? "rows of 512 columns: one CTA would merge them longer than a second launch takes"
                                     : "the last CTA merges the parts: a second launch costs more");
  if (plan.splits != 1 && spec.merge == Merge::kCombine)
    plan.combine = CombineSpec{spec.arch, spec.out, spec.head_dim_v, spec.lse, spec.row_sums() > 1};
}

void detail::plan_portable(const AttentionProblem& problem, const AttentionSchedule& schedule, AttentionPlan& plan) {
  AttentionSpec& spec = plan.main;
  const ArchInfo& machine = arch_info(spec.arch);
  Resolver resolve(plan.choices);
  const bool converts = converts_to_16_bits(spec);
  spec.staging = resolve("staging", schedule.staging, converts ? Staging::kRegisters : Staging::kCpAsync,
                         converts ? "keys are converted on the way, which only a pass through registers can do"
                                  : "keys are used as they lie: cp.async moves them");

  const int max_rows = max_rows_of_a_kv_head(problem);
  spec.token_gen =
      resolve("token_gen", schedule.token_gen, is_decode(problem),
              problem.max_q_len > 0 ? fmt::format("at most {} rows a KV head: {}", max_rows,
                                                  is_decode(problem) ? "bandwidth decides" : "products decide")
                                    : "any number of queries may come");
  spec.pack_gqa =
      resolve("pack_gqa", schedule.pack_gqa, spec.token_gen,
              spec.token_gen ? "the group's heads read the same keys" : "tiles of one head store whole rows");
  spec.swizzle = resolve("swizzle", schedule.swizzle, Swizzle::k128B, "no bank conflicts");
  spec.rescale =
      resolve("rescale", schedule.rescale, Rescale::kLazy, "most tiles leave the row maximum nearly as it was");
  // A chunk as wide as the swizzle changes no byte of the tile's layout. But a row's pointer then serves every chunk.
  const bool chunked = problem.head_dim.qk % 64 == 0, rotary = problem.rope.width != 0;
  spec.block_k = resolve("block_k", schedule.block_k,
                         rotary    ? std::gcd(problem.rope.width, spec.plain_depth())
                         : chunked ? 64
                                   : problem.head_dim.qk,
                         rotary    ? "chunks of K lie in one tensor each, the plain or the rotary part"
                         : chunked ? "one swizzle wide: a thread keeps one row pointer for all chunks of K"
                                   : "K arrives whole");
  if (spec.token_gen) {
    choose_decode_tile(spec, schedule, machine, std::max(1, max_rows), resolve);
    choose_merge(schedule, plan, resolve);
  } else {
    choose_prefill_tile(spec, schedule, machine, resolve);
    plan.splits = 1;
  }
}

}  // namespace kernelwright

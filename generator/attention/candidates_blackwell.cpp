// What is worth trying of the blackwell family. No Blackwell has been measured: the values are those that fit tensor
// memory and registers. Stages are the planner's: as many as fit.
#include "contract/attention_sm100.h"
#include "kernelwright/generator/attention/candidates.h"
#include "kernelwright/generator/attention/family.h"

namespace kernelwright {
namespace {

constexpr int kColumnsOfOneCta = 64;  // of values: a pair would halve fewer for little

}  // namespace

AxisSets blackwell_axes(const AttentionProblem& problem, const ArchInfo&) {
  using S = AttentionSchedule;
  std::vector<bool> packs{false};
  if (detail::packs_well(problem, contract::kQueryTileRows)) packs.push_back(true);
  std::vector<int> tiles;
  AttentionSpec spec;
  spec.q = problem.dtype.q;
  for (int keys = 64; keys <= 128; keys += detail::blackwell_key_step(spec)) tiles.push_back(keys);
  const Axis keys = axis("block_n", &S::block_n, tiles);
  const Axis packed = axis("pack_gqa", &S::pack_gqa, packs);
  const Axis order = axis("scheduler", &S::scheduler, {Scheduler::kGrid, Scheduler::kLongestFirst, Scheduler::kQueued});
  const Axis exponentials = axis("exp2_emulated", &S::exp2_emulated, {0.0, 1.0 / 16, 2.0 / 16, 3.0 / 16, 4.0 / 16});
  const auto ring = [](KvRing kind) { return axis("kv_ring", &S::kv_ring, {kind}); };
  std::vector<int> chunks{1};
  if (contract::slabs_of(problem.head_dim.qk, bits_of(problem.dtype.q) / 8, 128) % 2 == 0) chunks.push_back(2);
  // Two CTAs that share each product have half of every tile each, in twice the stages.
  const Axis pair = axis("cta_group", &S::cta_group, {2}), pair_keys = axis("block_n", &S::block_n, {64, 96, 128});
  AxisSets sets{
      {keys, ring(KvRing::kShared), packed, order, exponentials},
      {keys, ring(KvRing::kSplit), axis("num_qk_stages", &S::num_qk_stages, chunks), packed, order, exponentials}};
  // Sub-stages of both tiles: a product begins with the first of them.
  sets.push_back({axis("block_n", &S::block_n, {64, 96, 128}), axis("num_mma_stages", &S::num_mma_stages, {2, 3, 4}),
                  axis("kv_ring", &S::kv_ring, {KvRing::kShared, KvRing::kSplit}), packed, order});
  const bool rows_for_both = problem.max_q_len == 0 || problem.max_q_len > 2 * contract::kQueryTileRows;
  if (rows_for_both && problem.head_dim.v > kColumnsOfOneCta && bits_of(problem.dtype.q) == 16 &&
      problem.rope.width == 0) {
    sets.push_back({pair, pair_keys, ring(KvRing::kShared), packed, order, exponentials});
    sets.push_back({pair, pair_keys, ring(KvRing::kSplit), packed, order, exponentials});
  }
  // Few rows are few CTAs. The planner cuts their keys for the workspace; a cluster needs no second kernel.
  if (problem.max_q_len > 0 && problem.max_q_len <= contract::kQueryTileRows)
    sets.push_back({axis("cluster", &S::cluster, {ClusterShape{1, 2}, ClusterShape{1, 4}, ClusterShape{1, 8}}), keys,
                    packed, exponentials});
  const Axis swizzles = axis("swizzle", &S::swizzle, detail::swizzles_to_try(problem));
  if (swizzles.values.size() > 1)
    for (std::vector<Axis>& set : sets) set.push_back(swizzles);
  return sets;
}

}  // namespace kernelwright

// What is worth trying of the hopper family: what docs/attention/hopper.md measured to win somewhere. Stages are the
// planner's: as many as fit.
#include <algorithm>

#include "kernelwright/generator/attention/candidates.h"
#include "kernelwright/generator/attention/family.h"
#include "kernelwright/generator/problem/range_mask.h"

namespace kernelwright {
namespace {

constexpr int kLongSequence = 4096;  // queries

}  // namespace

AxisSets hopper_axes(const AttentionProblem& problem, const ArchInfo&) {
  using S = AttentionSchedule;
  const int depth = std::max(problem.head_dim.qk, problem.head_dim.v);
  const Axis keys = axis("block_n", &S::block_n, {64, 80, 96, 112, 128, 144, 160, 176, 192});
  const Axis queries = axis("q_stages", &S::q_stages, {1, 2});
  const Axis ring = axis("kv_ring", &S::kv_ring, {KvRing::kSplit, KvRing::kShared});
  const Axis order =
      axis("scheduler", &S::scheduler,
           {range_mask(problem.mask).kind == MaskKind::kNone ? Scheduler::kPersistent : Scheduler::kLongestFirst,
            Scheduler::kQueued});
  std::vector<int> several{2};
  if (depth <= 128) several.push_back(3);
  std::vector<bool> packs{false};
  if (detail::packs_well(problem, detail::kWgmmaRows)) packs.push_back(true);
  const Axis packed = axis("pack_gqa", &S::pack_gqa, packs);
  // Multicast pays where the same keys are read over and over: long sequences.
  std::vector<ClusterShape> clusters{{1, 1}};
  const bool windowed = range_mask(problem.mask).kind == MaskKind::kSlidingWindow;
  if (problem.max_q_len == 0 || problem.max_q_len >= kLongSequence)
    if (!windowed && problem.q_layout == QLayout::kPadded) clusters.push_back({2, 1});
  const Axis cluster = axis("cluster", &S::cluster, clusters);
  const Axis swizzles = axis("swizzle", &S::swizzle, detail::swizzles_to_try(problem));
  AxisSets sets{
      {axis("math_warpgroups", &S::math_warpgroups, several), keys, queries, ring,
       axis("overlap", &S::overlap, {Overlap::kBoth, Overlap::kIntra}), order, packed, cluster},
      {axis("math_warpgroups", &S::math_warpgroups, several), axis("block_n", &S::block_n, {64, 96, 128, 160, 192}),
       ring, axis("num_mma_stages", &S::num_mma_stages, {2, 4}),
       axis("overlap", &S::overlap, {Overlap::kBoth, Overlap::kIntra}), order, packed},
      {axis("math_warpgroups", &S::math_warpgroups, {1}), keys, queries, ring,
       axis("overlap", &S::overlap, {Overlap::kIntra}), order, packed}};
  // The decode form, where portable_axes() tries its own.
  if (problem.max_q_len > 0 && problem.max_q_len * problem.group() <= 128)
    sets.push_back({axis("token_gen", &S::token_gen, {true}), axis("num_warps", &S::num_warps, {2, 4, 8}),
                    axis("block_m", &S::block_m, {16, 32}), axis("block_n", &S::block_n, {32, 64, 128, 256}),
                    axis("num_stages", &S::num_stages, {2, 3, 4, 5, 6, 8})});
  if (swizzles.values.size() > 1)
    for (std::vector<Axis>& set : sets) set.push_back(swizzles);
  return sets;
}

}  // namespace kernelwright

// What is worth trying of the portable family. Values outside these lists were measured to be slow everywhere, or do
// not exist: see docs/kernels.md.
#include "kernelwright/generator/candidates.h"

namespace kernelwright {

AxisSets portable_axes(const AttentionProblem& problem, const ArchInfo&) {
  using S = AttentionSchedule;
  const bool staged = problem.dtype.kv != problem.dtype.q;
  std::vector<int> chunks{problem.head_dim.qk};
  for (const int chunk : {32, 64, 128})
    if (chunk < problem.head_dim.qk && problem.head_dim.qk % chunk == 0) chunks.push_back(chunk);
  const Axis depth = axis("block_k", &S::block_k, chunks);
  const Axis rescale = axis("rescale", &S::rescale, {Rescale::kLazy, Rescale::kAlways});

  AxisSets sets;
  sets.push_back({axis("token_gen", &S::token_gen, {false}), axis("num_warps", &S::num_warps, {4, 8}),
                  axis("block_m", &S::block_m, {64, 128, 256}), axis("block_n", &S::block_n, {32, 48, 64, 80, 96, 128}),
                  axis("num_stages", &S::num_stages, staged ? std::vector{1} : std::vector{1, 2, 3}), depth, rescale});
  // The query heads of a KV head share its keys, at the price of rows that lie apart.
  if (problem.group() > 1) sets.back().push_back(axis("pack_gqa", &S::pack_gqa, {false, true}));
  // Walking keys warp by warp pays where few rows come: the planner's own bound is 64 of a KV head.
  if (problem.max_q_len > 0 && problem.max_q_len * problem.group() <= 128)
    sets.push_back(
        {axis("token_gen", &S::token_gen, {true}), axis("num_warps", &S::num_warps, {1, 2, 4, 8}),
         axis("block_m", &S::block_m, {16, 32}), axis("block_n", &S::block_n, {16, 32, 48, 64, 96, 128, 256}),
         axis("num_stages", &S::num_stages, staged ? std::vector{1} : std::vector{2, 3, 4, 5, 6}), depth, rescale});
  return sets;
}

}  // namespace kernelwright

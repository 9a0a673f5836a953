// What is worth trying of the portable family. Values outside these lists were measured to be slow everywhere, or do
// not exist: see docs/attention/portable.md.
#include "kernelwright/generator/attention/candidates.h"

namespace kernelwright {

AxisSets portable_axes(const AttentionProblem& problem, const ArchInfo&) {
  using S = AttentionSchedule;
  const bool converts = problem.dtype.kv != problem.dtype.q;
  std::vector<int> chunks{problem.head_dim.qk};
  for (const int chunk : {32, 64, 128})
    if (chunk < problem.head_dim.qk && problem.head_dim.qk % chunk == 0) chunks.push_back(chunk);
  const Axis depth = axis("block_k", &S::block_k, chunks);
  const Axis rescale = axis("rescale", &S::rescale, {Rescale::kLazy, Rescale::kAlways});

  AxisSets sets;
  sets.push_back({axis("token_gen", &S::token_gen, {false}), axis("num_warps", &S::num_warps, {4, 8}),
                  axis("block_m", &S::block_m, {64, 128, 256}), axis("block_n", &S::block_n, {32, 48, 64, 80, 96, 128}),
                  axis("num_stages", &S::num_stages, converts ? std::vector{1, 2} : std::vector{1, 2, 3}), depth,
                  rescale});
  // The query heads of a KV head share its keys, at the price of rows that lie apart.
  if (problem.group() > 1) sets.back().push_back(axis("pack_gqa", &S::pack_gqa, {false, true}));
  // Warps that split the keys of a tile read fewer fragments each, and leave partial outputs at the end.
  sets.push_back({axis("token_gen", &S::token_gen, {false}), axis("num_warps", &S::num_warps, {4, 8}),
                  axis("block_m", &S::block_m, {32, 64, 128}), axis("block_n", &S::block_n, {64, 128}),
                  axis("warp_n", &S::warp_n, {16, 32, 64}), axis("num_stages", &S::num_stages, {1, 2})});
  const Axis registers = axis("staging", &S::staging, {Staging::kRegisters});
  // Tiles that wait in registers rather than in slots: what is converted does so in every set.
  if (!converts)
    sets.push_back({axis("token_gen", &S::token_gen, {false}), registers, axis("num_warps", &S::num_warps, {4, 8}),
                    axis("block_m", &S::block_m, {64, 128}), axis("block_n", &S::block_n, {32, 48, 64}),
                    axis("num_stages", &S::num_stages, {1, 2, 3})});
  // Narrower swizzles, and none: on few tiles, for ldmatrix meets no bank conflict in any.
  const Axis swizzles = axis("swizzle", &S::swizzle, {Swizzle::k64B, Swizzle::k32B, Swizzle::kNone});
  sets.push_back({swizzles, axis("token_gen", &S::token_gen, {false}), axis("num_warps", &S::num_warps, {4, 8}),
                  axis("block_m", &S::block_m, {64, 128}), axis("block_n", &S::block_n, {64, 128}),
                  axis("num_stages", &S::num_stages, {1, 2})});
  // Walking keys warp by warp pays where few rows come: the planner's own bound is 64 of a KV head.
  if (problem.max_q_len <= 0 || problem.max_q_len * problem.group() > 128) return sets;
  sets.push_back({axis("token_gen", &S::token_gen, {true}), axis("num_warps", &S::num_warps, {1, 2, 4, 8}),
                  axis("block_m", &S::block_m, {16, 32}), axis("block_n", &S::block_n, {16, 32, 48, 64, 96, 128, 256}),
                  axis("num_stages", &S::num_stages, converts ? std::vector{1, 2} : std::vector{2, 3, 4, 5, 6}), depth,
                  rescale});
  if (!converts)
    sets.push_back({axis("token_gen", &S::token_gen, {true}), registers, axis("num_warps", &S::num_warps, {2, 4, 8}),
                    axis("block_m", &S::block_m, {16, 32}), axis("block_n", &S::block_n, {32, 64, 128}),
                    axis("num_stages", &S::num_stages, {1, 2, 3})});
  sets.push_back({swizzles, axis("token_gen", &S::token_gen, {true}), axis("num_warps", &S::num_warps, {2, 4}),
                  axis("block_m", &S::block_m, {16}), axis("block_n", &S::block_n, {64, 128}),
                  axis("num_stages", &S::num_stages, converts ? std::vector{1, 2} : std::vector{2, 3})});
  return sets;
}

}  // namespace kernelwright

/// How a math warpgroup of attention_latent_sm90 ends: the sums of both warpgroups meet, and each stores its columns.
/// Where keys are cut into parts, the CTA that arrives last merges them.
#pragma once

#include "kernels/attention/latent/attention_latent_sm90_math.cuh"
#include "ptx/launch.cuh"
#include "tile/quad_store.cuh"

namespace kernelwright {
namespace {

template <int kSide>
__device__ __forceinline__ void MathWarpgroup<kSide>::finish() {
  ptx::griddepcontrol_launch_dependents();  // attention_combine may begin
  const bool split = params_.num_splits > 1, merges = spec::kMerge == Merge::kInKernel && split;
  const bool first = threadIdx.x == 128;
  const auto last_arrival = [&] {
    const unsigned block = ptx::opaque(blockIdx.x), item = block / kCluster / params_.num_splits;
    return policy::LastArrival(params_.merge_counters + (item * kCluster + block % kCluster));
  };
  if (merges && first) last_arrival().open();

  softmax_.finish();
  if (lane_ % 4 == 0) {
#pragma unroll
    for (int r = 0; r < 2; ++r) ptx::st_shared_f32(shared_.sum(kSide, row() + r * 8), softmax_.sum[r]);
  }
  ptx::bar_sync(kMathBarrier, kMathThreads);
#pragma unroll
  for (int r = 0; r < 2; ++r)
    softmax_.sum[r] =
        ptx::ld_shared_f32(shared_.sum(0, row() + r * 8)) + ptx::ld_shared_f32(shared_.sum(1, row() + r * 8));

  const WorkItem& item = work_.item;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int mine = row() + r * 8;
    const bool exists = mine < item.num_rows;
    const float inverse = softmax_.inverse(r), log2_sum = softmax_.log2_sum(r, scale_);
    if (split) {
      const int64_t to = item.partial_row(params_, mine) + item.coord.split * WorkItem::partial_rows(params_);
      float* const columns = params_.partial_o + to * spec::kHeadDimV + kSide * kSideColumns + lane_ % 4 * 2;
      if (exists) {
#pragma unroll
        for (int n = 0; n < kSideColumns / 8; ++n)
          *reinterpret_cast<float2*>(columns + n * 8) =
              make_float2(output_[4 * n + 2 * r] * inverse, output_[4 * n + 2 * r + 1] * inverse);
        if (kSide == 0 && lane_ % 4 == 0) params_.partial_lse[to] = log2_sum;
      }
    } else {
      tile::store_row<spec::kOutDType, kSideColumns>(
          output_, r, inverse,
          static_cast<uint16_t*>(params_.o) + item.offset(params_.o_strides, exists ? mine : 0) + kSide * kSideColumns,
          exists, lane_);
      if (spec::kLse && kSide == 0 && exists && lane_ % 4 == 0)
        params_.lse[item.lse_index(params_, mine)] = log2_sum * policy::kLn2;
    }
  }
  if (!merges) return;

  ptx::bar_sync(kMathBarrier, kMathThreads);  // this part is written
  if (first) ptx::st_shared_u32(shared_.last(), last_arrival().arrive(params_.num_splits));
  ptx::bar_sync(kMathBarrier, kMathThreads);
  if (ptx::ld_shared_u32(shared_.last()) != 0)
    merge_rows<kMathThreads / 32>(params_, item, static_cast<int>(threadIdx.x / 32) - 4, lane_);
}

}  // namespace
}  // namespace kernelwright

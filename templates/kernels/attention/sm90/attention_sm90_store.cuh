/// How a math warpgroup of attention_sm90 stores the rows of an item, and where sinks join them.
#pragma once

#include "kernels/attention/sm90/attention_sm90_math.cuh"
#include "tile/quad_store.cuh"
#include "tile/staged_store.cuh"

namespace kernelwright {
namespace {

__device__ __forceinline__ void MathWarpgroup::add_sinks(Softmax& softmax) {
  if constexpr (spec::kSinks && !kKeyScales) {
#pragma unroll
    for (int r = 0; r < 2; ++r)
      softmax.add_sink(r, params_.sinks[Rows{item_.rows().head}.q_head(row() + r * 8)], scale_, lane_ % 4 == 0);
  }
}
/// The same behind the last tile, where keys have scales.
__device__ __forceinline__ void MathWarpgroup::add_last_sinks(Softmax& softmax, Output& output, const DoneItem& done) {
  if constexpr (spec::kSinks && kKeyScales) {
#pragma unroll
    for (int r = 0; r < 2; ++r)
      softmax.add_last_sink(r, params_.sinks[Rows{done.record.rows().head}.q_head(row() + r * 8)], done.scale,
                            lane_ % 4 == 0, output);
  }
}

/// What the output of row r is multiplied by.
__device__ __forceinline__ float MathWarpgroup::weight_of(const Softmax& softmax, int r, const DoneItem& done) const {
  if constexpr (kScaled) return softmax.inverse(r) * value_scale(params_, done.record);
  return softmax.inverse(r);
}
/// The next item has been taken, and its keys or its queries may have another scale.
__device__ __forceinline__ MathWarpgroup::ExponentScale MathWarpgroup::scale_of(const DoneItem& done) const {
  if constexpr (kScaled && !kSplitsQ) return {exponent_scale_of(score_scale(params_, done.record))};
  return done.scale;
}

__device__ __forceinline__ void MathWarpgroup::store(const DoneItem& done, Softmax& softmax, Output& output) {
  if constexpr (kKeyScales) add_last_sinks(softmax, output, done);
  softmax.finish();
  if constexpr (kNarrow) {
    end_probabilities<spec::kHeadDimV / 2>(output, halves());
    take_narrow_sums(softmax, output, params_.sinks, Rows{done.record.rows().head}, row());
  }
  const uint32_t thread = ptx::opaque(threadIdx.x), lane = thread % 32;
  const int own = static_cast<int>(warpgroup_ * 64 + thread / 32 % 4 * 16);  // the warp's first row
  const int mine = own + static_cast<int>(lane / 4);  // the thread's row; its second is 8 rows on
  if constexpr (kStagesOutput) {
    ptx::bar_sync(kStageBarrier + warpgroup_, 128);  // no product of the warpgroup reads Q any more
    const tile::StagedRows<spec::kOutDType, spec::kHeadDimV, kQuerySlabBytes, kRowBytes> rows(
        shared_.queries(done.slot) + static_cast<uint32_t>(own) * kRowBytes, lane);
    rows.put(output, weight_of(softmax, 0, done), weight_of(softmax, 1, done));
    __syncwarp();  // a lane stores what other lanes have written
    const OutputRows to(params_, done.record);
#pragma unroll
    for (int round = 0; round < rows.kRounds; ++round) {
      const int at = own + rows.row(round);
      rows.store(round, to.row(at), to.exists(at));
    }
    if constexpr (spec::kLse) to.store_lse(softmax, scale_of(done), mine, lane);
    ptx::fence_proxy_async_shared();  // TMA writes the slot next
    if constexpr (!kSkipsRows) release(done);
  } else {
    const OutputRows to(params_, done.record);
    float weights[2];
    if constexpr (kNarrow) {
      // Ahead of the halves: they would hold registers beside the division's.
#pragma unroll
      for (int r = 0; r < 2; ++r) weights[r] = weight_of(softmax, r, done);
      end_sums<spec::kHeadDimV / 2>(output, halves());
      if constexpr (kTransposesV) mma::in_natural_order<spec::kHeadDimV>(output);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r)
      tile::store_row<spec::kOutDType, spec::kHeadDimV>(output, r, kNarrow ? weights[r] : weight_of(softmax, r, done),
                                                        to.row(mine + r * 8), to.exists(mine + r * 8), lane);
    if constexpr (spec::kLse) to.store_lse(softmax, scale_of(done), mine, lane);
  }
}

}  // namespace
}  // namespace kernelwright

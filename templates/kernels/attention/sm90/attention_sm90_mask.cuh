/// How a math warpgroup of attention_sm90 hides the keys of a tile that a row does not see.
#pragma once

#include "kernels/attention/sm90/attention_sm90_math.cuh"

namespace kernelwright {
namespace {

__device__ __forceinline__ void MathWarpgroup::mask(int tile) {
  if constexpr (OpenRow::exists) return;  // hidden with the rest
  const policy::ItemRecord::Rows item = item_.rows();
  const TileMask limits = limits_of(item);
  const int origin = tile * spec::kBlockN + lane_ % 4 * 2;
  policy::KeyRange range[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) range[r] = limits.visible(Rows::query(item.first_row + row() + Fragment::row(r)));
  const auto range_of = [&](int r) { return range[r]; };
  // A narrow window's tiles have an end each: looking for both in both would double the work.
  if (TileMask::hides_low && tile < walk_.full_begin)
    policy::hide_keys<policy::Side::kBefore>(Fragment{scores_}, origin, range_of);
  if (!TileMask::hides_low || tile >= walk_.full_end)
    policy::hide_keys<policy::Side::kFrom>(Fragment{scores_}, origin, range_of);
}

}  // namespace
}  // namespace kernelwright

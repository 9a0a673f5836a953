/// Where rows of the product go in d, for gemm_sm90.
#pragma once

#include "kernels/gemm/sm90/gemm_sm90_tiles.cuh"
#include "policy/scattered_row.cuh"

namespace kernelwright {
namespace {

/// The rows of d that kRows rows of the product become. A lane has every 32nd one.
template <int kRows>
class ScatteredRows {
 public:
  /// `first`, `end`: of the rows of the product. Called by all lanes.
  __device__ __forceinline__ void look_up(const EntryParams& params, int first, int end, uint32_t lane) {
    if constexpr (spec::kScatter) {
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) {
        const int within = i * 32 + static_cast<int>(lane);
        rows_[i] = policy::scattered_row(params.groups, first + within, within < kRows && first + within < end);
      }
    }
  }
  /// Of row `within` of kRows, if the first of them is `first`. Called by all lanes. -1: it is none.
  __device__ __forceinline__ int of(int within, int first) const {
    if constexpr (!spec::kScatter) return first + within;
    static_cast<void>(first);
    int to = __shfl_sync(0xffffffff, rows_[0], within % 32);
#pragma unroll
    for (int i = 1; i < kOfLane; ++i) {
      const int later = __shfl_sync(0xffffffff, rows_[i], within % 32);
      if (within / 32 == i) to = later;
    }
    return to;
  }

 private:
  static constexpr int kOfLane = (kRows + 31) / 32;
  int rows_[spec::kScatter ? kOfLane : 1];
};

}  // namespace
}  // namespace kernelwright

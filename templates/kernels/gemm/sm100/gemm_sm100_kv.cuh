/// The end of a tile of gemm_sm100 whose columns are queries, keys and values. A warp puts a head of its 32 rows into
/// its slabs of results, and takes it from there through the steps of kv_write.
#pragma once

#include "kernels/gemm/gemm_kv_heads.cuh"
#include "kernels/gemm/sm100/gemm_sm100_tiles.cuh"
#include "tile/lane_rows.cuh"

namespace kernelwright {
namespace {

/// Of a warp. `memory`: its slabs of results, one behind the other.
template <class Params>
class HeadsOfRows {
  enum : int {
    kSlabColumns = 64,
    kSlabs = contract::gemm_kv_slabs(spec::kHeadDimQk),
    kRows = contract::kBlackwellGemmWarpRows
  };
  static_assert(!spec::kSwapAb && kColumns % spec::kHeadDimQk == 0, "whole heads");
  static_assert(kSlabs <= spec::kStoreStages, "what the warp's slabs of results have room for");

 public:
  __device__ __forceinline__ HeadsOfRows(const Params& params, uint32_t memory, uint32_t lane)
      : params_(params), memory_(memory), lane_(lane) {}

  /// Chunk `chunk` of the columns of an item: 64 values of the lane's row. The last ones of a head write it. `row`: the
  /// warp's first; `column`: the chunk's first.
  __device__ __forceinline__ void put(const float (&values)[kSlabColumns], int chunk, int row, int column) const {
    const int slab = chunk % kSlabs;
    tile::LaneRows<spec::kInDType, false, kSlabColumns>::put(
        memory_ + static_cast<uint32_t>(slab * contract::kBlackwellGemmStoreSlabBytes), lane_, values);
    if (slab + 1 < kSlabs) return;
    __syncwarp();
    const auto place = [&](int of_slab, int vector) {
      return memory_ + static_cast<uint32_t>(vector / 8 * contract::kBlackwellGemmStoreSlabBytes + of_slab * 128 +
                                             (vector % 8 ^ of_slab % 8) * 16);
    };
    write_head<kRows, 1>(params_.kv, place, row, column - slab * kSlabColumns, 0, static_cast<int>(lane_));
    __syncwarp();  // all lanes have read the head
  }

 private:
  const Params& params_;
  const uint32_t memory_, lane_;
};

}  // namespace
}  // namespace kernelwright

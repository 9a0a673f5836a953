/// The end of a tile of gemm_portable whose columns are queries, keys and values. Warps put the tile into the ring,
/// once no warp reads that, and take whole heads from there through the steps of kv_write.
#pragma once

#include "kernels/gemm/gemm_kv_heads.cuh"
#include "kernels/gemm/portable/gemm_portable_tiles.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

/// A tile whose values have 16 bits in shared memory.
template <class Params>
class TileOfHeads {
  enum : int { kHead = spec::kHeadDimQk, kPitch = contract::gemm_kv_pitch(spec::kBlockN) };
  static_assert(spec::kBlockN % kHead == 0, "whole heads");
  static_assert(spec::kBlockM * kPitch <= kLayout.groups, "what the ring has room for");

 public:
  __device__ __forceinline__ TileOfHeads(const Params& params, uint32_t shared, int warp, int lane)
      : params_(params), shared_(shared), warp_(warp), lane_(lane) {}

  /// Puts two neighbouring values of a row. `column`: of the tile.
  __device__ __forceinline__ void put(int row, int column, const float (&value)[2]) const {
    ptx::st_shared_u32(at(row, column), tile::Element<spec::kInDType>::pack(value[0], value[1]));
  }
  /// Writes all heads of the tile. All warps call it, behind a barrier.
  __device__ __forceinline__ void write(const Tile& tile) const {
#pragma unroll 1
    for (int first = 0; first < spec::kBlockN; first += kHead) {
      if (tile.column + first >= params_.n) break;
      const auto place = [&](int row, int vector) { return at(row, first + vector * kLaneElements); };
      write_head<spec::kBlockM, spec::kNumWarps>(params_.kv, place, tile.row, tile.column + first, warp_, lane_);
    }
  }

 private:
  __device__ __forceinline__ uint32_t at(int row, int column) const {
    return shared_ + static_cast<uint32_t>(row * kPitch + column * 2);
  }

  const Params& params_;
  const uint32_t shared_;
  const int warp_, lane_;
};

}  // namespace
}  // namespace kernelwright

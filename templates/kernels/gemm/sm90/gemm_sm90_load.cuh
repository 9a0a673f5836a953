/// Role of the loading thread of gemm_sm90: TMA brings slabs of both operands, and scales of single rows.
#pragma once

#include "kernels/gemm/sm90/gemm_sm90_tiles.cuh"
#include "ptx/launch.cuh"
#include "ptx/tma.cuh"

namespace kernelwright {
namespace {

// Operands of the tile that have a matrix for each group: the problem's b, and in a batch both.
enum : bool {
  kManyOfRows = kBatched || (kManyB && spec::kSwapAb),
  kManyOfColumns = kBatched || (kManyB && !spec::kSwapAb)
};

/// Loads a box of the tile's rows.
__device__ __forceinline__ void load_rows(const GemmParams& params, uint32_t to, int x, int y, int group,
                                          uint32_t full) {
  if constexpr (kManyOfRows)
    ptx::cp_async_bulk_tensor_3d(to, params.a, x, y, group, full);
  else
    ptx::cp_async_bulk_tensor_2d(to, params.a, x, y, full);
}
/// Loads a slab of the tile's rows to `to`.
__device__ __forceinline__ void load_a(const GemmParams& params, uint32_t to, int k, const Tile& tile, uint32_t full) {
#pragma unroll
  for (int i = 0; i < kASlab.parts(); ++i) {
    const uint32_t part = to + i * kASlab.part_bytes();
    const int within = i * kASlab.width_elements();
    if constexpr (kAMnMajor)
      load_rows(params, part, tile.row + within, k, tile.group, full);
    else
      load_rows(params, part, k + within, tile.row, tile.group, full);
  }
}
/// Loads a box of B, for all CTAs of the cluster.
__device__ __forceinline__ void load_for_all(const GemmParams& params, uint32_t to, int x, int y, int group,
                                             uint32_t full) {
  constexpr uint16_t kAll = (1 << kCluster) - 1;
  if constexpr (kManyOfColumns && kCluster > 1)
    ptx::cp_async_bulk_tensor_3d_multicast(to, params.b, x, y, group, full, kAll);
  else if constexpr (kManyOfColumns)
    ptx::cp_async_bulk_tensor_3d(to, params.b, x, y, group, full);
  else if constexpr (kCluster > 1)
    ptx::cp_async_bulk_tensor_2d_multicast(to, params.b, x, y, full, kAll);
  else
    ptx::cp_async_bulk_tensor_2d(to, params.b, x, y, full);
}
/// Loads this CTA's share of a slab of the tile's columns: some columns or, where columns are innermost, some of k.
__device__ __forceinline__ void load_b(const GemmParams& params, uint32_t to, int k, const Tile& tile, int rank,
                                       uint32_t full) {
  const uint32_t share = static_cast<uint32_t>(rank);
#pragma unroll
  for (int i = 0; i < kBSlab.parts(); ++i) {
    const uint32_t part = to + i * kBSlab.part_bytes() + share * kBShareBytes;
    const int within = i * kBSlab.width_elements();
    if constexpr (kBMnMajor)
      load_for_all(params, part, tile.column + within, k + rank * (kSlabDepth / kCluster), tile.group, full);
    else
      load_for_all(params, part, k + within, tile.column + rank * (spec::kBlockN / kCluster), tile.group, full);
  }
}
/// Bytes of a slab's scales of single rows that a grouped tile loads: whole 16 bytes, to those of the last row.
__device__ __forceinline__ uint32_t group_scale_bytes(const GemmParams& params, const Tile& tile) {
  const int rows = (kMasked ? params.groups.capacity : params.groups.rows) + contract::kGemmScaleShift - 1;
  const int left = rows / contract::kGemmScaleShift * contract::kGemmScaleShift - (tile.scale_row - tile.scale_shift());
  return static_cast<uint32_t>(min(kScaledRows + (kMasked ? 0 : contract::kGemmScaleShift), left)) * 4;
}
/// Loads the scales of single rows for slab `slab`.
__device__ __forceinline__ void load_scales(const GemmParams& params, uint32_t to, int slab, const Tile& tile,
                                            uint32_t full) {
  if constexpr (kGrouped) {
    const float* const all = spec::kSwapAb ? params.scale_b : params.scale_a;  // of the problem's a
    const int64_t stride = spec::kSwapAb ? params.scale_b_stride : params.scale_a_stride;
    const int blocks = (params.k + kSlabDepth - 1) / kSlabDepth;
    // Past k, products are zeros, whatever the scale is.
    const int64_t row = int64_t{kMasked ? tile.group * blocks : 0} + min(slab, blocks - 1);
    ptx::cp_async_bulk_load(to, all + row * stride + tile.scale_row - tile.scale_shift(),
                            group_scale_bytes(params, tile), full);
  } else if constexpr (kBatched) {
    // The map has the rows of all groups. Past k, products are zeros, and the group's own scales are no NaN.
    const int blocks = (params.k + kSlabDepth - 1) / kSlabDepth;
    ptx::cp_async_bulk_tensor_2d(to, params.scales, spec::kSwapAb ? tile.column : tile.row,
                                 tile.group * blocks + min(slab, blocks - 1), full);
  } else {
    ptx::cp_async_bulk_tensor_2d(to, params.scales, spec::kSwapAb ? tile.column : tile.row, slab, full);
  }
}

/// kConstant: an operand that no launch ahead of this one writes. kOther: an operand that one may have written.
enum class Operand { kConstant, kOther };

/// Role of one thread: keeps the ring full.
class Loader {
 public:
  __device__ __forceinline__ Loader(const GemmParams& params, const ThreadWork& work, uint32_t barriers,
                                    const Payload& payload)
      : params_(params),
        payload_(payload),
        work_(work),
        part_(work_.part()),
        rank_(rank_in_cluster()),
        barriers_(barriers) {}

  __device__ __forceinline__ void run() const {
    // Groups of slabs whose weights are already on their way.
    int early = !kWaitsAtStart && params_.launch.constant_b ? load_weights_ahead() : 0;
    if constexpr (!kWaitsAtStart) ptx::griddepcontrol_wait();
    pipeline::InputProducer<Input> input(barriers_, payload_);
#pragma unroll 1
    for (int t = work_.first; t < work_.count(); t += work_.step) {
      const Tile tile = work_.at(t, rank_);
      const uint32_t scale_bytes = kGrouped && kBlockScales ? group_scale_bytes(params_, tile) * spec::kKGroup : 0;
      const int end = kSlicesK ? slabs_of(tile.depth) : part_.end;
#pragma unroll 1
      for (int slab = part_.begin; slab < end; slab += spec::kKGroup) {
        const auto stage = input.acquire();
        if (early == 0) {
          stage.expect_bytes(Input::group_bytes + scale_bytes);
          load<Operand::kConstant>(stage, slab, tile);
        } else {
          --early;
        }
        load<Operand::kOther>(stage, slab, tile);
      }
    }
    ptx::griddepcontrol_launch_dependents();
    if constexpr (kCluster > 1) input.drain();
  }

 private:
  /// Loads weights of the first tile, as many as the ring holds. Returns the number of groups of slabs.
  __device__ __forceinline__ int load_weights_ahead() const {
    if (work_.first >= work_.count()) return 0;
    const Tile tile = work_.at(work_.first, rank_);
    pipeline::InputProducer<Input> input(barriers_, payload_);
    int groups = 0;
#pragma unroll 1
    for (int slab = part_.begin; slab < part_.end && groups < Input::num_group_stages;
         slab += spec::kKGroup, ++groups) {
      const auto stage = input.acquire();  // does not wait: no slot is in use yet
      stage.expect_bytes(Input::group_bytes);
      load<Operand::kConstant>(stage, slab, tile);
    }
    return groups;
  }

  /// Loads a group of slabs of one operand. The problem's b may be constant.
  template <Operand kWhich>
  __device__ __forceinline__ void load(const pipeline::ProducerStage<Input>& stage, int slab, const Tile& tile) const {
    constexpr bool kRows = (kWhich == Operand::kConstant) == spec::kSwapAb;
#pragma unroll
    for (int j = 0; j < spec::kKGroup; ++j) {
      const auto to = stage.get_tile(j);
      // TMA brings zeros past the end of all rows. Past that of a slice, math warps write them.
      const int k = (kSlicesK ? tile.first_k : 0) + (slab + j) * kSlabDepth;
      if constexpr (kRows)
        load_a(params_, to.a(), k, tile, stage.full());
      else
        load_b(params_, to.b(), k, tile, rank_, stage.full());
      if constexpr (kBlockScales && kWhich == Operand::kOther)
        load_scales(params_, to.scales(), slab + j, tile, stage.full());
    }
  }

  const GemmParams& params_;
  const Payload payload_;
  const ThreadWork work_;
  const Part part_;
  const int rank_;
  const uint32_t barriers_;
};

}  // namespace
}  // namespace kernelwright

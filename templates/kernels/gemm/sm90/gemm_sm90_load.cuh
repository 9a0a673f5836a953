/// Role of the loading thread of gemm_sm90: TMA brings slabs of both operands, and scales of single rows.
#pragma once

#include "kernels/gemm/sm90/gemm_sm90_deal.cuh"
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
/// The scales of single rows of a tile, slab after slab. The loading thread shares its issue slots with math warps. So
/// what it computes for each slab of groups is an addition.
class RowScales {
 public:
  /// Called before the tile's first slab. Without groups, the tile is all that load() needs.
  __device__ __forceinline__ void begin(const GemmParams& params, const Tile& tile) {
    if constexpr (kGrouped && kBlockScales) {
      const float* const all = spec::kSwapAb ? params.scale_b : params.scale_a;  // of the problem's a
      stride_ = spec::kSwapAb ? params.scale_b_stride : params.scale_a_stride;
      left_ = (params.k - 1) / kSlabDepth;
      from_ = all + int64_t{kMasked ? tile.group * (left_ + 1) : 0} * stride_ + tile.scale_row - tile.scale_shift();
      // Whole 16 bytes, to the scale of the last row.
      const int rows = (kMasked ? params.groups.capacity : params.groups.rows) + contract::kGemmScaleShift - 1;
      const int ahead =
          rows / contract::kGemmScaleShift * contract::kGemmScaleShift - (tile.scale_row - tile.scale_shift());
      bytes_ = static_cast<uint32_t>(min(kScaledRows + (kMasked ? 0 : contract::kGemmScaleShift), ahead)) * 4;
    }
  }
  /// Bytes of a slab's scales that do not come by a map.
  __device__ __forceinline__ uint32_t bytes() const {
    if constexpr (kGrouped && kBlockScales) return bytes_;
    return 0;
  }
  /// Loads those of slab `slab`. Called for each slab, in order. Past k, products are zeros, whatever the scale is.
  __device__ __forceinline__ void load(const GemmParams& params, uint32_t to, int slab, const Tile& tile,
                                       uint32_t full) {
    if constexpr (kGrouped) {
      ptx::cp_async_bulk_load(to, from_, bytes_, full);
      if (spec::kKGroup == 1 || --left_ >= 0) from_ += stride_;
    } else if constexpr (kBatched) {
      // The map has the rows of all groups. Past k, the group's own scales are no NaN.
      const int blocks = (params.k + kSlabDepth - 1) / kSlabDepth;
      ptx::cp_async_bulk_tensor_2d(to, params.scales, spec::kSwapAb ? tile.column : tile.row,
                                   tile.group * blocks + min(slab, blocks - 1), full);
    } else {
      ptx::cp_async_bulk_tensor_2d(to, params.scales, spec::kSwapAb ? tile.column : tile.row, slab, full);
    }
  }

 private:
  // With groups: the next slab's scales, their bytes, elements from one slab to the next, and slabs behind it.
  const float* from_;
  uint32_t bytes_;
  int64_t stride_;
  int left_;
};

/// kConstant: an operand that no launch ahead of this one writes. kOther: an operand that one may have written.
enum class Operand { kConstant, kOther };

/// Role of one thread: keeps the ring full.
class Loader {
 public:
  __device__ __forceinline__ Loader(const GemmParams& params, const LoadWork& work, uint32_t barriers,
                                    const Payload& payload)
      : params_(params),
        payload_(payload),
        work_(work),
        part_(work_.part()),
        rank_(rank_in_cluster()),
        barriers_(barriers) {}

  // The order of a slab's copies. With scales of blocks, an H200 gained 0.4 to 1 % for large groups, and lost 0.1 to
  // 0.6 % for 128 groups of 512 rows. Groups load no weights early, because they wait for their bounds.
  static constexpr bool kRowsFirst = kGrouped && kBlockScales;
  static_assert(!kRowsFirst || kWaitsAtStart);

  __device__ __forceinline__ void run() {
    // Groups of slabs whose weights are already on their way.
    int early = !kWaitsAtStart && params_.launch.constant_b ? load_weights_ahead() : 0;
    if constexpr (!kWaitsAtStart) ptx::griddepcontrol_wait();
    pipeline::InputProducer<Input> input(barriers_, payload_);
#pragma unroll 1
    for (int t = work_.first; t < work_.count(); t = work_.after(t)) {
      const Tile tile = next_tile(work_, t, rank_);
      scales_.begin(params_, tile);
      const uint32_t bytes = Input::group_bytes + scales_.bytes() * spec::kKGroup;
      const int end = kSlicesK ? slabs_of(tile.depth) : part_.end;
#pragma unroll 1
      for (int slab = part_.begin; slab < end; slab += spec::kKGroup) {
        const auto stage = input.acquire();
        if constexpr (kRowsFirst) {
          stage.expect_bytes(bytes);
          load<Operand::kOther>(stage, slab, tile);
          load<Operand::kConstant>(stage, slab, tile);
        } else {
          if (early == 0) {
            stage.expect_bytes(bytes);
            load<Operand::kConstant>(stage, slab, tile);
          } else {
            --early;
          }
          load<Operand::kOther>(stage, slab, tile);
        }
      }
    }
    ptx::griddepcontrol_launch_dependents();
    pass_last_tiles(work_, 1);
    if constexpr (kCluster > 1) input.drain();
  }

 private:
  /// Loads weights of the first tile, as many as the ring holds. Returns the number of groups of slabs.
  __device__ __forceinline__ int load_weights_ahead() {
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
  __device__ __forceinline__ void load(const pipeline::ProducerStage<Input>& stage, int slab, const Tile& tile) {
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
        scales_.load(params_, to.scales(), slab + j, tile, stage.full());
    }
  }

  const GemmParams& params_;
  const Payload payload_;
  LoadWork work_;
  RowScales scales_;
  const Part part_;
  const int rank_;
  const uint32_t barriers_;
};

}  // namespace
}  // namespace kernelwright

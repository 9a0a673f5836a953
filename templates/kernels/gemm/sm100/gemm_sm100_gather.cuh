/// The loading warp of gemm_sm100 where rows of the problem's a lie where the launch says. TMA gathers four rows at a
/// time, so each lane has four rows of a tile, or a few fours, and brings them of every slab. A row that is of zeros is
/// one that the tensor does not have. One lane loads the other operand, as the loading thread does.
#pragma once

#include "kernels/gemm/sm100/gemm_sm100_load.cuh"
#include "kernels/gemm/sm100/gemm_sm100_slices.cuh"
#include "ptx/tma_gather.cuh"

namespace kernelwright {
namespace {

/// A template, so that kernels that gather no rows have none of its constants. kOfA: rows of the problem's a are rows
/// of the tile, else its columns.
template <bool kOfA>
class GatherLoader : Loader {
  enum : int { kRowsOfCopy = 4, kCopies = (kOfA ? kASlab : kBSlab).rows / kRowsOfCopy, kOfLane = (kCopies + 31) / 32 };
  static_assert(!(kOfA ? kASlab : kBSlab).mn_major && kClusterSize == kCtas, "whole rows of k, each CTA's own");
  static_assert(kRowsOfCopy * (kOfA ? kASlab : kBSlab).width() % 128 == 0, "copies of TMA begin at multiples of 128");

 public:
  __device__ __forceinline__ GatherLoader(const EntryParams& params, const Shared& shared, const AnyWork& work,
                                          uint32_t rank)
      : Loader(params, shared, work, rank), lane_(threadIdx.x % 32) {}

  __device__ __forceinline__ void run() const {
    pipeline::InputProducer<Input> input(shared_.input(), shared_.payload());
    for_each_item<false>(shared_, work_, [&](int index) {
      const Item item = work_.at<false>(index, rank_);
      int rows[kOfLane][kRowsOfCopy];
      look_up(rows, item);
#pragma unroll 1
      for (int slab = item.slabs.begin; slab < item.slabs.end; slab += spec::kKGroup) {
        const auto stage = input.acquire();
        if (lane_ == 0) begin(stage, item, slab);  // other lanes' copies may complete before that
        gather(stage, slab, rows, item);
      }
    });
    if (lane_ == 0) ptx::griddepcontrol_launch_dependents();
    input.drain();
  }

 private:
  /// The rows of a that the lane brings of a tile; -1: a row of zeros.
  __device__ __forceinline__ void look_up(int (&rows)[kOfLane][kRowsOfCopy], const Item& item) const {
    constexpr int kOwn = (kOfA ? kASlab : kBSlab).rows;
    // In a pair each CTA has some of b's rows, and a's rows are in the item already.
    const int first = kOfA ? item.row : item.column + static_cast<int>(rank_in_pair(rank_)) * kOwn;
    const int end = kOfA ? rows_end(params_, item) : columns_end(params_, item);
#pragma unroll
    for (int i = 0; i < kOfLane; ++i)
#pragma unroll
      for (int j = 0; j < kRowsOfCopy; ++j) {
        const int within = copy_of(i) * kRowsOfCopy + j;
        rows[i][j] = source_row(params_, first + within, within < kOwn && first + within < end);
      }
  }
  /// The number of the lane's copy i among those of a strip.
  __device__ __forceinline__ int copy_of(int i) const { return i * 32 + static_cast<int>(lane_); }

  __device__ __forceinline__ void gather(const ProducerStage& stage, int slab, const int (&rows)[kOfLane][kRowsOfCopy],
                                         const Item& item) const {
    constexpr contract::SharedSlab kSlab = kOfA ? kASlab : kBSlab;
    const contract::TensorMap& map = kOfA ? params_.a : params_.b;
    const uint32_t full = leaders(stage.full(), rank_);
#pragma unroll
    for (int j = 0; j < spec::kKGroup; ++j) {
      const auto tile = stage.get_tile(j);
      if constexpr (kBlockScaled) {
        if (lane_ == 0) load_scales(tile, slab + j, item, full);
      }
#pragma unroll
      for (int part = 0; part < kSlab.parts(); ++part)
#pragma unroll
        for (int i = 0; i < kOfLane; ++i) {
          if (kCopies % 32 != 0 && copy_of(i) >= kCopies) break;
          const uint32_t to =
              (kOfA ? tile.a() : tile.b()) +
              static_cast<uint32_t>(part * kSlab.part_bytes() + copy_of(i) * kRowsOfCopy * kSlab.width());
          const int k = ((slab + j) * kSlabDepth + part * kSlab.width_elements()) / kElementsPerMapped;
          if constexpr (kPair)
            ptx::cp_async_bulk_tensor_gather4_pair(to, map, k, rows[i], full);
          else
            ptx::cp_async_bulk_tensor_gather4(to, map, k, rows[i], full);
        }
    }
  }

  const uint32_t lane_;
};

/// Role of a warp, with block-scaled operands: copies the scales of gathered rows to their places in the atoms. A lane
/// has every 32nd row of the tile, or with swap_ab every 32nd column. A row of zeros has scales of 0. A template, so
/// that other kernels do not compile it.
template <class Params>
class ScaleGatherer {
  enum : int {
    kRowsOfTile = kGathersA ? kRows : kColumns,
    kOfLane = (kRowsOfTile + 31) / 32,
    kAtomRows = contract::ScaleAtom::kRows,
    kAtomWords = contract::ScaleAtom::kBytes / 4
  };

 public:
  __device__ __forceinline__ ScaleGatherer(const Params& params, const Shared& shared, const AnyWork& work)
      : params_(params), shared_(shared), work_(work), lane_(threadIdx.x % 32) {}

  __device__ __forceinline__ void run() const {
    const Payload payload = shared_.payload();
    if constexpr (kGathersB) {  // tcgen05.cp reads whole atoms. Parts that no product reads are zeros from here on.
#pragma unroll 1
      for (uint32_t at = lane_ * 16; at < spec::kStages * kScaleBBytes; at += 32 * 16)
        ptx::st_shared_v4(payload.scales_b_base + at, {});
      __syncwarp();
    }
    const uint32_t* const atoms =
        ptx::opaque(static_cast<const uint32_t*>(kGathersA ? params_.scale_a : params_.scale_b));
    const int64_t stride = kGathersA ? params_.scale_a_stride : params_.scale_b_stride;
    // Rows may be longer than k: elements past k are not read. Operands without k are not read at all.
    const int atoms_of_k =
        min(contract::scale_atoms_of_row(params_.k, Product::TypeA::scale_block), static_cast<int>(stride));
    pipeline::InputProducer<Input> input(shared_.input(), payload);
    for_each_item<false>(shared_, work_, [&](int index) {
      const Item item = work_.template at<false>(index, 0);
      const int first = kGathersA ? item.row : item.column;
      const int end = kGathersA ? rows_end(params_, item) : columns_end(params_, item);
      const uint32_t* from[kOfLane];  // null: a row of zeros
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) {
        const int within = i * 32 + static_cast<int>(lane_), row = first + within;
        const int source = source_row(params_, row, within < kRowsOfTile && row < end);
        from[i] = source < 0
                      ? nullptr
                      : atoms + source / kAtomRows * stride * kAtomWords + source % 32 * 4 + source % kAtomRows / 32;
      }
#pragma unroll 1
      for (int slab = item.slabs.begin; slab < item.slabs.end; slab += spec::kKGroup) {
        const auto stage = input.acquire(pipeline::SignalledByWarp{lane_});  // one arrival beside that of the copies
#pragma unroll
        for (int j = 0; j < spec::kKGroup; ++j) copy(stage.get_tile(j), (slab + j) * kScaleAtoms, from, atoms_of_k);
      }
    });
  }

 private:
  /// Of one slab, whose first atom of k is `atom`.
  template <class Tile>
  __device__ __forceinline__ void copy(const Tile& tile, int atom, const uint32_t* const (&from)[kOfLane],
                                       int atoms_of_k) const {
    const uint32_t to = (kGathersA ? tile.scales_a() : tile.scales_b()) + lane_ * 16;
    uint32_t words[kOfLane][kScaleAtoms];
#pragma unroll
    for (int i = 0; i < kOfLane; ++i)
#pragma unroll
      for (int j = 0; j < kScaleAtoms; ++j)
        words[i][j] =
            ptx::ld_global_u32_if(from[i] + (atom + j) * kAtomWords, from[i] != nullptr && atom + j < atoms_of_k);
#pragma unroll
    for (int i = 0; i < kOfLane; ++i)
#pragma unroll
      for (int j = 0; j < kScaleAtoms; ++j)
        if (i * 32 + static_cast<int>(lane_) < kRowsOfTile)
          ptx::st_shared_u32(
              to + static_cast<uint32_t>((i / 4 * kScaleAtoms + j) * contract::ScaleAtom::kBytes + i % 4 * 4),
              words[i][j]);
  }

  const Params& params_;
  const Shared& shared_;
  const AnyWork& work_;
  const uint32_t lane_;
};

/// Role of the warp that gathers scales. kGather: spec::kGather.
template <bool kGather>
__device__ __forceinline__ void gather_any_scales(const EntryParams& params, const Shared& shared, const AnyWork& work,
                                                  uint32_t rank) {
  if constexpr (kGather)
    ScaleGatherer<EntryParams>(params, shared, work).run();
  else
    gather_scales(params, shared, work, rank);
}

/// Role of the loading warp. kGather: spec::kGather, by which the class below is named in those kernels alone.
template <bool kGather>
__device__ __forceinline__ void load_operands(const EntryParams& params, const Shared& shared, const AnyWork& work,
                                              uint32_t rank) {
  if constexpr (kSlicesK)
    SliceLoader<EntryParams>(params, shared, work, rank).run();
  else if constexpr (kGather)
    GatherLoader<kGather && !spec::kSwapAb>(params, shared, work, rank).run();
  else if (ptx::elect_one())
    Loader(params, shared, work, rank).run();
}

}  // namespace
}  // namespace kernelwright

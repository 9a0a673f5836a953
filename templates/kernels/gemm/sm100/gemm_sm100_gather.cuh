/// The loading warp of gemm_sm100 where rows of the problem's a lie where the launch says. TMA gathers four rows at a
/// time, so each lane has four rows of a tile, or a few fours, and brings them of every slab. A row that is of zeros is
/// one that the tensor does not have. One lane loads the other operand, as the loading thread does.
#pragma once

#include "kernels/gemm/sm100/gemm_sm100_load.cuh"
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
        gather(stage, slab, rows);
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

  __device__ __forceinline__ void gather(const ProducerStage& stage, int slab,
                                         const int (&rows)[kOfLane][kRowsOfCopy]) const {
    constexpr contract::SharedSlab kSlab = kOfA ? kASlab : kBSlab;
    const contract::TensorMap& map = kOfA ? params_.a : params_.b;
    const uint32_t full = leaders(stage.full(), rank_);
#pragma unroll
    for (int j = 0; j < spec::kKGroup; ++j) {
      const auto tile = stage.get_tile(j);
#pragma unroll
      for (int part = 0; part < kSlab.parts(); ++part)
#pragma unroll
        for (int i = 0; i < kOfLane; ++i) {
          if (kCopies % 32 != 0 && copy_of(i) >= kCopies) break;
          const uint32_t to =
              (kOfA ? tile.a() : tile.b()) +
              static_cast<uint32_t>(part * kSlab.part_bytes() + copy_of(i) * kRowsOfCopy * kSlab.width());
          const int k = (slab + j) * kSlabDepth + part * kSlab.width_elements();
          if constexpr (kPair)
            ptx::cp_async_bulk_tensor_gather4_pair(to, map, k, rows[i], full);
          else
            ptx::cp_async_bulk_tensor_gather4(to, map, k, rows[i], full);
        }
    }
  }

  const uint32_t lane_;
};

/// Role of the loading warp. kGather: spec::kGather, by which the class below is named in those kernels alone.
template <bool kGather>
__device__ __forceinline__ void load_operands(const EntryParams& params, const Shared& shared, const AnyWork& work,
                                              uint32_t rank) {
  if constexpr (kGather)
    GatherLoader<kGather && !spec::kSwapAb>(params, shared, work, rank).run();
  else if (ptx::elect_one())
    Loader(params, shared, work, rank).run();
}

}  // namespace
}  // namespace kernelwright

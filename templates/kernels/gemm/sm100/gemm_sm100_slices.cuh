/// The loading warp of gemm_sm100 where groups have slices of k: some rows of a and b each, which begin and end
/// anywhere. TMA brings whole slabs of rows as boxes. A group's last slab would bring rows of the next group, too. So
/// all lanes gather its rows, four at a time, and rows behind the group's end are ones that the tensors do not have:
/// TMA writes zeros.
#pragma once

#include "kernels/gemm/sm100/gemm_sm100_load.cuh"
#include "ptx/tma_gather.cuh"

namespace kernelwright {
namespace {

/// A template, so that other kernels have none of its constants.
template <class Params>
class SliceLoader : Loader {
  enum : int { kRowsOfCopy = 4 };
  static_assert(!kSlicesK || (kASlab.mn_major && kBSlab.mn_major), "rows of a slab are rows of k");
  static_assert(!kSlicesK || kClusterSize == kCtas, "a gather brings rows to one CTA");

 public:
  __device__ __forceinline__ SliceLoader(const Params& params, const Shared& shared, const AnyWork& work, uint32_t rank)
      : Loader(params, shared, work, rank), lane_(static_cast<int>(threadIdx.x % 32)) {}

  __device__ __forceinline__ void run() const {
    pipeline::InputProducer<Input> input(shared_.input(), shared_.payload());
    for_each_item<false>(shared_, work_, [&](int index) {
      const Item item = work_.template at<false>(index, rank_);
#pragma unroll 1
      for (int slab = item.slabs.begin; slab < item.slabs.end; slab += spec::kKGroup) {
        const auto stage = input.acquire();
        // The first CTA of a pair expects the bytes of both. Other lanes' copies may complete before that.
        if (lane_ == 0 && leads(rank_)) stage.expect_bytes(kCtas * Input::group_bytes);
        const uint32_t full = leaders(stage.full(), rank_);
#pragma unroll
        for (int j = 0; j < spec::kKGroup; ++j) {
          const auto to = stage.get_tile(j);
          const int row = item.first + (slab + j) * kSlabDepth;  // of a and b
          const int column = item.column + static_cast<int>(rank_in_pair(rank_)) * (kColumns / kCtas);
          if (row + kSlabDepth > item.end) {
            gather<true>(to.a(), params_.a_rows, row, item.end, item.row, full);
            gather<false>(to.b(), params_.b_rows, row, item.end, column, full);
          } else if (lane_ == 0) {
            load_slab<true, 1>(to.a(), params_.a, row, item.row, 0, 0, full, 0);
            load_slab<false, 1>(to.b(), params_.b, row, column, 0, 0, full, 0);
          }
        }
      }
    });
    if (lane_ == 0) ptx::griddepcontrol_launch_dependents();
    input.drain();
  }

 private:
  /// Brings rows [row, end) of a slab and zeros behind them, from column `column` of the operand on.
  template <bool kOfA>
  __device__ __forceinline__ void gather(uint32_t to, const contract::TensorMap& map, int row, int end, int column,
                                         uint32_t full) const {
    constexpr contract::SharedSlab kSlab = kOfA ? kASlab : kBSlab;
    constexpr int kCopies = kSlab.depth() / kRowsOfCopy;  // of a box of columns
#pragma unroll 1
    for (int copy = lane_; copy < kSlab.parts() * kCopies; copy += 32) {
      const int part = copy / kCopies, first = copy % kCopies * kRowsOfCopy;
      int rows[kRowsOfCopy];
#pragma unroll
      for (int i = 0; i < kRowsOfCopy; ++i) rows[i] = row + first + i < end ? row + first + i : -1;
      const uint32_t place = to + static_cast<uint32_t>(part * kSlab.part_bytes() + first * kSlab.width());
      if constexpr (kPair)
        ptx::cp_async_bulk_tensor_gather4_pair(place, map, column + part * kSlab.width_elements(), rows, full);
      else
        ptx::cp_async_bulk_tensor_gather4(place, map, column + part * kSlab.width_elements(), rows, full);
    }
  }

  const int lane_;
};

}  // namespace
}  // namespace kernelwright

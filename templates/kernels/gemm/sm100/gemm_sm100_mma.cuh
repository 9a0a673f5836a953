/// The multiplying thread of gemm_sm100: one for the CTA, or for the pair.
#pragma once

#include "kernels/gemm/sm100/gemm_sm100_walk.cuh"

namespace kernelwright {
namespace {

/// Role of one thread. The hardware performs the products of one accumulator in the order of issue. A slot is free once
/// the products that read it have ended, in every CTA that loads into it.
class Multiplier {
 public:
  __device__ __forceinline__ Multiplier(const EntryParams& params, const Shared& shared, const AnyWork& work,
                                        uint32_t tensor, uint32_t rank)
      : params_(params),
        shared_(shared),
        work_(work),
        rank_(rank),
        scales_{tensor + kTensorColumns.scales_a, tensor + kTensorColumns.scales_b, 0},
        input_(shared.input(), shared.payload()),
        output_(shared.accumulators(), tensor + kTensorColumns.accumulators) {}

  __device__ __forceinline__ void run() {
    for_each_item<true>(shared_, work_, [&](int index) {
      const auto item = item_at<kSearches>(index);
      const int groups = item.slabs.groups();
      if (kParts > 1 && groups == 0) return;  // there is nothing to add
      if constexpr (kBlockScaled && !kGathersB)
        scales_.first = first_scale<kSearches>(item) % contract::kScaleAtomRows / 32;
      if constexpr (kPerSlab)
        multiply_slabs(item.slabs);
      else
        multiply(groups);
    });
  }

 private:
  /// Whether the thread looks for an item's group: where its columns may begin amid an atom of scales. Else products of
  /// all groups have the same slabs, and no other part of an item matters.
  enum : bool { kSearches = !kGrouped || (kBlockScaled && !kGathersB && kColumns % contract::kScaleAtomRows != 0) };
  template <bool kSearch>
  __device__ __forceinline__ auto item_at(int index) const {
    if constexpr (kSearch)
      return work_.at<true>(index, rank_);
    else
      return WholeItem{0, 0, work_.slabs_of(0), 0, 0};
  }
  /// The column whose scale is the first of the tile's; of tiles of whole atoms any multiple of an atom's.
  template <bool kSearch, class AnyItem>
  __device__ __forceinline__ uint32_t first_scale(const AnyItem& item) const {
    if constexpr (kSearch)
      return static_cast<uint32_t>(place_of_scales<false>(params_, item).first);
    else
      return static_cast<uint32_t>(item.column);
  }
  /// The CTAs that hold the sums of these products.
  __device__ __forceinline__ Commit commit_sums() const { return {static_cast<uint16_t>(((1 << kCtas) - 1) << rank_)}; }
  __device__ __forceinline__ Commit commit_slot() const { return {loaders_for(rank_)}; }

  __device__ __forceinline__ void multiply(int groups) {
    const auto sums = output_.acquire(commit_sums());
#pragma unroll 1
    for (int group = 0; group < groups; ++group) {
      const auto stage = input_.acquire(commit_slot());
#pragma unroll
      for (int j = 0; j < spec::kKGroup; ++j) issue(sums.tensor(), stage.get_tile(j), j > 0 ? 1 : group > 0);
    }
  }

  /// Keeps the sums of each slab apart.
  __device__ __forceinline__ void multiply_slabs(const Part& slabs) {
#pragma unroll 1
    for (int slab = slabs.begin; slab < slabs.end; slab += spec::kKGroup) {
      const auto stage = input_.acquire(commit_slot());
#pragma unroll
      for (int j = 0; j < spec::kKGroup; ++j) {
        if (spec::kKGroup > 1 && slab + j >= slabs.end) break;  // no warp takes sums of a group's zeros
        const auto sums = output_.acquire(commit_sums());
        issue(sums.tensor(), stage.get_tile(j), 0);
      }
    }
  }

  /// Called behind the waits for the slot and for the accumulator.
  __device__ __forceinline__ void issue(uint32_t sums, const pipeline::TilesOf<Payload>& from,
                                        uint32_t accumulate) const {
    if constexpr (spec::kPointers) ptx::fence_proxy_async_shared();  // threads have copied what products read
    ptx::tcgen05_fence_after_thread_sync();
    if constexpr (kBlockScaled) Product::copy_scales(scales_, from.scales_a(), from.scales_b());
    Product::issue(sums, from.a(), from.b(), accumulate, scales_);
  }

  const EntryParams& params_;
  const Shared& shared_;
  const AnyWork& work_;
  const uint32_t rank_;
  Product::Scales scales_;
  pipeline::InputConsumer<Input> input_;
  pipeline::OutputProducer<Output> output_;
};

}  // namespace
}  // namespace kernelwright

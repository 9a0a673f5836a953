/// The loading thread of gemm_sm100, and the warp that gathers scales of narrow tiles.
#pragma once

#include "kernels/gemm/sm100/gemm_sm100_walk.cuh"
#include "ptx/memory.cuh"
#include "ptx/tma.cuh"

namespace kernelwright {
namespace {

// Two 4-bit elements are one element of a tensor map.
constexpr int kElementsPerMapped = Product::TypeA::is_fp4 ? 2 : 1;

/// Loads a box of an operand, for all CTAs of `ctas` where kSharers CTAs share it. `full`: the barrier of the CTA that
/// multiplies. kMany: each group has a matrix of its own.
template <bool kMany, int kSharers>
__device__ __forceinline__ void load_box(uint32_t to, const contract::TensorMap& map, int x, int y, int group,
                                         uint32_t full, uint16_t ctas) {
  if constexpr (kMany && kPair && kSharers > 1)
    ptx::cp_async_bulk_tensor_3d_pair_multicast(to, map, x, y, group, full, ctas);
  else if constexpr (kMany && kPair)
    ptx::cp_async_bulk_tensor_3d_pair(to, map, x, y, group, full);
  else if constexpr (kMany && kSharers > 1)
    ptx::cp_async_bulk_tensor_3d_multicast(to, map, x, y, group, full, ctas);
  else if constexpr (kMany)
    ptx::cp_async_bulk_tensor_3d(to, map, x, y, group, full);
  else if constexpr (kPair && kSharers > 1)
    ptx::cp_async_bulk_tensor_2d_pair_multicast(to, map, x, y, full, ctas);
  else if constexpr (kPair)
    ptx::cp_async_bulk_tensor_2d_pair(to, map, x, y, full);
  else if constexpr (kSharers > 1)
    ptx::cp_async_bulk_tensor_2d_multicast(to, map, x, y, full, ctas);
  else
    ptx::cp_async_bulk_tensor_2d(to, map, x, y, full);
}
/// Loads this CTA's share, number `share` of kSharers, of an operand's slab from row `row` on. Slab: kASlab or kBSlab.
template <bool kOfA, int kSharers>
__device__ __forceinline__ void load_slab(uint32_t to, const contract::TensorMap& map, int k, int row, int group,
                                          int share, uint32_t full, uint16_t ctas) {
  constexpr contract::SharedSlab kSlab = kOfA ? kASlab : kBSlab;
  constexpr bool kMany = kBatched || (kOfA ? kManyOfRows : kManyOfColumns);
  // A CTA loads some of the k of each box of rows, or some of the rows of each strip of k.
  constexpr int kShare = (kSlab.mn_major ? kSlab.depth() : kSlab.rows) / kSharers;
  static_assert(kShare % 8 == 0, "shares of whole patterns of the swizzle");
#pragma unroll
  for (int i = 0; i < kSlab.parts(); ++i) {
    const uint32_t part = to + static_cast<uint32_t>(i * kSlab.part_bytes() + share * (kShare * kSlab.width()));
    if constexpr (kSlab.mn_major)
      load_box<kMany, kSharers>(part, map, row + i * kSlab.width_elements(), k + share * kShare, group, full, ctas);
    else
      load_box<kMany, kSharers>(part, map, k + i * (kSlab.width_elements() / kElementsPerMapped), row + share * kShare,
                                group, full, ctas);
  }
}
/// Loads atoms of scales, for this CTA alone.
__device__ __forceinline__ void load_atoms(uint32_t to, const contract::TensorMap& map, int slab, PlaceOfScales place,
                                           uint32_t full) {
  const int k = slab * kScaleAtoms, atom = static_cast<int>(place.atoms) + place.first / contract::kScaleAtomRows;
  if constexpr (kPair)
    ptx::cp_async_bulk_tensor_3d_pair(to, map, 0, k, atom, full);
  else
    ptx::cp_async_bulk_tensor_3d(to, map, 0, k, atom, full);
}

/// kConstant: an operand that no launch ahead of this one writes. kOther: an operand that one may have written.
enum class Operand { kConstant, kOther };

/// Role of one thread: keeps the ring full, across the ends of tiles.
class Loader {
 public:
  __device__ __forceinline__ Loader(const EntryParams& params, const Shared& shared, const AnyWork& work, uint32_t rank)
      : params_(params), shared_(shared), work_(work), rank_(rank) {}

  __device__ __forceinline__ void run() const {
    // Groups of slabs whose weights are already on their way. With groups, bounds say which weights come first.
    int early = !kWaitsAtStart && params_.launch.constant_b ? load_weights_ahead() : 0;
    if constexpr (!kWaitsAtStart) ptx::griddepcontrol_wait();
    pipeline::InputProducer<Input> input(shared_.input(), shared_.payload());
    for_each_item<true>(shared_, work_, [&](int index) {
      if (kQueued && rank_ == 0 && index % kHalves == 0) shared_.item_wanted().arrive();
      const Item item = work_.at<true>(index, rank_);
#pragma unroll 1
      for (int slab = item.slabs.begin; slab < item.slabs.end; slab += spec::kKGroup) {
        const auto stage = input.acquire();
        if (early == 0)
          begin(stage, item, slab);
        else
          --early;
        load<Operand::kOther>(stage, slab, item);
      }
    });
    ptx::griddepcontrol_launch_dependents();
    input.drain();  // so no commit of a product arrives at a CTA that has exited
  }

 protected:
  using ProducerStage = pipeline::ProducerStage<Input>;

  /// Loads weights of the first item, as many as the ring holds. Returns the number of groups of slabs.
  __device__ __forceinline__ int load_weights_ahead() const {
    const ItemWalk<true> items(shared_, work_);
    if (!items.begins()) return 0;
    const Item item = work_.at<true>(items.index() * kHalves, rank_);
    pipeline::InputProducer<Input> input(shared_.input(), shared_.payload());
    int groups = 0;
#pragma unroll 1
    for (int slab = item.slabs.begin; slab < item.slabs.end && groups < Input::num_group_stages;
         slab += spec::kKGroup, ++groups) {
      const auto stage = input.acquire();  // does not wait: no slot is in use yet
      begin(stage, item, slab);
    }
    return groups;
  }
  /// Arms the slot, where this CTA multiplies. Loads the operand that no launch ahead writes.
  __device__ __forceinline__ void begin(const ProducerStage& stage, const Item& item, int slab) const {
    // The first CTA of a pair expects the bytes that both load. Copies of the other CTA may complete before that.
    if (leads(rank_)) stage.expect_bytes(kCtas * (Input::group_bytes - kCopiedBytes));
    if constexpr (!spec::kPointers) load<Operand::kConstant>(stage, slab, item);
  }

  /// Loads a group of slabs of one operand. The problem's b may be constant; scales are not.
  template <Operand kWhich>
  __device__ __forceinline__ void load(const ProducerStage& stage, int slab, const Item& item) const {
    constexpr bool kOfRows = (kWhich == Operand::kConstant) == spec::kSwapAb;
    const uint32_t full = leaders(stage.full(), rank_);
#pragma unroll
    for (int j = 0; j < spec::kKGroup; ++j) {
      const auto to = stage.get_tile(j);
      const int k = (slab + j) * kSlabDepth / kElementsPerMapped;  // TMA brings zeros past the end
      if constexpr (kOfRows) {
        load_slab<true, kBoxes.a_sharers>(to.a(), params_.a, k, item.row, group_of(item),
                                          static_cast<int>(rank_n(rank_)), full, sharers_of_a(rank_));
      } else {
        constexpr int kOwn = kColumns / kCtas;  // this CTA's columns of a product
        load_slab<false, kBoxes.b_sharers>(to.b(), params_.b, k,
                                           item.column + static_cast<int>(rank_in_pair(rank_)) * kOwn, group_of(item),
                                           static_cast<int>(rank_m(rank_)) / kCtas, full, sharers_of_b(rank_));
      }
      if constexpr (kBlockScaled && kWhich == Operand::kOther) load_scales(to, slab + j, item, full);
    }
  }
  /// Loads the atoms of scales that no thread copies.
  __device__ __forceinline__ void load_scales(const pipeline::TilesOf<Payload>& to, int slab, const Item& item,
                                              uint32_t full) const {
    if constexpr (!kGathersA)
      load_atoms(to.scales_a(), params_.scales_a, slab, place_of_scales<true>(params_, item), full);
    if constexpr (!kGathersB)
      load_atoms(to.scales_b(), params_.scales_b, slab, place_of_scales<false>(params_, item), full);
  }

  const EntryParams& params_;
  const Shared& shared_;
  const AnyWork& work_;
  const uint32_t rank_;
};

/// Role of a warp: copies the scales of a tile's few columns to the first rows of the atoms. A lane has a column.
__device__ __forceinline__ void gather_scales(const EntryParams& params, const Shared& shared, const AnyWork& work,
                                              uint32_t rank) {
  const uint32_t lane = threadIdx.x % 32;
  const Payload payload = shared.payload();
  // tcgen05.cp reads whole atoms. Parts that no product reads are zeros from here on.
#pragma unroll 1
  for (uint32_t at = payload.scales_b_base + lane * 16; at < payload.scales_b_base + spec::kStages * kScaleBBytes;
       at += 32 * 16)
    ptx::st_shared_v4(at, {});  // the lane's own place: no other lane writes it
  ptx::griddepcontrol_wait();
  const uint32_t* const atoms = ptx::opaque(static_cast<const uint32_t*>(params.scale_b));
  constexpr int kAtoms = kGathers ? kScaleAtoms : 1, kAtomRows = contract::kScaleAtomRows,
                kAtomWords = contract::kScaleAtomBytes / 4;
  // Rows may be longer than k: elements past k are not read. Operands without k are not read at all.
  const int atoms_of_k = min(contract::scale_atoms_of_row(params.k, kGathers ? Product::TypeA::scale_block : 1),
                             static_cast<int>(params.scale_b_stride));
  pipeline::InputProducer<Input> input(shared.input(), payload);
  for_each_item<false>(shared, work, [&](int index) {
    const Item item = work.at<false>(index, rank);
    const PlaceOfScales place = place_of_scales<false>(params, item);
    const int column = place.first + static_cast<int>(lane), within = column % kAtomRows;
    const bool exists = lane < kColumns && item.column + static_cast<int>(lane) < columns_end(params, item);
    const uint32_t* const from =
        atoms + (place.atoms + column / kAtomRows) * params.scale_b_stride * kAtomWords + within % 32 * 4 + within / 32;
#pragma unroll 1
    for (int slab = item.slabs.begin; slab < item.slabs.end; slab += spec::kKGroup) {
      uint32_t words[spec::kKGroup * kAtoms];
#pragma unroll
      for (int i = 0; i < spec::kKGroup * kAtoms; ++i) {
        const int atom = slab * kAtoms + i;
        words[i] = ptx::ld_global_u32_if(from + atom * kAtomWords, exists && atom < atoms_of_k);
      }
      const auto stage = input.acquire(pipeline::SignalledByWarp{lane});  // one arrival beside that of the copies
#pragma unroll
      for (int i = 0; i < spec::kKGroup * kAtoms; ++i)
        if (lane < kColumns)
          ptx::st_shared_u32(stage.get_tile(i / kAtoms).scales_b() +
                                 static_cast<uint32_t>(i % kAtoms) * contract::kScaleAtomBytes + lane * 16,
                             words[i]);
    }
  });
}

}  // namespace
}  // namespace kernelwright

/// K and V of attention_sm90 where pages are no multiple of 8 keys, so that no box of TMA lies within one: two warps
/// copy them row by row, 16 bytes a lane, to where TMA's swizzle would have put them.
///
/// The loading thread tells them of each item as it tells the math warps. They take tiles in the same order and fill
/// the same rings, each lane for itself: its copies arrive on a slot's full barrier when they are done, so that all
/// free slots are on their way at once. A row outside of what the item sees becomes zeros, and its page is not looked
/// up.
#pragma once

#include "kernels/attention_sm90_tiles.cuh"
#include "policy/item_record.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

constexpr int kFirstGatherWarp = 2, kGatherWarps = 2, kGatherThreads = kGatherWarps * 32;

/// What a gatherer has to know of an item beside its record. Posted in a slot whose barrier has one arrival a lap. The
/// slot needs no "empty": it is written anew once the queries of a later item have been let go of, whose keys every
/// gatherer has brought.
struct alignas(16) GatherItem {
  int batch;
  int origin;     // the key that tiles are counted from
  int low, high;  // keys that some row of the item sees
};
static_assert(sizeof(GatherItem) == contract::kGatherBytes);

__device__ __forceinline__ void init_gathers(const Shared& shared) {
  for (int slot = 0; slot < spec::kQStages + 2; ++slot) ptx::mbarrier_init(shared.gather_posted(slot), 1);
  ptx::fence_mbarrier_init();
}

/// Behind the item's record, which is told of with it.
__device__ __forceinline__ void post_gather(const Shared& shared, uint32_t slot, const GatherItem& item) {
  ptx::st_shared_v4(shared.gather(slot), *reinterpret_cast<const ptx::Vector16*>(&item));
  ptx::mbarrier_arrive(shared.gather_posted(slot));
}

/// A lane of a gathering warp.
///
/// One cp.async of a warp fills four rows of a slab: lanes 8q to 8q + 7 have row q. The warps take such groups of four
/// in turn, so that a lane's rows all have the same place in the swizzle's pattern of 8. Where a row lies is worked out
/// once, by one lane, for K and for V, and left in shared memory: there are no registers to carry it.
class Gatherer {
  static constexpr uint32_t kRows = spec::kBlockN / kGatherWarps;  // of a tile, that a warp copies
  static constexpr uint32_t kGroups = kRows / 4;
  static constexpr uint32_t kAddressBytes = 8, kTableBytes = kRows * kAddressBytes;
  static constexpr uint32_t kPage = spec::kPageSize > 0 ? spec::kPageSize : 1;
  static_assert(spec::kBlockN % 16 == 0 && kGatherWarps == 2, "two warps have every other group of four rows");
  static_assert(!kGathersKv || spec::kMulticast == 1, "a thread copies to its own CTA");

 public:
  __device__ __forceinline__ Gatherer(const HopperAttentionParams& params, const Shared& shared, uint32_t warp)
      : params_(params.attention), shared_(shared), warp_(warp) {}

  __device__ __forceinline__ void run() {
    Producer rings(shared_.kv_barriers(), shared_.keys(), shared_.values());
    auto keys = rings.k();
    auto values = rings.v();
    ItemRing items = ItemRing::before_consumer();  // stands on the item
    int left = 0, first_key = 0;                   // tiles of it, and where the next one begins
    // Values come one key tile late, as they are used: over the whole list of steps, whatever item they belong to.
    uint32_t step = 0;
#pragma unroll 1
    for (;; ++step) {
      if (left == 0) {
        items.step();
        ptx::mbarrier_wait_parity(shared_.gather_posted(items.index), items.phase);
        const policy::ItemRecord::Walk walk = policy::PostedItem{shared_.item(items.index)}.walk();
        left = walk.end - walk.begin;  // < 0: there is no further item
        first_key = gather_item(items.index).origin + (walk.end - 1) * spec::kBlockN;
      }
      if (left > 0) {
        look_up(items.index, first_key, step);
        gather_keys<0>(keys);
      }
      if (step > 0) {
        values.acquire_v();
        copy<0, kSlabsV, spec::kHeadDimV>(value_table(step - 1), values.get_v_smem());
        values.template arrive_with_copies<>();
        values.commit_step();
      }
      if (left < 0) break;
      first_key -= spec::kBlockN;
      --left;
    }
    ptx::cp_async_wait_all();  // nothing of a warp that has exited is in flight
  }

 private:
  __device__ __forceinline__ GatherItem gather_item(uint32_t slot) const {
    const ptx::Vector16 words = ptx::ld_shared_v4(shared_.gather(slot));
    return *reinterpret_cast<const GatherItem*>(&words);
  }

  // Addresses of the warp's rows of the tile of K, and of the tiles of V of two steps: [4][groups], so that a lane
  // reads those of two groups at once. 0: the row becomes zeros.
  __device__ __forceinline__ uint32_t table(uint32_t which) const {
    return shared_.base + kLayout.gather_rows + (which * kGatherWarps + warp_) * kTableBytes;
  }
  __device__ __forceinline__ uint32_t key_table() const { return table(0); }
  __device__ __forceinline__ uint32_t value_table(uint32_t step) const { return table(1 + step % 2); }

  /// What follows from the lane alone is worked out anew for every tile.
  static __device__ __forceinline__ uint32_t opaque_lane() { return ptx::opaque(threadIdx.x) % 32; }

  /// Row i of the warp is row i / 4 * 8 + 4 * warp + i % 4 of the tile.
  __device__ __forceinline__ void look_up(uint32_t slot, int first_key, uint32_t step) const {
    const GatherItem item = gather_item(slot);
    const int32_t* const pages = params_.page_table + static_cast<int64_t>(item.batch) * params_.page_table_stride;
    const int head = Rows{policy::PostedItem{shared_.item(slot)}.rows().head}.kv_head();
    __syncwarp();  // all lanes have read what the tables held
    const uint32_t lane = opaque_lane();
#pragma unroll
    for (uint32_t first = 0; first < kRows; first += 32) {
      const uint32_t i = first + lane;
      if (first + 32 > kRows && i >= kRows) break;
      const int key = first_key + static_cast<int>(i / 4 * 8 + warp_ * 4 + i % 4);
      uint64_t k = 0, v = 0;
      if (key >= item.low && key < item.high) {
        const int64_t page = ptx::ld_global_settled_s32(pages + static_cast<uint32_t>(key) / kPage);
        k = address(params_.k, params_.k_strides, page, static_cast<uint32_t>(key) % kPage, head);
        v = address(params_.v, params_.v_strides, page, static_cast<uint32_t>(key) % kPage, head);
      }
      const uint32_t entry = (i % 4 * kGroups + i / 4) * kAddressBytes;
      ptx::st_shared_u64(key_table() + entry, k);
      ptx::st_shared_u64(value_table(step) + entry, v);
    }
    __syncwarp();
  }
  static __device__ __forceinline__ uint64_t address(const void* tensor, const contract::Strides& strides, int64_t page,
                                                     uint32_t token, int head) {
    return reinterpret_cast<uint64_t>(tensor) +
           2 * (page * strides.batch + static_cast<int64_t>(token) * strides.token + head * strides.head);
  }

  template <int kChunk, class Keys>
  __device__ __forceinline__ void gather_keys(Keys& keys) const {
    constexpr int kSlabs = kSlabsQk / spec::kNumQkStages;
    keys.template acquire_k<kChunk>();
    copy<kChunk * kSlabs, kSlabs, spec::kHeadDimQk>(key_table(), keys.template get_k_smem<kChunk>());
    keys.template arrive_with_copies<kChunk>();
    if constexpr (kChunk + 1 < spec::kNumQkStages)
      gather_keys<kChunk + 1>(keys);
    else
      keys.commit_step();
  }

  /// Slabs [kFirstSlab, kFirstSlab + kSlabs) of the warp's rows. Columns from kDepth on become zeros.
  template <int kFirstSlab, int kSlabs, int kDepth>
  __device__ __forceinline__ void copy(uint32_t table, uint32_t slot) const {
    const uint32_t lane = opaque_lane(), chunk = lane % 8, row = warp_ * 4 + lane / 8;
    uint32_t from = table + lane / 8 * (kGroups * kAddressBytes);
    uint32_t to = slot + row * kRowBytes + (chunk ^ row) * 16;
#pragma unroll 2
    for (uint32_t group = 0; group < kGroups; group += 2) {
      const ptx::Vector16 pair = ptx::ld_shared_v4(from);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint64_t address = pair.word[2 * i] | static_cast<uint64_t>(pair.word[2 * i + 1]) << 32;
        const char* const source = reinterpret_cast<const char*>(address) + chunk * 16;
#pragma unroll
        for (int slab = 0; slab < kSlabs; ++slab) {
          const int columns = kDepth - (kFirstSlab + slab) * contract::kSlabColumns;  // of the head, from the slab on
          const bool exists =
              address != 0 && (columns >= contract::kSlabColumns || static_cast<int>(chunk) * 8 < columns);
          ptx::cp_async_cg_16(to + i * (8 * kRowBytes) + slab * kKvSlabBytes,
                              source + (kFirstSlab + slab) * static_cast<int>(kRowBytes), exists ? 16 : 0);
        }
      }
      from += 2 * kAddressBytes;
      to += 16 * kRowBytes;
    }
  }

  const contract::AttentionParams& params_;
  const Shared shared_;
  const uint32_t warp_;
};

}  // namespace
}  // namespace kernelwright

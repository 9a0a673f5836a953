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
#include "ptx/barrier.cuh"
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
/// in turn, so that a lane's rows all have the same place in the swizzle's pattern of 8. Addresses are worked out once
/// a row, by the lane that owns it, and handed around.
class Gatherer {
  static constexpr int kRows = spec::kBlockN / kGatherWarps;  // of a tile, that a warp copies
  static constexpr int kOwned = (kRows + 31) / 32;            // of them, that a lane owns
  static constexpr int kPage = spec::kPageSize > 0 ? spec::kPageSize : 1;
  static constexpr int kNone = -1;
  static_assert(spec::kBlockN % 16 == 0 && kGatherWarps == 2, "two warps have every other group of four rows");

 public:
  __device__ __forceinline__ Gatherer(const HopperAttentionParams& params, const Shared& shared, uint32_t warp)
      : params_(params.attention), shared_(shared), warp_(static_cast<int>(warp)) {}

  __device__ __forceinline__ void run() {
    Producer rings(shared_.kv_barriers(), shared_.keys(), shared_.values());
    auto keys = rings.k();
    auto values = rings.v();
    ItemRing items = ItemRing::consumer();
    Tile tile{}, before{};
    int left = 0;  // tiles of the item
    // Values come one key tile late, as they are used: over the whole list of steps, whatever item they belong to.
    bool more = true, pending = false;
#pragma unroll 1
    for (;;) {
      if (left == 0) {
        ptx::mbarrier_wait_parity(shared_.gather_posted(items.index), items.phase);
        tile.item = items.index;
        items.step();
        const policy::ItemRecord::Walk walk = policy::PostedItem{shared_.item(tile.item)}.walk();
        const int end = ptx::uniform(walk.end);
        more = end >= 0;
        left = end - ptx::uniform(walk.begin);
        tile.first_key = ptx::uniform(gather_item(tile.item).origin) + (end - 1) * spec::kBlockN;
      }
      if (more) {
        look_up(tile);
        gather_keys<0>(keys, tile);
      }
      if (pending) {
        values.acquire_v();
        copy<0, kSlabsV, spec::kHeadDimV>(params_.v, params_.v_strides, before, values.get_v_smem());
        values.template arrive_with_copies<>();
        values.commit_step();
      }
      if (!more) break;
      before = tile;
      pending = true;
      tile.first_key -= spec::kBlockN;
      --left;
    }
  }

 private:
  struct Tile {
    int page[kOwned];  // of the rows that the lane owns; kNone: nothing that the item sees
    int first_key;
    uint32_t item;  // slot of its records, which outlive the item's copies
  };

  __device__ __forceinline__ GatherItem gather_item(uint32_t slot) const {
    const ptx::Vector16 words = ptx::ld_shared_v4(shared_.gather(slot));
    return *reinterpret_cast<const GatherItem*>(&words);
  }

  /// Key of the i-th row that a lane owns, and whether there is such a row.
  __device__ __forceinline__ int key(const Tile& tile, int i, int lane) const {
    const int owned = i * 32 + lane;
    return tile.first_key + owned / 4 * 8 + warp_ * 4 + owned % 4;
  }
  static __device__ __forceinline__ bool owns(int i, int lane) {
    return (i + 1) * 32 <= kRows || i * 32 + lane < kRows;
  }

  // Records are read anew for every tile, and what follows from the lane alone is worked out anew: there are no
  // registers to carry them.
  static __device__ __forceinline__ int opaque_lane() { return static_cast<int>(ptx::opaque(threadIdx.x) % 32); }

  __device__ __forceinline__ void look_up(Tile& tile) const {
    const GatherItem item = gather_item(tile.item);
    const int32_t* const pages = params_.page_table + static_cast<int64_t>(item.batch) * params_.page_table_stride;
    const int lane = opaque_lane();
#pragma unroll
    for (int i = 0; i < kOwned; ++i) {
      const int key = this->key(tile, i, lane);
      const bool seen = owns(i, lane) && key >= item.low && key < item.high;
      tile.page[i] = seen ? __ldg(pages + static_cast<unsigned>(key) / kPage) : kNone;
    }
  }
  __device__ __forceinline__ int kv_head(const Tile& tile) const {
    return Rows{policy::PostedItem{shared_.item(tile.item)}.rows().head}.kv_head();
  }

  template <int kChunk, class Keys>
  __device__ __forceinline__ void gather_keys(Keys& keys, const Tile& tile) const {
    constexpr int kSlabs = kSlabsQk / spec::kNumQkStages;
    keys.template acquire_k<kChunk>();
    copy<kChunk * kSlabs, kSlabs, spec::kHeadDimQk>(params_.k, params_.k_strides, tile,
                                                    keys.template get_k_smem<kChunk>());
    keys.template arrive_with_copies<kChunk>();
    if constexpr (kChunk + 1 < spec::kNumQkStages)
      gather_keys<kChunk + 1>(keys, tile);
    else
      keys.commit_step();
  }

  /// Slabs [kFirstSlab, kFirstSlab + kSlabs) of the warp's rows. Columns from kDepth on become zeros.
  template <int kFirstSlab, int kSlabs, int kDepth>
  __device__ __forceinline__ void copy(const void* tensor, const contract::Strides& strides, const Tile& tile,
                                       uint32_t slot) const {
    const int lane = opaque_lane(), first_row = warp_ * 4 + lane / 8;  // of the rows that the lane copies to
    const uint32_t place = slot + first_row * kRowBytes + (lane % 8 ^ first_row % 8) * 16;
    const char* const first = static_cast<const char*>(tensor) + 2 * (kv_head(tile) * strides.head) +
                              kFirstSlab * static_cast<int>(kRowBytes);
#pragma unroll
    for (int i = 0; i < kOwned; ++i) {
      const int within = static_cast<int>(static_cast<unsigned>(key(tile, i, lane)) % kPage);
      uint64_t own = 0;  // the row's address; 0: zeros
      if (tile.page[i] != kNone)
        own = reinterpret_cast<uint64_t>(first + 2 * (tile.page[i] * strides.batch + within * strides.token));
      const int groups = min(kRows - i * 32, 32) / 4;
#pragma unroll 2
      for (int group = 0; group < groups; ++group) {
        const uint64_t row = __shfl_sync(0xffffffff, own, group * 4 + lane / 8);
        const char* const from = reinterpret_cast<const char*>(row) + lane % 8 * 16;
        const uint32_t to = place + (i * 8 + group) * (8 * kRowBytes);
#pragma unroll
        for (int slab = 0; slab < kSlabs; ++slab) {
          const int columns = kDepth - (kFirstSlab + slab) * contract::kSlabColumns;  // of the head, from the slab on
          const bool exists = row != 0 && (columns >= contract::kSlabColumns || lane % 8 * 8 < columns);
          ptx::cp_async_cg_16(to + slab * kKvSlabBytes, from + slab * static_cast<int>(kRowBytes), exists ? 16 : 0);
        }
      }
    }
  }

  const contract::AttentionParams& params_;
  const Shared shared_;
  const int warp_;
};

}  // namespace
}  // namespace kernelwright

/// The warps of attention_sm90 that gather K and V (attention_gather.cuh). The loading thread tells them of each item,
/// as it tells the math warps. They take tiles in the same order.
#pragma once

#include "kernels/attention/attention_gather.cuh"
#include "kernels/attention/sm90/attention_sm90_tiles.cuh"
#include "policy/item_record.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

constexpr int kFirstGatherWarp = 2;

/// What a gathering warp has to know of an item, beside its record.
struct alignas(16) GatherItem {
  int batch;
  int origin;     // tiles are counted from this key
  int low, high;  // keys that some row of the item sees
};
static_assert(sizeof(GatherItem) == contract::kGatherBytes);

/// Slots of messages to the gathering or converting warps, beside an item's record. A slot's barrier has one arrival a
/// lap. It needs no "empty" barrier: the loading thread rewrites a slot only after the queries of a later item have
/// been released. By then every such warp has copied that item's keys.
__device__ __forceinline__ void init_told(const Shared& shared) {
  for (int slot = 0; slot < spec::kQStages + 2; ++slot) shared.gather_posted(slot).init();
  pipeline::fence_barrier_init();
}

/// Called behind the item's record: one arrival tells of both.
__device__ __forceinline__ void post_gather(const Shared& shared, uint32_t slot, const GatherItem& item) {
  ptx::st_shared_v4(shared.gather(slot), *reinterpret_cast<const ptx::Vector16*>(&item));
  shared.gather_posted(slot).arrive();
}

/// A lane of a gathering warp.
class Gatherer {
 public:
  __device__ __forceinline__ Gatherer(const HopperAttentionParams& params, const Shared& shared, uint32_t warp)
      : shared_(shared), rows_(params.attention, shared.base + kLayout.gather_rows, warp) {}

  __device__ __forceinline__ void run() {
    Producer rings(shared_.kv_barriers(), shared_.keys(), shared_.values());
    auto keys = rings.k();
    auto values = rings.v();
    ItemRing items = ItemRing::before_consumer();  // stands on the item
    int left = 0, first_key = 0;                   // tiles of it, and the next one's first key
    // Values come one key tile late, in the order of their use. This holds for the whole list of steps, across items.
    uint32_t step = 0;
#pragma unroll 1
    for (;; ++step) {
      if (left == 0) {
        items.step();
        shared_.gather_posted(items.index).wait(items);
        const policy::ItemRecord::Walk walk = policy::PostedItem{shared_.item(items.index)}.walk();
        left = walk.end - walk.begin;  // < 0: there is no further item
        first_key = gather_item(items.index).origin + (walk.end - 1) * spec::kBlockN;
      }
      if (left > 0) {
        rows_.look_up(tile_of(items.index, first_key), step);
        rows_.gather_keys(keys);
      }
      if (step > 0) rows_.gather_values(values, step - 1);
      if (left < 0) break;
      first_key -= spec::kBlockN;
      --left;
    }
    ptx::cp_async_wait_all();  // no copy of an exited warp is in flight
  }

 private:
  __device__ __forceinline__ GatherItem gather_item(uint32_t slot) const {
    const ptx::Vector16 words = ptx::ld_shared_v4(shared_.gather(slot));
    return *reinterpret_cast<const GatherItem*>(&words);
  }
  __device__ __forceinline__ KvTile tile_of(uint32_t slot, int first_key) const {
    const GatherItem item = gather_item(slot);
    KvTile tile{};
    tile.pages = rows_.pages(item.batch);
    tile.first_key = first_key;
    tile.low = item.low, tile.high = item.high;
    tile.head = Rows{policy::PostedItem{shared_.item(slot)}.rows().head}.kv_head();
    return tile;
  }

  const Shared shared_;
  const RowGather rows_;
};

}  // namespace
}  // namespace kernelwright

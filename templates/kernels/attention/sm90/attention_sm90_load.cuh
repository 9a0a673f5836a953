/// The warps of attention_sm90 that do not multiply: a thread that walks the CTA's items and issues every copy, and a
/// warp for items that see no key.
#pragma once

#include "kernels/attention/attention_open.cuh"
#include "kernels/attention/sm90/attention_sm90_gather.cuh"
#include "kernels/attention/sm90/attention_sm90_tiles.cuh"
#include "policy/item_record.cuh"
#include "policy/padding_rows.cuh"
#include "ptx/launch.cuh"

namespace kernelwright {
namespace {

/// The CTA's wait for the grids ahead of it is here, and one more in fill_unseen(), which shares nothing with this
/// thread. The math warpgroups have none: they touch global memory (sinks, slopes, masks, biases, O, the LSE) only for
/// an item whose record they have, and that record comes by an mbarrier that this thread arrives at behind its wait.
__device__ __forceinline__ void load(const HopperAttentionParams& params, const Shared& shared) {
  ptx::griddepcontrol_wait();  // lengths and offsets too may be the grid ahead's to write
  const contract::AttentionParams& attention = params.attention;
  QueryRing queries = QueryRing::producer(shared.query_barriers());
  Producer rings(shared.kv_barriers(), shared.keys(), shared.values());
  auto keys = rings.k();
  auto values = rings.v();
  ItemRing items = ItemRing::producer();
  // Values come one key tile late, as they are used: over the whole list of steps, whatever item they belong to.
  KvTile before{};
  bool pending = false;
  const auto load_before = [&] { load_values(params.v, values, before); };
  auto walk = walk_of<Walks::Loading>(params);
  policy::TileCoord coord(0, 0, 0);
  while (walk.next(coord)) {
    const ClusterItem cluster(attention, coord);
    const WorkItem work = own_tile<spec::kBlockM * kCluster>(attention, cluster);
    const policy::ItemTiles item = own_tiles_of(attention, cluster, work);
    if (item.empty()) continue;  // fill_unseen()'s
    const policy::TileList& tiles = item.list;
    queries.template producer_wait<>();
    policy::post(shared.item(items.index),
                 policy::describe<spec::kBlockN, OpenRow::exists>(attention, work, tiles, item.origin));
    if constexpr (kGathersKv)
      post_gather(shared, items.index,
                  {coord.batch, item.origin, item.origin + tiles.keys.low, item.origin + tiles.keys.high});
    const uint32_t full = queries.expect_bytes(kSlabsQk * kQuerySlabBytes);
    load_queries<spec::kBlockM, kSlabsQk>(params.q, shared.queries(queries.state.index), work, 0, full);
    queries.step();
    items.step();
    if constexpr (kGathersKv) continue;  // the gatherers have been told
    KvTile tile(attention, work, item);
    for (int j = tiles.end - 1; j >= tiles.begin; --j) {
      if (j == tiles.begin) walk.look_ahead();
      tile.first_key = item.origin + j * spec::kBlockN;
      load_keys<kSlabsQk>(params.k, keys, tile);
      if (pending) load_before();
      before = tile;
      pending = true;
    }
  }
  if (pending) load_before();
  // No copy is left to issue: what is left are the steps of a ring and an output. The next grid's CTAs come to their
  // wait on SMs whose CTA has ended; on this one there is no room before.
  ptx::griddepcontrol_launch_dependents();
  queries.template producer_wait<>();
  policy::ItemRecord none{};
  none.walk.end = -1;
  policy::post(shared.item(items.index), none);
  queries.fill();  // without bytes
  if constexpr (kGathersKv) post_gather(shared, items.index, {});
  // A CTA of a cluster stays until the others have let go of what it sent: they arrive on its barriers.
  if constexpr (kCluster > 1) rings.drain();
}

// ---- a warp for rows that no key is seen from ----

/// Outputs of the items that have no key tiles, and of rows that are no sequence's. Everyone else
/// skips them: a loop over keys that may not run costs the others more than a warp that has nothing else to do.
__device__ __forceinline__ void fill_unseen(const HopperAttentionParams& params) {
  ptx::griddepcontrol_wait();
  const contract::AttentionParams& attention = params.attention;
  const int lane = threadIdx.x % 32;
  policy::fill_padding_rows<spec::kQLayout, spec::kOutDType, spec::kHeadDimV, spec::kLse>(attention, blockIdx.x,
                                                                                          gridDim.x, lane);
  auto walk = walk_of<Walks::Static>(params);  // few items: nobody waits for their even share
  policy::TileCoord coord(0, 0, 0);
  while (walk.next(coord)) {
    const ClusterItem cluster(attention, coord);
    if (!tiles_of(attention, cluster).empty()) continue;
    fill_unseen_rows(attention, own_tile<spec::kBlockM * kCluster>(attention, cluster), lane, 0, 1);
  }
}

}  // namespace
}  // namespace kernelwright

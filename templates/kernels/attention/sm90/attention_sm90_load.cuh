/// The warps of attention_sm90 that do not multiply. One thread walks the CTA's items and issues every copy. One warp
/// fills the outputs of items that see no key.
#pragma once

#include "kernels/attention/attention_open.cuh"
#include "kernels/attention/sm90/attention_sm90_columns.cuh"
#include "kernels/attention/sm90/attention_sm90_gather.cuh"
#include "kernels/attention/sm90/attention_sm90_tiles.cuh"
#include "policy/item_record.cuh"
#include "policy/padding_rows.cuh"
#include "ptx/launch.cuh"

namespace kernelwright {
namespace {

template <class Rings>  // dependent: only these rings have such a constructor
__device__ __forceinline__ Rings load_rings(const Shared& shared) {
  if constexpr (kRestagesOnlyV)
    return {shared.kv_barriers(), shared.keys(), shared.raw_barriers(), shared.raw()};
  else if constexpr (kRestagesKeys)
    return {shared.raw_barriers(), shared.raw(), shared.raw()};
  else
    return {shared.kv_barriers(), shared.keys(), shared.values()};
}

/// Loads a tile of V, in as many parts as it has.
template <class Part, class Values>
__device__ __forceinline__ void load_parts(const contract::TensorMap& map, Values& values, KvTile tile) {
#pragma unroll 1
  for (int part = 0; part < RawTile::kParts; ++part) {
    load_values<Part>(map, values, tile);
    tile.first_key += RawTile::kRows;
  }
}

/// The maps of q, and of k.
using RotaryMaps = RopeMaps<kSlabsPlain, kSlabColumns>;
__device__ __forceinline__ const contract::TensorMap& query_maps(const HopperAttentionParams& params) {
  return params.q;
}
__device__ __forceinline__ decltype(auto) key_maps(const HopperAttentionParams& params) {
  if constexpr (kSplitsQ)
    return StoredKeyMap{params.k};
  else
    return (params.k);
}
__device__ __forceinline__ RotaryMaps query_maps(const contract::HopperRotaryParams& params) {
  return {params.q, params.q_rope, 1};
}
__device__ __forceinline__ RotaryMaps key_maps(const contract::HopperRotaryParams& params) {
  return {params.k, params.k_rope, params.rope_head_step};
}
__device__ __forceinline__ void prefetch_rotary_maps(const HopperAttentionParams&) {}
__device__ __forceinline__ void prefetch_rotary_maps(const contract::HopperRotaryParams& params) {
  ptx::prefetch_tensormap(params.q_rope);
  ptx::prefetch_tensormap(params.k_rope);
}

/// This thread waits for the grids ahead, on behalf of the CTA. fill_unseen() has a wait of its own, because it shares
/// nothing with this thread. The math warpgroups do not wait. They touch global memory (sinks, slopes, masks, biases,
/// O, the LSE) only for an item whose record they have. That record comes by an mbarrier, and this thread arrives at
/// the mbarrier behind its wait.
__device__ __forceinline__ void load(const KernelParams& params, const Shared& shared) {
  ptx::griddepcontrol_wait();  // the grid ahead may write lengths and offsets, too
  const contract::AttentionParams& attention = params.attention;
  QueryRing queries = QueryRing::producer(shared.query_barriers());
  LoadRings rings = load_rings<LoadRings>(shared);
  auto keys = rings.k();
  auto values = rings.v();
  ItemRing items = ItemRing::producer();
  // Values come one key tile late, in the order of their use, unless kValuesAtOnce. This holds for the whole list of
  // steps, across items.
  KvTile before{};
  bool pending = false;
  const auto load_values_of = [&](const KvTile& tile) {
    if constexpr (spec::kVColumns)
      ValueColumns::load(params.v, values, tile);
    else
      load_parts<LoadedValues>(params.v, values, tile);
  };
  auto walk = walk_of<Walks::Loading>(params);
  policy::TileCoord coord(0, 0, 0);
  while (walk.next(coord)) {
    const ClusterItem cluster(attention, coord);
    const WorkItem work = own_tile<spec::kBlockM * kCluster>(attention, cluster);
    const policy::ItemTiles item = own_tiles_of(attention, cluster, work);
    if (item.empty()) continue;  // fill_unseen() takes it
    const policy::TileList& tiles = item.list;
    queries.template producer_wait<>();
    policy::post(shared.item(items.index), policy::describe < spec::kBlockN, OpenRow::exists || kKeyScales,
                 kHidesInTiles > (attention, work, tiles, item.origin));
    if constexpr (kGathersKv)
      post_gather(shared, items.index,
                  {coord.batch, item.origin, item.origin + tiles.keys.low, item.origin + tiles.keys.high});
    if constexpr (kRestagesKv) shared.gather_posted(items.index).arrive();
    const uint32_t full = queries.expect_bytes(kSlabsQk * kQuerySlabBytes);
    load_queries<spec::kBlockM, kSlabsQk>(query_maps(params), shared.queries(queries.state.index), work, 0, full);
    queries.step();
    items.step();
    if constexpr (kGathersKv) continue;  // the gathering warps have been told
    KvTile tile(attention, work, item);
    for (int j = tiles.end - 1; j >= tiles.begin; --j) {
      if (j == tiles.begin) walk.look_ahead();
      tile.first_key = item.origin + j * spec::kBlockN;
      load_keys<kLoadedKeySlabs, LoadedKeys>(key_maps(params), keys, tile);
      if constexpr (kValuesAtOnce) {
        load_values_of(tile);
      } else {
        if (pending) load_values_of(before);
        before = tile;
        pending = true;
      }
    }
  }
  if (pending) load_values_of(before);
  // All copies are issued; the last steps of a ring and an output are left. CTAs of the next grid reach their wait on
  // SMs whose CTA has ended. On this SM there is no room for one before.
  ptx::griddepcontrol_launch_dependents();
  queries.template producer_wait<>();
  policy::ItemRecord none{};
  none.walk.end = -1;
  policy::post(shared.item(items.index), none);
  queries.fill();  // without bytes
  if constexpr (kGathersKv) post_gather(shared, items.index, {});
  if constexpr (kRestagesKv) shared.gather_posted(items.index).arrive();
  // A CTA of a cluster stays until the others have released what it sent, because they arrive on its barriers.
  if constexpr (kCluster > 1) rings.drain();
}

// ---- a warp for rows that see no key ----

/// Writes the outputs of items without key tiles, and of rows that belong to no sequence. All other warps skip them. A
/// loop over keys that may not run costs the others more than this warp, which has nothing else to do.
__device__ __forceinline__ void fill_unseen(const HopperAttentionParams& params) {
  ptx::griddepcontrol_wait();
  const contract::AttentionParams& attention = params.attention;
  const int lane = threadIdx.x % 32;
  policy::fill_padding_rows<spec::kQLayout, spec::kOutDType, spec::kHeadDimV, spec::kLse>(attention, blockIdx.x,
                                                                                          gridDim.x, lane);
  auto walk = walk_of<Walks::Static>(params);  // few items: an even share matters to no warp
  policy::TileCoord coord(0, 0, 0);
  while (walk.next(coord)) {
    const ClusterItem cluster(attention, coord);
    if (!tiles_of(attention, cluster).empty()) continue;
    fill_unseen_rows(attention, own_tile<spec::kBlockM * kCluster>(attention, cluster), lane, 0, 1);
  }
}

}  // namespace
}  // namespace kernelwright

/// What the kernels of latent attention that load by TMA share: the ring of key tiles, and the work of a CTA.
#pragma once

#include "spec.h"

#include "contract/attention_latent.h"
#include "kernels/attention/latent/attention_latent_rows.cuh"
#include "pipeline/staged_pipeline.cuh"
#include "policy/either.cuh"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "tile/row_tile.cuh"
#include "tile/shared_tile.cuh"

namespace kernelwright {
namespace {

enum : int {  // not variables, which would be in every binary
  kCluster = spec::kClusterM,
  kSlabs = spec::kHeadDimQk / 64,
  kValueSlabs = spec::kHeadDimV / 64,
  // Keys that a box of TMA has: those of a CTA's share of a tile that lie in one page. The loading thread holds the
  // pages of all boxes of a tile.
  kShareRows = spec::kBlockN / kCluster,
  kBoxRows = contract::hopper_kv_box_rows(kShareRows, spec::kPageSize),
};
enum : uint32_t { kSlabBytes = contract::kLatentSlabBytes, kSlotBytes = kSlabs * kSlabBytes };
static_assert(spec::kBlockM == contract::kLatentRows && spec::kBlockN == contract::kLatentRows);
static_assert(kValueSlabs == contract::kLatentParts * contract::kLatentPartSlabs && kSlabs >= kValueSlabs,
              "each part has values");

using Params = policy::Either<kConverts, contract::LatentBytesParams, contract::LatentParams>::type;

/// The map of the scales of records. Other keys have no such map; the kernel compiles the call and never makes it.
__device__ __forceinline__ const contract::TensorMap& scale_map(const contract::LatentBytesParams& params) {
  return params.k_scale;
}
__device__ __forceinline__ const contract::TensorMap& scale_map(const contract::LatentParams& params) {
  return params.k;
}

/// Slabs of part `part` of a slot.
__device__ constexpr int slabs_of_part(int part) {
  return part + 1 < contract::kLatentParts ? contract::kLatentPartSlabs : kSlabs - part * contract::kLatentPartSlabs;
}

/// The ring of key tiles. A tile of number i, counted from the CTA's first, lies in slot i % 2.
using KeyRing = pipeline::StagedPipeline<contract::kLatentSlots, contract::kLatentParts, (kCluster > 1)>;

/// The CTAs that walk the same key tiles: those of a cluster, or of a team. A team has all rows of a sequence.
enum : int { kTogether = spec::kBalanced ? 1 << 20 : spec::kBlockM * kCluster };
using ClusterItem = ItemOf<kTogether>;
static_assert(!spec::kBalanced || (kCluster == 1 && !kConverts), "a team has no cluster, and keys of 16 bits");

/// How often the slots of keys have been filled and read, as parities: CTAs take item after item, and each item begins
/// with slot 0.
struct Laps {
  uint32_t parities = 0;  // bit s: of slot s
  __device__ __forceinline__ uint32_t of(int slot) const { return parities >> slot & 1; }
  /// The parity of the lap of the tile that was loaded last into this slot.
  __device__ __forceinline__ uint32_t before(int slot) const { return spec::kBalanced ? of(slot) ^ 1 : 0; }
  /// A tile has been loaded.
  __device__ __forceinline__ void fill(uint32_t slot) { parities ^= 1 << slot; }
  /// An item of `tiles` tiles is over.
  __device__ __forceinline__ void add(int tiles) { parities ^= ((tiles + 1) / 2 & 1) | (tiles / 2 & 1) << 1; }
};

/// An item of a CTA. All CTAs of a cluster walk the same key tiles, those that any of their rows sees. So do those of a
/// team.
struct Work {
  ClusterItem cluster;
  WorkItem item;
  Mask mask;
  policy::TileList tiles;
  int parts;  // into which the keys are cut

  /// All key tiles of `coord`, which names a cluster or a team.
  __device__ __forceinline__ Work(const contract::AttentionParams& params, policy::TileCoord coord)
      : cluster(params, coord),
        item(params, own(params, coord)),
        mask(cluster.template mask<Mask>(params)),
        tiles(policy::tile_list<spec::kBlockN>(mask, cluster.query(0), cluster.query(max(cluster.num_rows, 1) - 1))),
        parts(1) {}

  __device__ int count() const { return tiles.end - tiles.begin; }

 private:
  __device__ static policy::TileCoord own(const contract::AttentionParams& params, policy::TileCoord coord) {
    if constexpr (kCluster > 1) coord.m_block = coord.m_block * kCluster + static_cast<int>(ptx::cluster_ctarank());
    if constexpr (spec::kBalanced) coord.m_block = static_cast<int>(blockIdx.x % params.num_m_blocks);
    return coord;
  }
};

/// The items of a CTA: one, the part of a tile that the number of the CTA names.
class OneItem {
  bool exists_;

 public:
  Work work;
  template <class SharedT>
  __device__ __forceinline__ OneItem(const contract::AttentionParams& params, const SharedT&)
      : work(params, policy::TileCoord(params, params.kv_heads, blockIdx.x / kCluster)) {
    exists_ = work.cluster.num_rows > 0;
    work.parts = params.num_splits;
    work.tiles.take_part(work.cluster.coord.split, work.parts);
  }
  __device__ __forceinline__ bool exists() const { return exists_; }
  __device__ __forceinline__ void next() { exists_ = false; }
};

/// Q as slabs of shared memory, brought by kThreads threads.
using QueryTile = tile::SharedTile<spec::kBlockM, spec::kHeadDimQk, 128>;
template <int kThreads>
using QueryRows = tile::RowTile<spec::kBlockM, spec::kHeadDimQk, QueryTile, kThreads>;

/// Thread `thread` of kThreads brings its share of Q to shared.queries(). Its own copies have landed when this returns.
template <int kThreads, class SharedT>
__device__ __forceinline__ void bring_queries(const SharedT& shared, const contract::AttentionParams& params,
                                              const WorkItem& item, int thread) {
  const QueryRows<kThreads> rows{shared.queries()};
  if (item.num_rows > 0)
    rows.load(thread, item.num_rows, item.rows(static_cast<const uint16_t*>(params.q), params.q_strides));
  else  // of a CTA behind the last rows of its cluster
#pragma unroll 1
    for (int at = thread * 16; at < QueryTile::bytes; at += kThreads * 16) ptx::st_shared_v4(shared.queries() + at, {});
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<0>();
}

}  // namespace
}  // namespace kernelwright

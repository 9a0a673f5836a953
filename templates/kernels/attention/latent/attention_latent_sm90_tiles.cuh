/// What the warps of attention_latent_sm90 share: types that follow from the Spec, places in shared memory, and the
/// work of a CTA.
#pragma once

#include "spec.h"

#include "contract/attention_latent_sm90.h"
#include "kernels/attention/latent/attention_latent_rows.cuh"
#include "pipeline/kv_consumer_pipeline.cuh"
#include "pipeline/phased_barrier.cuh"
#include "pipeline/staged_pipeline.cuh"
#include "ptx/cluster.cuh"

namespace kernelwright {
namespace {

enum : int {  // not variables, which would be in every binary
  kCluster = spec::kClusterM,
  kSlabs = spec::kHeadDimQk / 64,
  kValueSlabs = spec::kHeadDimV / 64,
  kSides = 2,  // math warpgroups: each has half of the output's columns
  kSideColumns = spec::kHeadDimV / kSides,
  kSideParts = contract::kLatentParts / kSides,
  kMathThreads = 256,
  // Keys that a box of TMA has: those of a CTA's share of a tile that lie in one page. The loading thread holds the
  // pages
  // of all boxes of a tile.
  kShareRows = spec::kBlockN / kCluster,
  kBoxRows = contract::hopper_kv_box_rows(kShareRows, spec::kPageSize),
  kLoadRegisters = kShareRows / kBoxRows > 2 ? 40 : 24,
  kMathRegisters = kLoadRegisters > 24 ? 232 : 240,
};
enum : uint32_t { kSlabBytes = contract::kLatentSlabBytes, kMathBarrier = 1, kSideBarrier = 2 };
static_assert(spec::kBlockM == contract::kLatentRows && spec::kBlockN == contract::kLatentRows);
static_assert(kValueSlabs == contract::kLatentParts * contract::kLatentPartSlabs && kSlabs >= kValueSlabs,
              "each warpgroup multiplies the values of two parts");

constexpr contract::HopperLatentLayout kLayout = contract::hopper_latent_layout(spec::kHeadDimQk);

/// Slabs of part `part` of a slot.
__device__ constexpr int slabs_of_part(int part) {
  return part + 1 < contract::kLatentParts ? contract::kLatentPartSlabs : kSlabs - part * contract::kLatentPartSlabs;
}

/// The ring of key tiles. A tile of number i, counted from the CTA's first, lies in slot i % 2.
using KeyRing = pipeline::StagedPipeline<contract::kLatentSlots, contract::kLatentParts, (kCluster > 1)>;
using Release = pipeline::WarpRelease<kCluster>;
/// The probabilities of a tile, and the maxima that they are relative to, lie in shared memory: four warps arrive.
using Posted = pipeline::PhasedBarrier<4>;

using ClusterItem = ItemOf<spec::kBlockM * kCluster>;  // the rows of all CTAs of a cluster

/// Shared memory, with the layout of the contract.
struct Shared {
  uint32_t base;
  __device__ uint32_t queries(int slab = 0) const { return base + kLayout.queries + slab * kSlabBytes; }
  __device__ uint32_t keys(int slot, int slab = 0) const {
    return base + kLayout.keys + slot * kLayout.slot + slab * kSlabBytes;
  }
  /// What the warpgroup of side `side` posts.
  __device__ uint32_t probabilities(int side) const {
    return base + (side == 0 ? kLayout.probabilities : kLayout.odd_probabilities);
  }
  __device__ uint32_t maximum(int side, int row) const {
    return base + kLayout.maxima + (side * contract::kLatentRows + row) * 4;
  }
  __device__ uint32_t sum(int side, int row) const {
    return base + kLayout.sums + (side * contract::kLatentRows + row) * 4;
  }
  __device__ uint32_t key_barriers() const { return base + kLayout.barriers; }
  __device__ Posted posted(int side) const { return {base + kLayout.barriers + KeyRing::bytes + side * 8}; }
  __device__ uint32_t last() const { return base + kLayout.last; }
};

/// The work of a CTA. All CTAs of a cluster walk the same key tiles, those that any of their rows sees.
struct Work {
  ClusterItem cluster;
  WorkItem item;
  Mask mask;
  policy::TileList tiles;

  __device__ __forceinline__ Work(const contract::AttentionParams& params, unsigned block)
      : cluster(params, block / kCluster),
        item(params, own(cluster.coord)),
        mask(cluster.template mask<Mask>(params)),
        tiles(policy::tile_list<spec::kBlockN>(mask, cluster.query(0), cluster.query(max(cluster.num_rows, 1) - 1))) {
    tiles.take_part(cluster.coord.split, params.num_splits);
  }
  __device__ int count() const { return tiles.end - tiles.begin; }

 private:
  __device__ static policy::TileCoord own(policy::TileCoord coord) {
    if constexpr (kCluster > 1) coord.m_block = coord.m_block * kCluster + static_cast<int>(ptx::cluster_ctarank());
    return coord;
  }
};

}  // namespace
}  // namespace kernelwright

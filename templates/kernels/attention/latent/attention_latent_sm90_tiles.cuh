/// What the warps of attention_latent_sm90 share, beyond attention_latent_ring.cuh: places in shared memory, and the
/// items of a CTA.
#pragma once

#include "spec.h"

#include "contract/attention_latent_sm90.h"
#include "kernels/attention/latent/attention_latent_ring.cuh"
#include "pipeline/kv_consumer_pipeline.cuh"
#include "pipeline/phased_barrier.cuh"
#include "policy/either.cuh"
#include "policy/even_shares.cuh"
#include "policy/joint_merge.cuh"

namespace kernelwright {
namespace {

enum : int {   // not variables, which would be in every binary
  kSides = 2,  // math warpgroups: each has half of the output's columns
  kSideColumns = spec::kHeadDimV / kSides,
  kSideParts = contract::kLatentParts / kSides,
  kThreads = 384,
  kMathThreads = 256,
  kConvertWarps = 3,
  // Warps that convert are faster with more than 40 registers. A merge takes them back: it holds many parts at once.
  kConvertRegisters = spec::kMerge == Merge::kInKernel ? 40 : 56,
  kLoadRegisters = kConverts                                      ? kConvertRegisters
                   : spec::kBalanced || kShareRows / kBoxRows > 2 ? 40
                                                                  : 24,
  kMathRegisters = kLoadRegisters > 40   ? 224
                   : kLoadRegisters > 24 ? 232
                                         : 240,
};
enum : uint32_t { kMathBarrier = 1, kSideBarrier = 2 };
static_assert(!kConverts || kCluster == 1, "each CTA converts its own keys");

static_assert(contract::kLatentScratchBytes == policy::even_scratch(kThreads));
constexpr contract::HopperLatentLayout kLayout = contract::hopper_latent_layout(spec::kHeadDimQk, kConverts, kRecords);
using Release = pipeline::WarpRelease<kCluster>;
/// A part of a slot of keys of 8 bits has landed.
using Landed = pipeline::PhasedBarrier<1>;
/// The probabilities of a tile, and the maxima that they are relative to, lie in shared memory: four warps arrive.
using Posted = pipeline::PhasedBarrier<4>;

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
  __device__ Landed landed(int slot, int part) const {
    return {posted(kSides).address + (slot * contract::kLatentParts + part) * 8};
  }
  /// The scales of key `key` of a slot, 4 f32.
  __device__ uint32_t scales(int slot, int key) const {
    return base + kLayout.scales + slot * contract::kLatentScaleBytes + key * 16;
  }
  __device__ uint32_t last() const { return base + kLayout.last; }
  /// Balanced: what this CTA merges at its end, and room for finding its piece.
  __device__ uint32_t cut(int i) const { return base + kLayout.cuts + i * contract::kLatentCutBytes; }
  __device__ uint32_t scratch() const { return base + kLayout.scratch; }
};

/// The item of a CTA at its end. Some kernels derive it anew, so that the loop over keys holds fewer registers: those
/// of CTAs that walk several items, and those that convert keys and merge parts.
template <bool kAnew>
struct FinishedItem {
  using type = const WorkItem&;
  __device__ __forceinline__ static type of(const contract::AttentionParams&, const WorkItem& item) { return item; }
};
template <>
struct FinishedItem<true> {
  using type = WorkItem;
  __device__ __forceinline__ static type of(const contract::AttentionParams& params, const WorkItem& item) {
    const unsigned block = ptx::opaque(blockIdx.x);
    if constexpr (!spec::kBalanced) return WorkItem(params, policy::TileCoord(params, params.kv_heads, block));
    return WorkItem(params, policy::TileCoord{static_cast<int>(block % params.num_m_blocks),
                                              static_cast<int>(ptx::opaque(item.coord.head)),
                                              static_cast<int>(ptx::opaque(item.coord.batch))});
  }
};
using Finished = FinishedItem<(spec::kBalanced ? spec::kQLayout == QLayout::kRagged
                                               : kConverts && spec::kMerge == Merge::kInKernel)>;

/// The items of a CTA: its team's piece of all key tiles. All threads of the CTA find the first item together. Each
/// role then goes on by itself.
class BalancedItems {
  const contract::AttentionParams& params_;
  policy::EvenWalk walk_;
  int cost_;  // of the whole sequence

 public:
  union {
    Work work;  // if there is one
  };
  __device__ __forceinline__ BalancedItems(const contract::AttentionParams& params, const Shared& shared)
      : params_(params), walk_(share_of_team(params, shared)) {
    find();
  }
  __device__ __forceinline__ bool exists() const { return walk_.goes_on(params_.batch * params_.kv_heads); }
  __device__ __forceinline__ void next() {
    step();
    find();
  }

  /// Sequence number `sequence` of batch x KV heads, for a team.
  __device__ __forceinline__ static policy::TileCoord coord_of(const contract::AttentionParams& params, int sequence) {
    return {0, sequence % params.kv_heads, sequence / params.kv_heads};
  }

 private:
  __device__ __forceinline__ static int teams(const contract::AttentionParams& params) {
    return static_cast<int>(gridDim.x) / params.num_m_blocks;
  }
  __device__ __forceinline__ static policy::TeamShare share_of_team(const contract::AttentionParams& params,
                                                                    const Shared& shared) {
    const auto cost_of = [&](int sequence) {
      const ClusterItem item(params, coord_of(params, sequence));
      if (item.num_rows <= 0) return 0;
      const policy::TileList tiles = policy::tile_list<spec::kBlockN>(item.template mask<Mask>(params), item.query(0),
                                                                      item.query(item.num_rows - 1));
      return tiles.end - tiles.begin + contract::kSequenceTiles;
    };
    return policy::find_share<kThreads>(static_cast<int>(blockIdx.x) / params.num_m_blocks, teams(params),
                                        params.batch * params.kv_heads, params.num_splits > 1, shared.scratch(),
                                        cost_of);
  }

  /// Goes on to the first item from here on that has rows of this CTA.
  __device__ __forceinline__ void find() {
#pragma unroll 1
    for (; exists(); step()) {
      // It has references, so that none can be assigned.
      new (&work) Work(params_, coord_of(params_, walk_.sequence()));
      const int tiles = work.cluster.num_rows > 0 ? work.count() : 0;
      cost_ = work.cluster.num_rows > 0 ? tiles + contract::kSequenceTiles : 0;
      if (work.item.num_rows <= 0) continue;
      const policy::KeyPart part = walk_.part(tiles);
      if (!part.exists) continue;
      work.tiles.end = work.tiles.begin + part.end;
      work.tiles.begin += part.begin;
      work.item.coord.split = part.part;
      work.parts = part.parts;
      return;
    }
  }
  __device__ __forceinline__ void step() { walk_.next(cost_, teams(params_)); }
};
using Items = policy::Either<spec::kBalanced, BalancedItems, OneItem>::type;

}  // namespace
}  // namespace kernelwright

/// Tiles of gemm_sm100: constants of its Spec, the ranks of a cluster, and shared memory.
#pragma once

#include "spec.h"

#include "contract/gemm_launch.h"
#include "contract/gemm_sm100.h"
#include "contract/words.h"
#include "kernels/gemm/gemm_options.cuh"
#include "mma/sm100_slab.cuh"
#include "pipeline/output_tile_pipeline.cuh"
#include "pipeline/phased_barrier.cuh"
#include "pipeline/tile_pipeline.cuh"
#include "policy/either.cuh"
#include "policy/group_atoms.cuh"
#include "policy/group_table.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/launch.cuh"
#include "tile/element.cuh"

// Behind the others, so that kernels without groups are the same binaries as before there were any.
#include "kernels/gemm/gemm_defaults.cuh"

namespace kernelwright {
namespace {

using contract::BlackwellGemmParams;

// With groups: rows of the problem's a and d belong to groups, and each group has a matrix b of its own. kGrouped:
// bounds say which rows. In a batch (kBatched) a group's rows are counted from its first one. Groups of kind k
// (kSlicesK) have slices of k instead. Both have a matrix d each (kStacked).
enum : bool {
  kGrouped = kHasBounds && !kSlicesK,
  kMasked = static_cast<GroupKind>(spec::kGroups) == GroupKind::kMasked,
  kGathersRows = spec::kGather,           // rows of the problem's a lie where the launch says
  kManyOfRows = kManyB && spec::kSwapAb,  // side of the tile that is the problem's b, with a matrix for each group
  kManyOfColumns = kManyB && !spec::kSwapAb
};
/// What the entry takes: of groups more, of a cache or a quantised result also the place of it, and what the kernel
/// measures.
using BoundedParams =
    policy::Either<kSlicesK, contract::BlackwellGemmSlicesParams, contract::BlackwellGemmGroupedParams>::type;
using UnscaledParams = BatchOf<policy::Either<kHasBounds, BoundedParams, BlackwellGemmParams>::type>;
using CacheParams =
    policy::Either<spec::kWritesKv, contract::GemmWithKvWrite<BlackwellGemmParams>, UnscaledParams>::type;
using ScaledParams = policy::Either<spec::kQuantizes, contract::GemmWithBlocks<UnscaledParams>, CacheParams>::type;
using EntryParams = policy::Either<kHasStatistics, contract::GemmWithStatistics<ScaledParams>, ScaledParams>::type;
/// Whether the result is quantised with f32 scales.
enum : bool { kMakesF32Scales = spec::kQuantizes && !kMakesBlocks };
/// Tiles that a CTA works at as one item, side by side. There are 2 where a thread has no registers for all columns
/// whose results share scales.
enum : int { kHalves = contract::blackwell_gemm_halves(spec::kPromotion > 0, spec::kGated, spec::kQuantizes) };

// Types of the tile's operands: with swap_ab, its rows are those of the problem's b.
constexpr DType kRowsDType = spec::kSwapAb ? spec::kBDType : spec::kADType;
constexpr DType kColumnsDType = spec::kSwapAb ? spec::kADType : spec::kBDType;
// Whether operands have m or n innermost: first the problem's operands, then the tile's.
constexpr bool kLeftMnMajor = spec::kLayout == OperandLayout::kTn || spec::kLayout == OperandLayout::kTt;
constexpr bool kRightMnMajor = spec::kLayout == OperandLayout::kNn || spec::kLayout == OperandLayout::kTn;
constexpr bool kAMnMajor = spec::kSwapAb ? kRightMnMajor : kLeftMnMajor;
constexpr bool kBMnMajor = spec::kSwapAb ? kLeftMnMajor : kRightMnMajor;

constexpr int kCtas = spec::kCtaGroup;
constexpr bool kPair = kCtas == 2;
constexpr int kClusterM = spec::kClusterM, kClusterN = spec::kClusterN, kClusterSize = kClusterM * kClusterN;
static_assert(kClusterM % kCtas == 0, "CTAs of a pair lie above each other");
constexpr bool kQueued = spec::kScheduler == Scheduler::kQueued;
static_assert(!kQueued || spec::kSplitK == 1, "parts of a tile begin in their order");
constexpr int kParts = spec::kSplitK;  // parts of k
static_assert(kHalves == 1 || kParts == 1, "halves of an item follow each other");
/// Whether what a CTA reads at the kernel's start comes from a launch ahead, for which a thread then waits.
enum : bool { kWaitsAtStart = kParts > 1 || kHasBounds };
constexpr bool kPerSlab = spec::kPromotion > 0;  // a slab's products have scales that threads apply
using Product = mma::SlabProduct<kRowsDType, kColumnsDType, spec::kBlockN, kCtas, kAMnMajor, kBMnMajor,
                                 spec::kSlabBytes, spec::kSwizzleBytes>;
constexpr bool kBlockScaled = Product::kScaled;  // the tensor cores apply scales

static_assert(spec::kBlockM == contract::kBlackwellGemmRows, "a lane of tensor memory for each row");
constexpr int kRows = contract::kBlackwellGemmRows, kColumns = spec::kBlockN;
constexpr contract::BlackwellGemmShape kShape{kColumns,
                                              kCtas,
                                              kClusterM,
                                              kClusterN,
                                              spec::kStages,
                                              spec::kKGroup,
                                              spec::kAccumulators,
                                              Product::TypeA::scale_atoms,
                                              spec::kStoreStages,
                                              kMakesF32Scales ? 4 : tile::kBytesOf<stored_dtype()>,
                                              spec::kSwapAb,
                                              kQueued ? spec::kClcDepth : 0,
                                              spec::kSlabBytes};
constexpr contract::BlackwellGemmLayout kLayout = contract::blackwell_gemm_layout(kShape);
constexpr contract::BlackwellGemmBarriers kBarriers = contract::blackwell_gemm_barriers(kShape);
constexpr contract::BlackwellGemmColumns kTensorColumns = contract::blackwell_gemm_columns(kShape);
constexpr contract::BlackwellGemmBoxes kBoxes = contract::blackwell_gemm_boxes(kShape);
static_assert(kTensorColumns.used <= contract::kTensorMemoryColumns, "sums and scales");
constexpr bool kGathers = contract::blackwell_gemm_gathers(kShape) || (kBlockScaled && spec::kGather);
static_assert(!kGathers || !kPair, "threads of one CTA put scales in their places");
/// Whose scales threads copy: those of gathered rows, or of the columns of a narrow tile.
enum : bool { kGathersA = kGathers && spec::kGather && !spec::kSwapAb, kGathersB = kGathers && !kGathersA };
static_assert(!kGathersA || kColumns >= 64, "TMA brings the scales of the other side");
constexpr contract::SharedSlab kASlab = Product::a_slab, kBSlab = Product::b_slab;  // this CTA's slabs in a slot
constexpr int kSlabDepth = kASlab.depth();                                          // elements of k in a slot
static_assert(kASlab.parts() * kASlab.part_bytes() == kASlab.total_bytes() &&
                  kBSlab.parts() * kBSlab.part_bytes() == kBSlab.total_bytes(),
              "whole strips of k, whole boxes of rows and columns");
static_assert(!kBlockScaled || spec::kSlabBytes == contract::kBlackwellGemmSlabBytes,
              "a slab has whole atoms of scales");
static_assert(!kPerSlab || kSlabDepth == 128, "a slab has a scale");
constexpr int kScaleAtoms = kShape.scale_atoms;
static_assert(!spec::kPointers || (kGrouped && kClusterSize == 1), "threads copy matrices b to their own CTA");
static_assert(!kHasBounds || (kParts == 1 && !kQueued), "a CTA walks many tiles, which it finds by the bounds");
static_assert(!kGrouped || !kLeftMnMajor, "rows of a have k innermost");
static_assert(!kStacked || (kParts == 1 && !kMakesBlocks), "no parts of k, no atoms of d's scales");
static_assert(!kGrouped || !kBlockScaled || !spec::kPointers, "scales of matrices lie one behind the other");
// Whether roles ask where a group begins, and where its scales do: with scales in atoms. And whether the CTA
// counts atoms of groups for that.
enum : bool {
  kCountsFromGroups = kGrouped && (kMakesBlocks || kBlockScaled),
  kCountsAtoms = kCountsFromGroups && !kMasked
};
using Groups =
    policy::GroupTable<static_cast<GroupKind>(spec::kGroups), static_cast<GroupBounds>(spec::kBounds),
                       spec::kMostGroups, spec::kSwapAb ? kColumns * kClusterN : kRows * kClusterM, spec::kPointers>;

constexpr uint32_t kABytes = contract::blackwell_gemm_a_bytes(kShape),
                   kBBytes = contract::blackwell_gemm_b_bytes(kShape);
constexpr uint32_t kScaleABytes = contract::blackwell_gemm_scale_a_bytes(kShape);
constexpr uint32_t kScaleBBytes = contract::blackwell_gemm_scale_b_bytes(kShape);
static_assert(kBBytes % kBSlab.pattern_bytes() == 0 && kBoxes.a_rows % 8 == 0 && kBoxes.b_rows % 8 == 0,
              "shares of whole patterns of the swizzle");
using Payload =
    pipeline::BlockScaledTilePayload<kABytes, kBBytes, kScaleABytes, kScaleBBytes,
                                     (kGathersA ? 0 : kScaleABytes) + (kGathersB ? 0 : kScaleBBytes), spec::kStages>;
using Input = pipeline::InputTilePipeline<Payload, spec::kStages, spec::kKGroup, (kClusterSize > 1)>;
using Output = pipeline::OutputTilePipeline<spec::kAccumulators, kColumns, kCtas>;

/// Bytes of a group of slots that threads copy, where matrices b lie where the launch says. TMA brings the others.
enum : uint32_t { kCopiedBytes = spec::kPointers ? (spec::kSwapAb ? kABytes : kBBytes) * spec::kKGroup : 0 };
enum : uint32_t { kCopyThreads = spec::kPointers ? 64 : 0 };  // warps 6 and 7

constexpr uint32_t kMmaWarp = 4, kLoadWarp = 5, kItemWarp = 6;
static_assert(Output::kWarps == kMmaWarp, "warps 0 to 3 reach lanes 0 to 127");

// ---- ranks in a cluster: rows of the tile first, so that CTAs of a pair follow each other ----

__device__ __forceinline__ uint32_t cluster_rank() {
  if constexpr (kClusterSize > 1)
    return ptx::cluster_ctarank();
  else
    return 0;
}
__device__ __forceinline__ uint32_t rank_m(uint32_t rank) { return rank % kClusterM; }
__device__ __forceinline__ uint32_t rank_n(uint32_t rank) { return rank / kClusterM; }
__device__ __forceinline__ uint32_t rank_in_pair(uint32_t rank) { return rank % kCtas; }
__device__ __forceinline__ bool leads(uint32_t rank) { return rank_in_pair(rank) == 0; }

/// The CTAs that share rows of A with CTA `rank` have a bit each. sharers_of_b: those that share columns of B.
__device__ __forceinline__ uint16_t sharers_of_a(uint32_t rank) {
  constexpr uint32_t every = ((1u << kClusterSize) - 1) / ((1u << kClusterM) - 1);
  return static_cast<uint16_t>(every << rank_m(rank));
}
__device__ __forceinline__ uint16_t sharers_of_b(uint32_t rank) {
  constexpr uint32_t every = ((1u << kClusterM) - 1) / ((1u << kCtas) - 1);
  return static_cast<uint16_t>(every << (rank_in_pair(rank) + rank_n(rank) * kClusterM));
}
/// The CTAs that load for CTA `rank` or for the other CTA of its pair.
__device__ __forceinline__ uint16_t loaders_for(uint32_t rank) {
  const uint32_t first = rank - rank_in_pair(rank);
  uint32_t ctas = 0;
#pragma unroll
  for (uint32_t i = 0; i < kCtas; ++i) ctas |= sharers_of_a(first + i) | sharers_of_b(first + i);
  return static_cast<uint16_t>(ctas);
}
// CTAs, or pairs, that a CTA loads for: each releases its slots.
constexpr uint32_t kConsumers = kClusterM / kCtas + kClusterN - 1;

/// Arrives at a barrier in every CTA of `ctas`, once the products and copies that this thread has issued have ended.
struct Commit {
  uint16_t ctas;
  __device__ __forceinline__ void operator()(uint32_t barrier) const {
    if constexpr (kClusterSize > 1)
      ptx::tcgen05_commit_multicast<kCtas>(barrier, ctas);
    else
      ptx::tcgen05_commit(barrier);
  }
};
/// The address of a barrier in the CTA that multiplies for a pair.
__device__ __forceinline__ uint32_t leaders(uint32_t barrier, uint32_t rank) {
  if constexpr (kPair)
    return ptx::mapa(barrier, rank - rank_in_pair(rank));
  else
    return barrier;
}

// The roles of a cluster that read an answer. In every CTA: the loading thread, four storing warps, the thread that
// asks and, in some kernels, a warp that gathers scales. In every CTA, or pair: the multiplying thread.
constexpr uint32_t kItemReaders = kClusterSize * (2 + Output::kWarps + (kGathers ? 1 : 0)) + kClusterSize / kCtas;

/// Shared memory, with the layout of the contract.
struct Shared {
  uint32_t base;
  __device__ Payload payload() const {
    return {{base + kLayout.a, base + kLayout.b}, base + kLayout.scales_a, base + kLayout.scales_b};
  }
  __device__ uint32_t output(uint32_t warp, uint32_t stage) const {
    return base + kLayout.output + (warp * spec::kStoreStages + stage) * contract::kBlackwellGemmStoreSlabBytes;
  }
  __device__ uint32_t item(uint32_t slot) const {
    return base + kLayout.items + slot * static_cast<uint32_t>(ptx::kCancelResponseBytes);
  }
  __device__ uint32_t barrier(int index) const { return base + kLayout.barriers + static_cast<uint32_t>(index) * 8; }
  __device__ uint32_t input() const { return barrier(kBarriers.full); }
  __device__ uint32_t accumulators() const { return barrier(kBarriers.accumulator_full); }

  // Barriers outside of the rings, each with the arrivals that end its phases. contract::BlackwellGemmBarriers says
  // which roles arrive.
  template <uint32_t kArrivals>
  using Barrier = pipeline::PhasedBarrier<kArrivals, (kClusterSize > 1)>;
  __device__ Barrier<1> item_full(uint32_t slot) const {
    return {barrier(kBarriers.item_full + static_cast<int>(slot))};
  }
  __device__ Barrier<kItemReaders> item_empty(uint32_t slot) const {
    return {barrier(kBarriers.item_empty + static_cast<int>(slot))};
  }
  __device__ Barrier<1> item_wanted() const { return {barrier(kBarriers.item_wanted)}; }

  __device__ uint32_t first_item() const { return base + kLayout.first_item; }
  __device__ uint32_t tensor_address() const { return base + kLayout.tensor_address; }
  __device__ uint32_t groups() const { return base + contract::blackwell_gemm_groups_offset(kShape); }
};
static_assert(kBarriers.empty == kBarriers.full + Input::num_group_stages, "a ring's barriers, as it counts them");

}  // namespace
}  // namespace kernelwright

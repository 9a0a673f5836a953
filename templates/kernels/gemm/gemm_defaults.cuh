/// Which options a Spec has together, and the parameters that depend on them.
#pragma once

#include "contract/gemm_launch.h"
#include "kernels/gemm/gemm_options.cuh"
#include "policy/either.cuh"

namespace kernelwright {

// Scales of columns of the tile, or with swap_ab of its rows.
enum : bool { kScalesColumns = spec::kQuantizes && !spec::kSwapAb, kSwapsScales = spec::kQuantizes && spec::kSwapAb };

// Groups of rows of the problem's a and d, each of which is multiplied by a matrix b of its own: kManyB. In a batch,
// all groups have as many rows, and kernels count rows from the first one of a group: kBatched. Else bounds in memory
// say which rows a group has: kGrouped.
//
// Groups of kind k have slices of k instead, which bounds in memory give: kSlicesK. Their matrices d lie as those of a
// batch do: kStacked.
enum : bool {
  kAnyGroups = static_cast<GroupKind>(spec::kGroups) != GroupKind::kNone,
  kBatched = static_cast<GroupKind>(spec::kGroups) == GroupKind::kBatch,
  kSlicesK = static_cast<GroupKind>(spec::kGroups) == GroupKind::kK,
  kManyB = kAnyGroups && !kSlicesK,
  kStacked = kBatched || kSlicesK,
  kHasBounds = kAnyGroups && !kBatched
};

/// Params, and where matrices d lie at strides the places of the groups.
template <class Params>
using BatchOf = typename policy::Either<kStacked, contract::GemmWithBatch<Params>, Params>::type;

/// That, and where the kernel quantises the place of the scales, or what it writes a cache by.
template <class Params>
using ScaledOf = typename policy::Either<
    kMakesBlocks, contract::GemmWithBlocks<Params>,
    typename policy::Either<spec::kWritesKv, contract::GemmWithKvWrite<Params>,
                            typename policy::Either<spec::kQuantizes, contract::GemmWithScales<BatchOf<Params>>,
                                                    BatchOf<Params>>::type>::type>::type;

/// What the entry of a Spec takes: that, and what the kernel measures.
template <class Params>
using EntryOf =
    typename policy::Either<kHasStatistics, contract::GemmWithStatistics<ScaledOf<Params>>, ScaledOf<Params>>::type;

/// Where the groups lie. Kernels without strides of groups do not read it.
template <class Params>
__device__ __forceinline__ contract::GemmBatchParams batch_of(const Params& params) {
  if constexpr (kStacked)
    return params.batch;
  else
    return {};
}

}  // namespace kernelwright

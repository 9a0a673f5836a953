/// Parts of split keys in attention_sm100. A CTA makes a part: a normalised f32 output and the statistics of its rows.
/// The CTAs of a cluster read their parts out of each other's shared memory; one warp of one CTA reads a row. Other
/// parts meet in the workspace (policy/merge_parts.cuh). In both cases the parts are added in their order.
#pragma once

#include "kernels/attention/sm100/attention_sm100_tiles.cuh"
#include "policy/merge_parts.cuh"
#include "policy/score_mod.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/math.cuh"
#include "ptx/memory.cuh"
#include "tile/row_tile.cuh"

namespace kernelwright {
namespace {

// A part's rows lie in slabs of 32 columns. A row of a slab is a line of 128 bytes, with its pieces of 16 bytes
// swizzled. So there is no bank conflict, neither when a lane writes its row nor when lanes read a line.
constexpr int kPartColumns = contract::kPartColumns;
constexpr int kPartSlabs = (spec::kHeadDimV + kPartColumns - 1) / kPartColumns;
constexpr uint32_t kPartRowBytes = contract::kPartRowBytes, kPartSlabBytes = contract::kPartSlabBytes;
constexpr int kSoftmaxWarps = 2 * kRoleWarps;
constexpr bool kMergesInMemory = kPartsInMemory && spec::kMerge == Merge::kInKernel;
static_assert(kClusterParts == 1 || kPartSlabs * kPartSlabBytes <= static_cast<uint32_t>(kLayout.factors),
              "the output of a part lies over the slots of Q, K and V, which nothing reads any more");

/// The address of piece `piece` of a row's line in a slab.
__device__ __forceinline__ uint32_t part_piece(uint32_t slab, int row, int piece) {
  return slab + static_cast<uint32_t>(row) * kPartRowBytes + static_cast<uint32_t>(piece ^ row % 8) * 16;
}

/// Writes columns [first, first + 16) of the slab's 32. The thread that has the row calls it.
__device__ __forceinline__ void put_part(uint32_t slab, int row, int first, const float (&columns)[16]) {
#pragma unroll
  for (int piece = 0; piece < 4; ++piece) {
    const auto word = [&](int i) { return __float_as_uint(columns[piece * 4 + i]); };
    ptx::st_shared_v4(part_piece(slab, row, first / 4 + piece), {word(0), word(1), word(2), word(3)});
  }
}

// ---- parts that meet in the workspace ----

/// The first element of a row of the part in the workspace. Without head_dim.v: the row's place among the LSEs.
__device__ __forceinline__ int64_t part_offset(const contract::AttentionParams& params, const WorkItem& item, int row) {
  return item.partial_row(params, row) + item.coord.split * WorkItem::partial_rows(params);
}

/// Stores slab `index` of a warp's 32 rows from `first_row` on. They are in `slab`, from its row `slab_row` on.
__device__ __forceinline__ void store_part(const contract::AttentionParams& params, const WorkItem& item, uint32_t slab,
                                           int index, int slab_row, int first_row, int lane) {
  const int column = index * kPartColumns + lane % 8 * 4;
#pragma unroll 1
  for (int r = lane / 8; r < kWarpRows; r += 4) {
    const int row = first_row + r;
    if (row < item.num_rows && column < spec::kHeadDimV)
      ptx::st_global_v4(params.partial_o + part_offset(params, item, row) * spec::kHeadDimV + column,
                        ptx::ld_shared_v4(part_piece(slab, slab_row + r, lane % 8)));
  }
}

/// Fills the part of a CTA that has no keys with zeros and the LSE of nothing. In the first part of an item that sees
/// no key at all, it is the LSE of the sink. All warps call it.
__device__ __forceinline__ void fill_part(const contract::AttentionParams& params, const WorkItem& item) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  for (int row = warp; row < item.num_rows; row += contract::kBlackwellThreads / 32) {
    const int64_t at = part_offset(params, item, row);
    for (int column = lane * 4; column < spec::kHeadDimV; column += 32 * 4)
      ptx::st_global_v4(params.partial_o + at * spec::kHeadDimV + column, {});
    if (lane == 0) {
      float log2_sum = ptx::minus_infinity();
      if constexpr (spec::kSinks)
        if (item.coord.split == 0) log2_sum = params.sinks[item.q_head(row)] * policy::kLog2e;
      params.partial_lse[at] = log2_sum;
    }
  }
}

__device__ __forceinline__ policy::LastArrival last_arrival(const contract::AttentionParams& params) {
  return policy::LastArrival(params.merge_counters + ptx::opaque(blockIdx.x) / params.num_splits);
}

/// Merges all parts of the item's rows, by `warps` warps.
__device__ __forceinline__ void merge_in_memory(const contract::AttentionParams& params, const WorkItem& item, int warp,
                                                int warps) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t rows = WorkItem::partial_rows(params);
#pragma unroll 1
  for (int row = warp; row < item.num_rows; row += warps) {
    const int64_t from = item.partial_row(params, row);
    const policy::MergedRow<spec::kHeadDimV> merged(params.partial_o + from * spec::kHeadDimV,
                                                    params.partial_lse + from, rows, params.num_splits, lane);
    merged.template store<spec::kOutDType>(params.o, item.offset(params.o_strides, row), lane);
    if (spec::kLse && lane == 0) params.lse[item.lse_index(params, row)] = merged.log2_sum * policy::kLn2;
  }
}

/// The whole work of a CTA without keys.
__device__ __forceinline__ void end_without_keys_in_memory(const contract::AttentionParams& params,
                                                           const WorkItem& item) {
  fill_part(params, item);
  if constexpr (kMergesInMemory) {
    __syncthreads();
    bool last = false;
    if (threadIdx.x == 0) {
      last_arrival(params).open();
      last = last_arrival(params).arrive(params.num_splits);
    }
    if (__syncthreads_or(last))
      merge_in_memory(params, item, static_cast<int>(threadIdx.x / 32), contract::kBlackwellThreads / 32);
  }
}

// ---- parts of a cluster ----

/// Afterwards, all CTAs of the cluster can read what each has written. At the end it means that all have read. Every
/// thread calls it.
__device__ __forceinline__ void meet_cluster() {
  ptx::barrier_cluster_arrive();
  ptx::barrier_cluster_wait();
}

/// Publishes the statistics of a row of this CTA's part; `maximum` is in powers of two.
__device__ __forceinline__ void publish(const Shared& shared, int row, float maximum, float sum) {
  ptx::st_shared_f32(shared.published(0, row), maximum);
  ptx::st_shared_f32(shared.published(1, row), sum);
}

/// Merges the rows of the item; the softmax warps of the cluster's CTAs share them out. A part of weight 0 is not read,
/// because it may never have been written.
__device__ __forceinline__ void merge_in_cluster(const contract::AttentionParams& params, const Shared& shared,
                                                 const WorkItem& item, int warp) {
  const int lane = static_cast<int>(threadIdx.x % 32), column = lane * 4;
#pragma unroll 1
  for (int row = item.coord.split * kSoftmaxWarps + warp; row < item.num_rows; row += kClusterParts * kSoftmaxWarps) {
    float weights[kClusterParts], sums[kClusterParts], largest = ptx::minus_infinity(), total = 0;
#pragma unroll
    for (int part = 0; part < kClusterParts; ++part) {
      weights[part] = ptx::ld_shared_cluster_f32(shared.published(0, row), static_cast<uint32_t>(part));
      sums[part] = ptx::ld_shared_cluster_f32(shared.published(1, row), static_cast<uint32_t>(part));
    }
#pragma unroll
    for (int part = 0; part < kClusterParts; ++part) largest = fmaxf(largest, weights[part]);
    float held[kClusterParts][4] = {};
#pragma unroll
    for (int part = 0; part < kClusterParts; ++part) {
      // For a row that no part saw, all maxima are -inf and all sums are 0.
      weights[part] = (weights[part] == largest ? 1 : ptx::ex2_approx_ftz(weights[part] - largest)) * sums[part];
      total += weights[part];
      if (weights[part] != 0 && column < spec::kHeadDimV)
        ptx::ld_shared_cluster_v4(held[part], part_piece(shared.queries(0) + lane / 8 * kPartSlabBytes, row, lane % 8),
                                  static_cast<uint32_t>(part));
    }
    const float inverse = total == 0 ? 0 : 1 / total;
    float merged[4] = {};
#pragma unroll
    for (int part = 0; part < kClusterParts; ++part)
#pragma unroll
      for (int i = 0; i < 4; ++i) merged[i] = fmaf(weights[part] * inverse, held[part][i], merged[i]);
    if (column < spec::kHeadDimV) {
      const int64_t to = item.offset(params.o_strides, row) + column;
      tile::store_pair<spec::kOutDType>(params.o, to, merged[0], merged[1]);
      tile::store_pair<spec::kOutDType>(params.o, to + 2, merged[2], merged[3]);
    }
    if (spec::kLse && lane == 0)
      params.lse[item.lse_index(params, row)] =
          total == 0 ? ptx::minus_infinity() : (largest + ptx::lg2_approx_ftz(total)) * policy::kLn2;
  }
}

/// The work of a CTA without keys while other CTAs of its cluster have some. All warps call it.
__device__ __forceinline__ void end_without_keys_in_cluster(const contract::AttentionParams& params,
                                                            const Shared& shared, const WorkItem& item) {
  if (threadIdx.x < kTileRows) publish(shared, static_cast<int>(threadIdx.x), ptx::minus_infinity(), 0);
  meet_cluster();
  const int warp = static_cast<int>(threadIdx.x / 32);
  if (warp < kSoftmaxWarps) merge_in_cluster(params, shared, item, warp);
  meet_cluster();
}

}  // namespace
}  // namespace kernelwright

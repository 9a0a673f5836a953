/// Attention prefill on Hopper: TMA loads, wgmma multiplies, and three or four warpgroups overlap.
///
/// Warpgroup 0 loads: one thread of it issues every copy. Each other warpgroup owns 64 query rows of the CTA's tile and
/// walks its key tiles from the last to the first, so that the tiles with a mask come first. The CTA is persistent and
/// its work is one long list of steps, a step being a key tile of a work item. In step j a warpgroup
///
///     issues S = Q K(j)^T and, behind it, O += P(j-1) V(j-1)        the turn: one warpgroup at a time
///     waits for S; masks it; exponentials of S, while P V runs
///     waits for O; rescales it where a row maximum moved; packs P(j)
///
/// so its own products hide its exponentials, and so do those of the others, which take their turns meanwhile. The
/// first step of an item issues the last P V of the item before it: no product waits for an output to be stored.
#include "spec.h"

#include "contract/hopper_attention.h"
#include "contract/spec_words.h"
#include "mma/sm90.cuh"
#include "pipeline/interim.cuh"
#include "policy/attention_item.cuh"
#include "policy/item_walk.cuh"
#include "policy/mask.cuh"
#include "policy/row_softmax.cuh"
#include "policy/score_mod.cuh"
#include "policy/turns.cuh"
#include "ptx/barrier.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "tile/quad_store.cuh"

namespace kernelwright {
namespace {

using contract::HopperAttentionParams;

// ---- what the Spec says ----

constexpr int kMathThreads = spec::kMathWarpgroups * 128, kNumThreads = kMathThreads + 128;
// What the launch gives each thread (65536 / kNumThreads) is dealt anew: the loading warpgroup needs few.
constexpr int kLoadRegisters = spec::kMathWarpgroups == 3 ? 32 : 24;
constexpr int kMathRegisters = spec::kMathWarpgroups == 3 ? 160 : 240;
constexpr bool kTakesTurns = spec::kOverlap == Overlap::kPingPong || spec::kOverlap == Overlap::kBoth;
constexpr bool kOverlapsItself = spec::kOverlap == Overlap::kIntra || spec::kOverlap == Overlap::kBoth;
constexpr bool kSharedRing = spec::kKvRing == KvRing::kShared;

constexpr int kSlabsQk = contract::padded_depth(spec::kHeadDimQk) / contract::kSlabColumns;
constexpr int kSlabsV = contract::padded_depth(spec::kHeadDimV) / contract::kSlabColumns;
constexpr uint32_t kRowBytes = 128;  // of a slab
constexpr contract::HopperLayout kLayout =
    contract::hopper_layout(spec::kBlockM, spec::kBlockN, spec::kHeadDimQk, spec::kHeadDimV, spec::kQStages,
                            spec::kNumKvStages, spec::kNumQkStages, kSharedRing);
constexpr contract::HopperBarriers kBarriers =
    contract::hopper_barriers(spec::kQStages, spec::kNumKvStages, spec::kNumQkStages, kSharedRing);
static_assert(spec::kBlockM == 64 * spec::kMathWarpgroups, "a warpgroup has 64 rows");

using WorkItem = policy::WorkItem<spec::kQLayout, spec::kKvLayout, spec::kPackGqa, spec::kGroup, spec::kBlockM>;
using Walk = policy::ItemWalk<spec::kScheduler>;
using Mask = policy::Mask<spec::kMask>;
using ScoreMod = policy::ScoreMod<spec::kScoreMod>;
using Softmax = policy::RowSoftmax<spec::kRescale>;
using Turns = policy::Turns<kTakesTurns, spec::kMathWarpgroups>;

/// Key tiles that a work item walks. None where a ragged sequence ends before it, or no key is seen.
__device__ __forceinline__ policy::TileList tiles_of(const HopperAttentionParams& params, const WorkItem& work) {
  if (work.num_rows <= 0) return {{0, 0}, 0, 0, 0, 0};
  return policy::tile_list<spec::kBlockN>(work.template mask<Mask>(params.attention), work.query(0),
                                          work.query(work.num_rows - 1));
}

// ---- shared memory ----

struct Shared {
  uint32_t base;
  __device__ uint32_t queries(uint32_t slot) const { return base + kLayout.queries + slot * kLayout.query_slot; }
  __device__ uint32_t keys(uint32_t slot) const { return base + kLayout.keys + slot * kLayout.key_slot; }
  __device__ uint32_t values(uint32_t slot) const { return base + kLayout.values + slot * kLayout.value_slot; }
  __device__ uint32_t barrier(int index) const { return base + kLayout.barriers + index * 8; }
};
using QueryRing = pipeline::Ring<spec::kQStages>;
using KvRing_ = pipeline::Ring<spec::kNumKvStages>;
__device__ __forceinline__ QueryRing query_ring(const Shared& shared) {
  return {shared.barrier(kBarriers.query_full), shared.barrier(kBarriers.query_empty)};
}
__device__ __forceinline__ KvRing_ key_ring(const Shared& shared) {
  return {shared.barrier(kBarriers.key_full), shared.barrier(kBarriers.key_empty)};
}
__device__ __forceinline__ KvRing_ value_ring(const Shared& shared) {
  return {shared.barrier(kBarriers.value_full), shared.barrier(kBarriers.value_empty)};
}

// ---- the loading thread ----

constexpr int kBoxRows = contract::hopper_kv_box_rows(spec::kBlockN, spec::kPageSize);

/// Where the keys of an item's tile lie, in coordinates of the maps.
struct KvTile {
  const int32_t* pages;  // of the sequence
  int first_key, num_keys;
  int start;  // ragged: token of the sequence's first key
  int head, batch;
};

template <int kSlabs>
__device__ __forceinline__ void load_kv(const contract::TensorMap& map, uint32_t to, const KvTile& tile, uint32_t barrier) {
  if constexpr (spec::kKvLayout == KvLayoutKind::kPaged) {
    for (int row = 0; row < spec::kBlockN; row += kBoxRows) {
      constexpr int kPage = spec::kPageSize > 0 ? spec::kPageSize : 1;
      const int key = tile.first_key + row;
      // Past the last page nothing is in the table: a page outside the tensor reads as zeros.
      const int page = key < tile.num_keys ? tile.pages[key / kPage] : -1;
#pragma unroll
      for (int slab = 0; slab < kSlabs; ++slab)
        ptx::cp_async_bulk_tensor_4d(to + slab * (spec::kBlockN * kRowBytes) + row * kRowBytes, map,
                                     {slab * 64, key % kPage, tile.head, page}, barrier);
    }
  } else {
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab)
      ptx::cp_async_bulk_tensor_4d(to + slab * (spec::kBlockN * kRowBytes), map,
                                   {slab * 64, tile.start + tile.first_key, tile.head, tile.batch}, barrier);
  }
}

__device__ __forceinline__ void load(const HopperAttentionParams& params, const Shared& shared) {
  const contract::AttentionParams& attention = params.attention;
  QueryRing queries = query_ring(shared);
  KvRing_ keys = key_ring(shared), values = value_ring(shared);
  KvTile before{};  // its values come one key tile late, as they are used
  bool pending = false;
  const auto load_values = [&] {
    values.wait_empty();
    ptx::mbarrier_arrive_expect_tx(values.full(), kSlabsV * spec::kBlockN * kRowBytes);
    load_kv<kSlabsV>(params.v, shared.values(values.index), before, values.full());
    values.step();
  };
  for (Walk walk; walk.item() < static_cast<unsigned>(params.num_items); walk.advance()) {
    const WorkItem work(attention, walk.item());
    const policy::TileList tiles = tiles_of(params, work);
    if (tiles.begin == tiles.end) continue;
    queries.wait_empty();
    ptx::mbarrier_arrive_expect_tx(queries.full(), kSlabsQk * spec::kBlockM * kRowBytes);
#pragma unroll
    for (int slab = 0; slab < kSlabsQk; ++slab)
      ptx::cp_async_bulk_tensor_4d(
          shared.queries(queries.index) + slab * (spec::kBlockM * kRowBytes), params.q,
          {slab * 64, static_cast<int>(work.sequence.q_start) + work.first_row, work.coord.head,
           spec::kQLayout == QLayout::kRagged ? 0 : work.coord.batch},
          queries.full());
    queries.step();
    KvTile tile{attention.page_table + static_cast<int64_t>(work.coord.batch) * attention.page_table_stride, 0,
                work.sequence.kv_len, static_cast<int>(work.sequence.kv_start), work.row_map.kv_head(),
                spec::kKvLayout == KvLayoutKind::kRagged ? 0 : work.coord.batch};
    for (int j = tiles.end - 1; j >= tiles.begin; --j) {
      tile.first_key = j * spec::kBlockN;
      keys.wait_empty();
      ptx::mbarrier_arrive_expect_tx(keys.full(), kSlabsQk * spec::kBlockN * kRowBytes);
      load_kv<kSlabsQk>(params.k, shared.keys(keys.index), tile, keys.full());
      keys.step();
      if (pending) load_values();
      before = tile;
      pending = true;
    }
  }
  if (pending) load_values();
}

// ---- a warpgroup of 64 query rows ----

template <bool kValue>
struct Masked {
  static constexpr bool value = kValue;
};

using Scores = float[spec::kBlockN / 2];
using Probabilities = uint32_t[spec::kBlockN / 16][4];
using Output = float[spec::kHeadDimV / 2];

/// What an item's epilogue needs once its last product has run, beside the accumulator.
struct Finished {
  unsigned item;
  float maximum[2], sum[2];
};

__device__ __forceinline__ float exponent_scale(const contract::AttentionParams& params) {
  return ScoreMod{params.scale, params.softcap}.template exponent_scale<false>(params.exponent_scale);
}

__device__ __forceinline__ void store(const HopperAttentionParams& params, Output& output, Softmax& softmax,
                                      unsigned index) {
  const contract::AttentionParams& attention = params.attention;
  const WorkItem work(attention, ptx::opaque(index));
  const int thread = static_cast<int>(ptx::opaque(threadIdx.x)), lane = thread % 32;
  const int first = thread / 32 * 16 - 64 + lane / 4;
  softmax.finish();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first + r * 8;
    const bool exists = row < work.num_rows;
    uint16_t* const to = static_cast<uint16_t*>(attention.o) + work.offset(attention.o_strides, row);
    tile::store_row<spec::kOutDType, spec::kHeadDimV>(output, r, softmax.inverse(r), to, exists, lane);
    if constexpr (spec::kLse)
      if (lane % 4 == 0 && exists)
        attention.lse[work.lse_index(attention, row)] =
            softmax.log2_sum(r, exponent_scale(attention)) * policy::kLn2;
  }
}

__device__ __forceinline__ void multiply(const HopperAttentionParams& params, const Shared& shared, uint32_t warpgroup) {
  const contract::AttentionParams& attention = params.attention;
  const int lane = threadIdx.x % 32;
  const int warp_row = static_cast<int>(threadIdx.x / 32) * 16 - 64;  // the warp's first row of the tile
  const float scale = exponent_scale(attention);
  QueryRing queries = query_ring(shared);
  KvRing_ keys = key_ring(shared), values = value_ring(shared);
  const Turns turns(warpgroup);
  // The first products overwrite them. Yet ptxas serialises wgmma on accumulators that nobody has set (C7515).
  Scores scores = {};
  Output output = {};
  Probabilities probabilities;
  Softmax softmax;
  bool accumulate = false;  // whether P V adds to the output

  Walk walk;
  policy::TileList tiles;
  /// On to the next item with keys to walk, if there is one.
  const auto seek = [&] {
    for (; walk.item() < static_cast<unsigned>(params.num_items); walk.advance()) {
      tiles = tiles_of(params, WorkItem(attention, walk.item()));
      if (tiles.begin < tiles.end) return true;
    }
    return false;
  };
  const auto arrive = [&](uint32_t barrier) {
    if (lane == 0) ptx::mbarrier_arrive(barrier);
  };
  const auto pin_output = [&] {
    ptx::pin_registers(output);
    ptx::pin_registers(probabilities);
  };
  const auto issue_scores = [&](uint32_t query_slot) {
    ptx::pin_registers(scores);
    pin_output();
    ptx::wgmma_fence();
    mma::issue_scores<spec::kQDType, spec::kHeadDimQk, spec::kBlockM, spec::kBlockN>(
        scores, shared.queries(query_slot) + warpgroup * (64 * kRowBytes), shared.keys(keys.index));
  };
  const auto issue_output = [&] {
    mma::issue_output<spec::kQDType, spec::kHeadDimV, spec::kBlockN>(output, probabilities,
                                                                     shared.values(values.index), accumulate);
    accumulate = true;
  };
  /// The scores are there: mask them.
  const auto mask = [&](int tile) {
    // Opaque: what only the few tiles with a mask need is worked out anew there, rather than held in registers.
    const WorkItem work(attention, ptx::opaque(walk.item()));
    const Mask limits = work.template mask<Mask>(attention);
    const int row = warp_row + lane / 4, origin = tile * spec::kBlockN + lane % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const policy::KeyRange range = limits.visible(work.query(row + r * 8));
      policy::hide_keys<spec::kMask == MaskKind::kSlidingWindow>(scores, r, range.low - origin, range.high - origin);
    }
  };
  const auto end_output = [&] {
    ptx::wgmma_wait_group<0>();
    pin_output();
    arrive(values.empty());
    values.step();
  };

  const auto take_scores = [&] {
    ptx::pin_registers(scores);
    arrive(keys.empty());
    keys.step();
  };
  const auto pack = [&] { mma::pack<spec::kQDType, spec::kBlockN>(scores, probabilities); };
  const auto step = [&](int tile, auto masked) {
    keys.wait_full();
    values.wait_full();
    turns.wait();
    issue_scores(queries.index);
    issue_output();
    turns.pass();
    ptx::wgmma_wait_group<1>();
    take_scores();
    if constexpr (masked.value) mask(tile);
    softmax.exponentiate(scores, scale);
    end_output();
    softmax.rescale(output);
    pack();
  };


  if (seek()) {
    queries.wait_full();
    keys.wait_full();
    turns.wait();
    issue_scores(queries.index);
    turns.pass();
    ptx::wgmma_wait_group<0>();
    take_scores();
    if (tiles.is_partial(tiles.end - 1)) mask(tiles.end - 1);
    softmax.exponentiate(scores, scale);
    pack();
    for (;;) {
      // Three loops with one body: only tiles that some row sees in part are masked.
      int tile = tiles.end - 2;
#pragma unroll 1
      for (; tile >= tiles.full_end; --tile) step(tile, Masked<true>{});
#pragma unroll 1
      for (; tile >= max(tiles.begin, tiles.full_begin); --tile) step(tile, Masked<false>{});
      if constexpr (spec::kMask == MaskKind::kSlidingWindow) {
#pragma unroll 1
        for (; tile >= tiles.begin; --tile) step(tile, Masked<true>{});
      }
      arrive(queries.empty());
      queries.step();
      const unsigned done = walk.item();
      walk.advance();
      if (!seek()) {
        values.wait_full();
        pin_output();
        ptx::wgmma_fence();
        issue_output();
        end_output();
        store(params, output, softmax, done);
        break;
      }
      // The first step of an item issues the last product of the one before.
      queries.wait_full();
      keys.wait_full();
      values.wait_full();
      turns.wait();
      issue_scores(queries.index);
      issue_output();
      turns.pass();
      ptx::wgmma_wait_group<1>();
      Softmax fresh;
      take_scores();
      if (tiles.is_partial(tiles.end - 1)) mask(tiles.end - 1);
      fresh.exponentiate(scores, scale);
      end_output();
      store(params, output, softmax, done);
      softmax = fresh;
      pack();
      accumulate = false;
    }
  }
  turns.finish();
}

}  // namespace
}  // namespace kernelwright

extern "C" __global__ void __launch_bounds__(kernelwright::kNumThreads, 1)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::contract::HopperAttentionParams params) {
  using namespace kernelwright;
  extern __shared__ __align__(1024) unsigned char memory[];
  const Shared shared{ptx::shared_address(memory)};
  const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);  // the same in all lanes, to the compiler too
  if (threadIdx.x == 0) {
    constexpr int kMathWarps = spec::kMathWarpgroups * 4;
    for (int i = 0; i < spec::kQStages; ++i) {
      ptx::mbarrier_init(shared.barrier(kBarriers.query_full + i), 1);
      ptx::mbarrier_init(shared.barrier(kBarriers.query_empty + i), kMathWarps);
    }
    for (int i = 0; i < spec::kNumKvStages; ++i) {
      ptx::mbarrier_init(shared.barrier(kBarriers.key_full + i), 1);
      ptx::mbarrier_init(shared.barrier(kBarriers.key_empty + i), kMathWarps);
      if (kSharedRing) continue;
      ptx::mbarrier_init(shared.barrier(kBarriers.value_full + i), 1);
      ptx::mbarrier_init(shared.barrier(kBarriers.value_empty + i), kMathWarps);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if (warp < 4) {
    ptx::setmaxnreg_dec<kLoadRegisters>();
    if (warp == 0 && ptx::elect_one()) load(params, shared);
  } else {
    ptx::setmaxnreg_inc<kMathRegisters>();
    multiply(params, shared, warp / 4 - 1);
  }
}

/// The softmax warpgroups of attention_sm100, one for each query tile, and the warpgroup that corrects outputs.
#pragma once

#include "kernels/attention/attention_open.cuh"
#include "kernels/attention/sm100/attention_sm100_parts.cuh"
#include "kernels/attention/sm100/attention_sm100_scales.cuh"
#include "kernels/attention/sm100/attention_sm100_tiles.cuh"
#include "policy/lane_softmax.cuh"
#include "policy/score_mod.cuh"
#include "policy/scores.cuh"
#include "ptx/barrier.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "tile/element.cuh"
#include "tile/staged_store.cuh"

namespace kernelwright {
namespace {

using ScoreMod = policy::ScoreMod<spec::kScoreMod>;
using PlaceMod = policy::PlaceMod<spec::kScoreMod>;
using Fragment = policy::LaneScores<spec::kBlockN>;
using LaneSoftmax = policy::LaneSoftmax<spec::kRescale, spec::kExp2Emulated, kNarrow>;

/// The warp arrives once at a barrier of the multiplying thread, behind all that its lanes did, in tensor memory too.
template <class Barrier>
__device__ __forceinline__ void arrive(const Barrier& barrier) {
  ptx::tcgen05_fence_before_thread_sync();
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier.arrive_at(kLeader);
}
template <class Barrier>
__device__ __forceinline__ void await(const Barrier& barrier, int phase) {
  barrier.wait(phase);
  ptx::tcgen05_fence_after_thread_sync();
}

/// What a softmax warpgroup did in earlier items: steps of its accumulator.
struct SoftmaxBefore {
  int steps = 0;
};

/// A thread of a softmax warpgroup. It has a row of the warpgroup's query tile: its lane of tensor memory. It works on
/// one item, and adds that item's steps to `before`.
class SoftmaxThread {
 public:
  __device__ __forceinline__ SoftmaxThread(const contract::AttentionParams& params, const Shared& shared,
                                           const Tensor& tensor, uint32_t block, SoftmaxBefore& before)
      : params_(params),
        shared_(shared),
        before_(before),
        work_(params, block),
        tile_(static_cast<int>(ptx::opaque(threadIdx.x) / kTileRows)),
        warp_(static_cast<int>(thread_index() / 32) % kRoleWarps),
        lane_(static_cast<int>(thread_index() % 32)),
        scores_(tensor.scores(tile_) + Tensor::lanes(warp_)),
        output_(tensor.output(tile_) + Tensor::lanes(warp_)),
        outputs_{tensor.output(0), tensor.output(1)},
        mod_{params.scale * row_scale(), params.softcap},
        scale_(kTokenScales ? 1 : exponent_scale()) {}

  __device__ __forceinline__ void run() {
    if constexpr (kMergesInMemory)  // long before it arrives
      if (params_.num_splits > 1 && threadIdx.x == 0) last_arrival(params_).open();
    const policy::TileList& tiles = work_.tiles.list;
    if constexpr (kQueued)
      if (work_.tiles.empty())
        return fill_unseen_rows(params_, work_.item, lane_, tile_ * kRoleWarps + warp_, 2 * kRoleWarps);
    const Mask mask = work_.item.template mask<Mask>(params_).counted_from(work_.tiles.origin);
    const policy::KeyRange seen = mask.visible(work_.item.query(row()));
    policy::PlaceHead place_head;
    if constexpr (PlaceMod::exists) place_head = {params_, work_.item.q_head(row())};
    if constexpr (spec::kSinks && !kTokenScales)
      if (exists() && (kTwoQueryTiles || tile_ == 0) && work_.item.coord.split == 0)
        softmax_.add_sink(params_.sinks[work_.item.q_head(row())], scale_);
    const int steps = steps_of(tile_, tiles.end - tiles.begin);
#pragma unroll 1
    for (int n = 0; n < steps; ++n) {
      const int tile = tiles.end - 1 - key_tile_of(tile_, n);
      await(shared_.score_full(tile_), before_.steps + n);
      // The product of the step before was issued ahead of these scores: it has ended, and its barrier's phase too.
      float scores[spec::kBlockN];
      float largest = read_scores(scores);
      const TileNumbers numbers(shared_, key_tile_of(tile_, n));
      if constexpr (kTokenScales) numbers.scale_by_keys(scores);
      if (OpenRow::exists || modifies() || tiles.is_partial(tile)) {
        modify(scores, place_head, mask.diagonal + work_.item.query(row()) - tile * spec::kBlockN);
        if constexpr (kTokenScales && !OpenRow::exists) numbers.shift_by_values(scores, exponent_scale());
        if constexpr (OpenRow::exists)
          open(scores, seen, tile * spec::kBlockN);
        else if (tiles.is_partial(tile))
          policy::hide_keys<TileMask::hides>(Fragment{scores}, tile * spec::kBlockN, [&](int) { return seen; });
        if constexpr (kTokenScales && OpenRow::exists) numbers.shift_by_values(scores, exponent_scale());
        largest = largest_of(scores);
      }
      const float factor = softmax_.follow(largest, scale_);
      if (n > 0) hand_over_factor(factor);
      hand_over_probabilities(scores, numbers);
      if constexpr (kTokenScales) numbers.let_go(lane_);
    }
    if constexpr (kTwoQueryTiles)
      store(steps);
    else
      merge_and_store(steps, tiles.end - tiles.begin > 1);
    if constexpr (kQueued) before_.steps += steps;
    if constexpr (kMergesInMemory)
      if (params_.num_splits > 1) merge_if_last();
    if constexpr (kClusterParts > 1) {
      meet_cluster();
      merge_in_cluster(params_, shared_, work_.item, static_cast<int>(threadIdx.x / 32));
    }
  }

 private:
  /// Opaque where there are many items: otherwise the compiler keeps values that follow from it across all items.
  static __device__ uint32_t thread_index() { return kQueued ? ptx::opaque(threadIdx.x) : threadIdx.x; }

  static constexpr bool kScaled = spec::kScales != ScaleKind::kNone;
  enum : bool {
    kQueryScales = spec::kScales == ScaleKind::kPerToken,
    // Whether the factor of exponents has the sign that scores would take.
    kSignsExponents = kTokenScales && !OpenRow::exists && !ScoreMod::changes_scores,
  };

  /// The factor of the row's scores, and of its output.
  __device__ float row_scale() const {
    if constexpr (!kQueryScales) return scale_of(params_.k_scale);
    // The layout is that of q without its last dimension. A row that does not exist has no scale.
    const int64_t batch = spec::kQLayout == QLayout::kRagged ? 0 : int64_t{work_.item.coord.batch} * params_.q_len;
    return exists() ? params_.q_scale[(batch + work_.item.token(row())) * params_.q_heads + work_.item.q_head(row())]
                    : 1;
  }
  __device__ float value_scale() const { return scale_of(params_.v_scale); }
  __device__ float scale_of(const float* scales) const {
    if constexpr (!kScaled || kTokenScales) return 1;
    return scales[spec::kScales == ScaleKind::kPerHead ? work_.item.row_map.kv_head() : 0];
  }

  /// What a score, modified, is multiplied by to be an exponent of 2.
  __device__ float exponent_scale() const {
    if constexpr (kSignsExponents) return mod_.scale * policy::kLog2e;
    return mod_.template exponent_scale<kScaled>(params_.exponent_scale);
  }

  __device__ int first_row() const { return (kTwoQueryTiles ? tile_ * kTileRows : 0) + warp_ * kWarpRows; }
  __device__ int row() const { return first_row() + lane_; }  // among the CTA's rows
  __device__ bool exists() const { return row() < work_.item.num_rows; }

  // ---- scores ----

  /// Where keys have scales, the addresses that follow from it are computed anew in each tile: they hold no registers.
  __device__ __forceinline__ uint32_t scores_address() const { return kTokenScales ? ptx::opaque(scores_) : scores_; }

  /// kCount values from `first` on, as an array.
  template <int kCount, int kScores>
  __device__ __forceinline__ static float (&part(float (&values)[kScores], int first))[kCount] {
    return reinterpret_cast<float(&)[kCount]>(values[first]);
  }

  /// The row's scores, and the largest of them.
  __device__ __forceinline__ float read_scores(float (&scores)[spec::kBlockN]) {
    float largest[2] = {ptx::minus_infinity(), ptx::minus_infinity()};
    const uint32_t from = scores_address();
#pragma unroll
    for (int first = 0; first < spec::kBlockN; first += 16) ptx::tcgen05_ld(from + first, part<16>(scores, first));
    ptx::tcgen05_wait_ld(scores);
#pragma unroll
    for (int i = 0; i < spec::kBlockN; ++i) largest[i % 2] = fmaxf(largest[i % 2], scores[i]);
    return fmaxf(largest[0], largest[1]);
  }

  __device__ bool modifies() const { return kTokenScales || ScoreMod::changes_scores || mod_.changes_queries(); }

  /// `own`: the column of the row's diagonal key.
  __device__ __forceinline__ void modify(float (&scores)[spec::kBlockN], const policy::PlaceHead& place_head,
                                         int own) const {
    policy::modify(Fragment{scores}, mod_, [&] { return [&](int) { return PlaceMod(place_head, -own); }; });
    if constexpr (!kSignsExponents) policy::take_sign(Fragment{scores}, mod_);
  }

  /// policy/open_scores.cuh, which hides what `seen` does, too. `first`: the first column's key, counted as in `seen`.
  __device__ __forceinline__ void open(float (&scores)[spec::kBlockN], const policy::KeyRange& seen, int first) const {
    if constexpr (OpenRow::exists) {
      const int origin = work_.tiles.origin;
      const OpenRow open(params_,
                         {work_.item.query(row()), 0, work_.item.q_head(row()), work_.item.coord.batch,
                          work_.item.sequence.q_len, work_.item.sequence.kv_len},
                         {origin + seen.low, origin + seen.high}, exists());
      policy::open_keys(Fragment{scores}, origin + first, [&](int) { return open; });
    }
  }

  __device__ __forceinline__ static float largest_of(const float (&scores)[spec::kBlockN]) {
    float even = scores[0], odd = scores[1];
#pragma unroll
    for (int i = 2; i < spec::kBlockN; i += 2) even = fmaxf(even, scores[i]), odd = fmaxf(odd, scores[i + 1]);
    return fmaxf(even, odd);
  }

  // ---- to the others ----

  /// Publishes the factor by which the output so far is multiplied before P(n) V(n) is added. The correction has
  /// already read the factor of the step before: it arrived before that step's product began, and that product has
  /// ended now that this step's scores are there.
  __device__ __forceinline__ void hand_over_factor(float factor) {
    ptx::st_shared_f32(shared_.factor(tile_, warp_ * kWarpRows + lane_), factor);
    __syncwarp();
    if (lane_ == 0) shared_.factor_full(tile_).arrive();
  }

  /// Writes P over its scores, in two parts: the product with V begins while the last exponentials run.
  __device__ __forceinline__ void hand_over_probabilities(float (&scores)[spec::kBlockN], const TileNumbers& numbers) {
    const float offset = softmax_.offset(scale_);
    float part[2] = {};
    put<0, kFirstKeys>(scores, numbers, offset, part);
    ptx::tcgen05_wait_st();
    arrive(shared_.probability_ready(tile_));
    if constexpr (kFirstKeys < spec::kBlockN) {
      put<kFirstKeys, spec::kBlockN - kFirstKeys>(scores, numbers, offset, part);
      ptx::tcgen05_wait_st();
      arrive(shared_.probability_rest(tile_));
    }
    softmax_.sum += part[0] + part[1];
  }

  template <int kFirst, int kCount>
  __device__ __forceinline__ void put(float (&scores)[spec::kBlockN], const TileNumbers& numbers, float offset,
                                      float (&part)[2]) {
    LaneSoftmax::template exponentiate<kFirst, kCount>(scores, scale_, offset);
    const uint32_t to = scores_address();
#pragma unroll
    for (int first = kFirst; first < kFirst + kCount; first += kKeyStep) {
      uint32_t words[8];
      numbers.add_to_sums<kKeyStep>(part, scores, first);
#pragma unroll
      for (int i = 0; i < 8; ++i) words[i] = tile::pack_word<spec::kQDType>(scores, first + i * kKeyStep / 8);
      ptx::tcgen05_st(to + first * kElementBytes / 4, words);
    }
  }

  // ---- the end ----

  /// Where keys have scales, adds the row's sink to the sum of all key tiles. Returns the factor for the row's output.
  __device__ __forceinline__ float add_last_sink(LaneSoftmax& softmax) const {
    if constexpr (spec::kSinks && kTokenScales)
      if (exists() && work_.item.coord.split == 0)
        return softmax.add_last_sink(params_.sinks[work_.item.q_head(row())], scale_);
    return 1;
  }

  // A row of the output goes through the place of its query in shared memory, in passes if it is longer.
  static constexpr uint32_t kMergeBarrier = 1;
  static constexpr int kColumnsV = (spec::kHeadDimV + 15) / 16 * 16;
  static constexpr int kBatch = 16, kPiece = 16 / kOutBytes;  // columns at a time, and in 16 bytes
  static constexpr int kPassColumns = contract::query_row_bytes(kShape) / kOutBytes / kBatch * kBatch;
  static constexpr int kPasses = (spec::kHeadDimV + kPassColumns - 1) / kPassColumns;

  /// Stores O / sum, through the slot of the tile's queries: no product reads them any more.
  __device__ __forceinline__ void store(int steps) {
    await(shared_.output_full(tile_), before_.steps + steps - 1);
    const float kept = add_last_sink(softmax_);
    const float factor = softmax_.inverse() * value_scale() * kept;
    const auto columns_of = [&](float(&columns)[kBatch], int first) {
      read_output(columns, output_ + first);
#pragma unroll
      for (float& value : columns) value *= factor;
    };
    if constexpr (kPartsInMemory)
      if (params_.num_splits > 1) {
        store_part_slabs(0, kPartSlabs, shared_.queries(tile_), columns_of);
        return store_part_lse(softmax_);
      }
    store_passes<0>(columns_of);
    release_queries(tile_);
    store_lse(softmax_);
  }
  template <int kPass, class ColumnsOf>
  __device__ __forceinline__ void store_passes(const ColumnsOf& columns_of) {
#pragma unroll
    for (int first = 0; first < pass_columns(kPass); first += kBatch) {
      float columns[kBatch];
      columns_of(columns, kPass * kPassColumns + first);
      stage(columns, first, tile_);
    }
    __syncwarp();
    store_rows<kPass>(tile_, 0, kWarpRows);
    if constexpr (kPass + 1 < kPasses) {
      __syncwarp();
      store_passes<kPass + 1>(columns_of);
    }
  }

  /// Merges two accumulators of one query tile. Each warpgroup takes half of the columns, and then half of the rows.
  /// `both`: the second accumulator had a key tile, too.
  __device__ __forceinline__ void merge_and_store(int steps, bool both) {
    if (steps > 0) await(shared_.output_full(tile_), before_.steps + steps - 1);
    const int lane_row = warp_ * kWarpRows + lane_;
    ptx::st_shared_f32(shared_.statistic(tile_, 0, lane_row), softmax_.maximum);
    ptx::st_shared_f32(shared_.statistic(tile_, 1, lane_row), softmax_.sum);
    ptx::tcgen05_fence_before_thread_sync();
    ptx::bar_sync(kMergeBarrier, 2 * kTileRows);
    ptx::tcgen05_fence_after_thread_sync();
    LaneSoftmax other;
    other.maximum = ptx::ld_shared_f32(shared_.statistic(1 - tile_, 0, lane_row));
    other.sum = ptx::ld_shared_f32(shared_.statistic(1 - tile_, 1, lane_row));
    float weights[2];
    const auto add_last = [&](LaneSoftmax& softmax) { return add_last_sink(softmax); };
    const LaneSoftmax merged = tile_ == 0 ? LaneSoftmax::merge(softmax_, other, scale_, weights, add_last)
                                          : LaneSoftmax::merge(other, softmax_, scale_, weights, add_last);
    const float scale = value_scale();
    weights[0] *= scale, weights[1] *= scale;
    const uint32_t lanes = output_ & 0xffff0000u;
    const auto columns_of = [&](float(&columns)[kBatch], int first) {
      read_output(columns, outputs_[0] + lanes + first);
#pragma unroll
      for (float& value : columns) value *= weights[0];
      if (both) {
        float more[kBatch];
        read_output(more, outputs_[1] + lanes + first);
#pragma unroll
        for (int i = 0; i < kBatch; ++i) columns[i] = fmaf(more[i], weights[1], columns[i]);
      }
    };
    if constexpr (kClusterParts > 1) {
      constexpr int kHalf = (kPartSlabs + 1) / 2;
#pragma unroll 1
      for (int slab = tile_ * kHalf; slab < (tile_ == 0 ? kHalf : kPartSlabs); ++slab)
        put_part_slab(slab, shared_.queries(0) + slab * kPartSlabBytes, columns_of);
      if (tile_ == 0) publish(shared_, lane_row, merged.log2_unit(scale_), merged.sum);
      return;
    }
    if constexpr (kPartsInMemory)
      if (params_.num_splits > 1) {
        constexpr int kHalf = (kPartSlabs + 1) / 2;
        store_part_slabs(tile_ * kHalf, tile_ == 0 ? kHalf : kPartSlabs,
                         tile_ == 0 ? shared_.queries(0) : shared_.keys(), columns_of);
        if (tile_ == 0) store_part_lse(merged);
        return;
      }
    merge_passes<0>(columns_of);
    if constexpr (kQueued) ptx::tcgen05_fence_after_thread_sync();
    release_queries(0);
    if (tile_ == 0) store_lse(merged);
  }
  template <int kPass, class ColumnsOf>
  __device__ __forceinline__ void merge_passes(const ColumnsOf& columns_of) {
    constexpr int kColumns = pass_columns(kPass), kHalf = (kColumns / 2 + kBatch - 1) / kBatch * kBatch;
#pragma unroll
    for (int first = 0; first < kColumns; first += kBatch) {
      if ((first >= kHalf) != (tile_ == 1)) continue;
      float columns[kBatch];
      columns_of(columns, kPass * kPassColumns + first);
      stage(columns, first, 0);
    }
    if constexpr (kQueued) ptx::tcgen05_fence_before_thread_sync();  // each warpgroup has read the other's output too
    ptx::bar_sync(kMergeBarrier, 2 * kTileRows);
    store_rows<kPass>(0, tile_ * (kWarpRows / 2), kWarpRows / 2);
    if constexpr (kPass + 1 < kPasses) {
      ptx::bar_sync(kMergeBarrier, 2 * kTileRows);
      merge_passes<kPass + 1>(columns_of);
    }
  }

  /// Columns of a pass, in whole batches: columns past the depth are zeros.
  static constexpr int pass_columns(int pass) {
    return kColumnsV - pass * kPassColumns < kPassColumns ? kColumnsV - pass * kPassColumns : kPassColumns;
  }

  __device__ __forceinline__ static void read_output(float (&columns)[kBatch], uint32_t from) {
    ptx::tcgen05_ld(from, columns);
    ptx::tcgen05_wait_ld(columns);
  }

  /// Writes columns of the thread's row, from column `first` of a pass on, swizzled, to the slot of query tile `slot`.
  __device__ __forceinline__ void stage(const float (&columns)[kBatch], int first, int slot) const {
    const uint32_t mine = shared_.queries(slot) + static_cast<uint32_t>(warp_ * kWarpRows + lane_) * kRowBytes;
    const uint32_t moved = contract::swizzle_of_row(static_cast<uint32_t>(lane_), spec::kSwizzleBytes);
#pragma unroll
    for (int at = 0; at < kBatch; at += kPiece) {
      const auto word = [&](int i) { return tile::pack_word<spec::kOutDType>(columns, at + i * kPiece / 4); };
      const uint32_t chunk = static_cast<uint32_t>((first + at) / kPiece);
      ptx::st_shared_v4(mine + chunk / kRowPieces * kQuerySlabBytes + (chunk % kRowPieces ^ moved) * 16,
                        {word(0), word(1), word(2), word(3)});
    }
  }

  /// Stores a pass of rows [begin, begin + count) of the warp's, in whole lines of 128 bytes.
  template <int kPass>
  __device__ __forceinline__ void store_rows(int slot, int begin, int count) const {
    constexpr int kFirst = kPass * kPassColumns, kLast = kFirst + pass_columns(kPass);
    constexpr int kColumns = (kLast < spec::kHeadDimV ? kLast : spec::kHeadDimV) - kFirst;
    unsigned char* const o = static_cast<unsigned char*>(params_.o) + kFirst * kOutBytes;
#pragma unroll 1
    for (int first = begin; first < begin + count; first += 16) {
      // The elements' type does not matter here: a row of bytes is taken for a row of 16-bit elements.
      const tile::StagedRows<DType::kBf16, kColumns * kOutBytes / 2, kQuerySlabBytes, kRowBytes> rows(
          shared_.queries(slot) + static_cast<uint32_t>(warp_ * kWarpRows + first) * kRowBytes,
          static_cast<uint32_t>(lane_));
#pragma unroll
      for (int round = 0; round < rows.kRounds; ++round) {
        const int at = first_row() + first + rows.row(round);
        rows.store(round, reinterpret_cast<uint16_t*>(o + work_.item.offset(params_.o_strides, at) * kOutBytes),
                   at < work_.item.num_rows);
      }
    }
  }

  /// The slot through which an output has left may take the next item's queries, which come in the async proxy.
  __device__ __forceinline__ void release_queries(int slot) const {
    if constexpr (kQueued) {
      ptx::fence_proxy_async_shared();
      __syncwarp();
      if (lane_ == 0) shared_.query_empty(slot).arrive();
    }
  }

  // ---- parts of split keys ----

  /// Writes the warp's rows of a slab; columns_of(columns, first) gives 16 columns of the thread's row.
  template <class ColumnsOf>
  __device__ __forceinline__ void put_part_slab(int index, uint32_t slab, const ColumnsOf& columns_of) const {
#pragma unroll
    for (int first = 0; first < kPartColumns; first += kBatch) {
      if (index * kPartColumns + first >= kColumnsV) break;
      float columns[kBatch];
      columns_of(columns, index * kPartColumns + first);
      put_part(slab, warp_ * kWarpRows + lane_, first, columns);
    }
  }

  /// Stores slabs [begin, end) to the workspace, through `slab`.
  template <class ColumnsOf>
  __device__ __forceinline__ void store_part_slabs(int begin, int end, uint32_t slab,
                                                   const ColumnsOf& columns_of) const {
#pragma unroll 1
    for (int index = begin; index < end; ++index) {
      put_part_slab(index, slab, columns_of);
      __syncwarp();
      store_part(params_, work_.item, slab, index, warp_ * kWarpRows, first_row(), lane_);
      __syncwarp();
    }
  }

  __device__ __forceinline__ void store_part_lse(const LaneSoftmax& softmax) const {
    if (exists()) params_.partial_lse[part_offset(params_, work_.item, row())] = softmax.log2_sum(scale_);
  }

  /// Merges the item's parts if all others have been written.
  __device__ __forceinline__ void merge_if_last() const {
    ptx::bar_sync(kMergeBarrier, 2 * kTileRows);  // this part is written
    if (threadIdx.x == 0) ptx::st_shared_u32(shared_.arrived_last(), last_arrival(params_).arrive(params_.num_splits));
    ptx::bar_sync(kMergeBarrier, 2 * kTileRows);
    if (ptx::ld_shared_u32(shared_.arrived_last()) != 0)
      merge_in_memory(params_, work_.item, static_cast<int>(threadIdx.x / 32), kSoftmaxWarps);
  }

  __device__ __forceinline__ void store_lse(const LaneSoftmax& softmax) const {
    if constexpr (spec::kLse)
      if (exists()) params_.lse[work_.item.lse_index(params_, row())] = softmax.log2_sum(scale_) * policy::kLn2;
  }

  const contract::AttentionParams& params_;
  const Shared shared_;
  SoftmaxBefore& before_;
  const Work work_;
  const int tile_, warp_, lane_;
  const uint32_t scores_, output_;  // of the warp's lanes
  const uint32_t outputs_[2];       // lane 0
  const ScoreMod mod_;
  const float scale_;  // powers of two per unit of score; keys with scales make exponents of scores: 1
  LaneSoftmax softmax_;
};

/// Role of a warpgroup: multiplies the outputs of both tiles by their rows' factors, where a row's maximum moved. It
/// does so between two products.
class Corrector {
 public:
  __device__ __forceinline__ Corrector(const Shared& shared, const Tensor& tensor)
      : shared_(shared),
        tensor_(tensor),
        warp_(static_cast<int>(threadIdx.x / 32) % kRoleWarps),
        lane_(static_cast<int>(threadIdx.x % 32)) {}

  /// Corrects the outputs of one item.
  __device__ __forceinline__ void run(int key_tiles) {
    // The first product overwrites the output: nothing has to be corrected before it.
    for (int tile = 0; tile < contract::kScoreTiles; ++tile)
      if (steps_of(tile, key_tiles) > 0) arrive(shared_.probability_ready(tile));
#pragma unroll 1
    for (int n = 1; n < steps_of(0, key_tiles); ++n)
#pragma unroll 1
      for (int tile = 0; tile < contract::kScoreTiles; ++tile) {
        if (n >= steps_of(tile, key_tiles)) break;
        shared_.factor_full(tile).wait(before_[tile] - items_before_[tile] + n - 1);
        const float factor = ptx::ld_shared_f32(shared_.factor(tile, warp_ * kWarpRows + lane_));
        shared_.output_full(tile).wait(before_[tile] + n - 1);
        if (__any_sync(0xffffffff, factor != 1)) {
          ptx::tcgen05_fence_after_thread_sync();
          rescale(tensor_.output(tile) + Tensor::lanes(warp_), factor);
        }
        arrive(shared_.probability_ready(tile));
      }
    if constexpr (kQueued) end(key_tiles);
  }

 private:
  /// Waits for the last products: an arrival for the next item must not count for one of this item's last steps.
  __device__ __forceinline__ void end(int key_tiles) {
    for (int tile = 0; tile < contract::kScoreTiles; ++tile)
      if (const int steps = steps_of(tile, key_tiles); steps > 0) {
        shared_.output_full(tile).wait(before_[tile] + steps - 1);
      }
    before_.add(key_tiles);
    items_before_.add(min(key_tiles, kTwoQueryTiles ? 1 : 2));
  }

  __device__ __forceinline__ static void rescale(uint32_t output, float factor) {
    constexpr int kPadded = (spec::kHeadDimV + 15) / 16 * 16;
#pragma unroll 1
    for (int first = 0; first < kPadded; first += 16) {
      float columns[16];
      ptx::tcgen05_ld(output + first, columns);
      ptx::tcgen05_wait_ld(columns);
#pragma unroll
      for (int i = 0; i < 16; ++i) columns[i] *= factor;
      ptx::tcgen05_st(output + first, columns);
    }
    ptx::tcgen05_wait_st();
  }

  const Shared shared_;
  const Tensor tensor_;
  const int warp_, lane_;
  StepsBefore before_, items_before_;  // of each accumulator: steps, and first steps, which have no factor
};

}  // namespace
}  // namespace kernelwright

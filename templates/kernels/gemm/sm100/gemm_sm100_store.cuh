/// The storing warps of gemm_sm100: a thread reads a row of sums out of tensor memory, finishes and stores it.
///
/// Parts of k take turns at a tile (split_k > 1, policy/turnstile.cuh), and the last one finishes it.
#pragma once

#include "kernels/gemm/gemm_statistics.cuh"
#include "kernels/gemm/sm100/gemm_sm100_copy.cuh"
#include "kernels/gemm/sm100/gemm_sm100_epilogue.cuh"
#include "kernels/gemm/sm100/gemm_sm100_results.cuh"
#include "kernels/gemm/sm100/gemm_sm100_walk.cuh"
#include "ptx/tma.cuh"
#include "tile/lane_rows.cuh"

namespace kernelwright {
namespace {

/// Stores columns that are queries, keys and values. Kernels that write a cache define it: gemm_sm100_kv.cu.
template <class Params, int kChunk>
class WrittenHeads;

/// Role of a warp: 32 rows of every item of the CTA.
class TileStore {
  static constexpr int kChunk = contract::blackwell_gemm_store_columns(kShape);  // columns stored at once
  static constexpr int kChunks = kColumns / kChunk, kStages = spec::kStoreStages;
  enum : int { kResults = kGated ? kChunk / 2 : kChunk };                // of a lane: the chunk's first ones
  enum : int { kOfRun = contract::kGemmScaledColumns / int{kResults} };  // chunks that share f32 scales
  static constexpr int kWarpRows = contract::kBlackwellGemmWarpRows;
  using Chunk = float[kChunk];
  using Slab = tile::LaneRows<stored_dtype(), spec::kSwapAb, kResults>;
  using Turnstile = policy::Turnstile<kParts>;

 public:
  __device__ __forceinline__ TileStore(const EntryParams& params, const Shared& shared, const AnyWork& work,
                                       uint32_t tensor, uint32_t rank, uint32_t warp)
      : params_(params),
        shared_(shared),
        work_(work),
        rank_(rank),
        warp_(warp),
        lane_(threadIdx.x % 32),
        output_(shared.accumulators(), tensor + kTensorColumns.accumulators) {}

  __device__ __forceinline__ void run() {
    // The storing warps read scales before the first sums. With groups the CTA has waited.
    if constexpr (kPerSlab && !kGrouped) ptx::griddepcontrol_wait();
    for_each_item<false>(shared_, work_, [&](int index) { store(work_.at<false>(index, rank_)); });
    if constexpr (!spec::kScatter) {
      if (lane_ == 0) ptx::cp_async_bulk_wait_group_read<0>();  // TMA reads shared memory: it must not go before that
    }
  }

 private:
  __device__ __forceinline__ void store(const Item& item) {
    const int row = item.row + static_cast<int>(warp_) * kWarpRows + static_cast<int>(lane_);
    const bool last = turnstile(item).is_last();
    float sums[kPerSlab ? kColumns : 1];
    Chunk values[2];
    const bool has_sums = kParts == 1 || item.slabs.groups() > 0;
    pipeline::OutputStage held{};  // released behind the last chunk's load
    if constexpr (kPerSlab) {
      add_slabs(item, row, sums);
    } else if (has_sums) {
      auto stage = output_.acquire(arrival());
      // A CTA with a part of k has no other item, so no role waits for its accumulator.
      held = kParts == 1 ? stage.release_later() : stage.keep();
      ptx::tcgen05_ld(held.tensor + lanes(), values[0]);
    }
    const RowEpilogue epilogue(params_, item, row);
    auto measured = statistics<EntryParams>(row);
    typename policy::Either<kMakesF32Scales, ScaledRun<EntryParams>, NoScaledRun>::type run;
    if constexpr (kParts > 1) turnstile(item).wait();
    // Two chunks a round: with the epilogue of all chunks unrolled, compilation would take seconds longer. Values in
    // registers cannot have a run-time index.
    constexpr int kRound = kPerSlab ? kChunks : kMakesF32Scales ? kOfRun : 2;
#pragma unroll 1
    for (int first = 0; first < kChunks; first += kRound)
#pragma unroll
      for (int i = 0; i < kRound; ++i) {
        const int chunk = first + i;
        if (kChunks % kRound != 0 && chunk >= kChunks) break;
        Chunk& own = values[i % 2];
        if constexpr (kPerSlab) {
#pragma unroll
          for (int j = 0; j < kChunk; ++j) own[j] = sums[i * kChunk + j];
        } else if (has_sums) {
          ptx::tcgen05_wait_ld(own);
          if (chunk + 1 < kChunks)  // the next sums load while these are stored
            ptx::tcgen05_ld(held.tensor + lanes() + (chunk + 1) * kChunk, values[(i + 1) % 2]);
          else if constexpr (kParts == 1)
            output_.release(held, arrival());
        } else {
#pragma unroll
          for (int j = 0; j < kChunk; ++j) own[j] = 0;
        }
        if constexpr (kParts > 1) exchange(own, item, chunk);
        if (kParts > 1 && !last) continue;
        if constexpr (spec::kRstd) measured.scale(own);
        epilogue.apply(own, item.column + chunk * kChunk);
        if constexpr (kMeasures) measured.add(own, chunk, item.column + chunk * kChunk);
        if constexpr (spec::kWritesKv) {
          put_heads<EntryParams>(own, chunk, item);
        } else if constexpr (kMakesBlocks) {
          store_blocks<spec::kDDType, kResults>(params_, item, own, row, item.column + chunk * kChunk);
        } else if constexpr (kMakesF32Scales && kHalves == 2) {
          run.template take<kResults>(own, chunk * kResults);
          if (chunk == kChunks - 1) finish_half(run, item, row);
        } else if constexpr (kMakesF32Scales) {
          run.template take<kResults>(own, i % kOfRun * kResults);
          if (i % kOfRun == kOfRun - 1)
            run.store(params_, item, row, column_of_d(item.column + (chunk + 1) * kChunk) - kOfRun * kResults);
        } else
          put(own, chunk, item, epilogue.to());
      }
    if constexpr (kMeasures) measured.finish();
    if constexpr (kParts > 1) turnstile(item).pass();
  }

  // ---- outputs beside d, and factors of rows ----

  /// Of the thread's row of an item. A template, so that other kernels do not compile it.
  template <class Params>
  class RowStatistics {
   public:
    __device__ __forceinline__ RowStatistics(const Params& params, int row, int lane)
        : statistics_(params), row_(row), columns_(params.n), lane_(lane), exists_(row < params.m) {
      static_assert(!kHasStatistics || !spec::kSwapAb, "rows of the tile are rows of the result");
      static_assert(!kMeasures || kColumns % contract::kGemmScaledColumns == 0, "whole sums");
      if constexpr (spec::kRstd) factor_ = rstd_of_row<1>(params, row, exists_, lane);
    }
    __device__ __forceinline__ void scale(Chunk& values) const {
#pragma unroll
      for (float& value : values) value *= factor_;
    }
    __device__ __forceinline__ void add(const Chunk& values, int chunk, int column) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) statistics_.add(0, values[i], exists_ && column + i < columns_);
      constexpr int kOfSum = contract::kGemmScaledColumns / kChunk;
      if (spec::kSquares && (chunk + 1) % kOfSum == 0) {
        const float sum = statistics_.template take_sum<1>(0);
        statistics_.store_sum(row_, column, sum, exists_ && column + kChunk - contract::kGemmScaledColumns < columns_);
      }
    }
    __device__ __forceinline__ void finish() const { statistics_.finish(lane_); }

   private:
    Statistics<Params, 1> statistics_;
    const int row_, columns_, lane_;
    const bool exists_;
    float factor_ = 1;
  };
  struct NoStatistics {
    __device__ __forceinline__ void scale(const Chunk&) const {}
    __device__ __forceinline__ void add(const Chunk&, int, int) const {}
    __device__ __forceinline__ void finish() const {}
  };
  template <class Params>
  __device__ __forceinline__ auto statistics(int row) const {
    if constexpr (kHasStatistics)
      return RowStatistics<Params>(params_, row, static_cast<int>(lane_));
    else
      return NoStatistics{};
  }

  __device__ __forceinline__ uint32_t lanes() const { return warp_ * kWarpRows << 16; }
  /// Arrives at the barrier that the multiplying thread waits on: in a pair, the first CTA's. tcgen05's fences order
  /// the loads.
  __device__ __forceinline__ pipeline::ArrivalOfWarp<kPair> arrival() const {
    return {lane_, rank_ - rank_in_pair(rank_)};
  }

  // ---- sums of slabs, times their scales ----

  __device__ __forceinline__ void add_slabs(const Item& item, int row, float (&sums)[kPerSlab ? kColumns : 1]) {
    constexpr int kPiece = kColumns % 32 == 0 ? 32 : 16, kPieces = kColumns / kPiece;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) sums[i] = 0;
    const SlabScales scales(params_, item, row);
    SlabScales::Factors next{};
    if (item.slabs.begin < item.slabs.end) next = scales.read(item.slabs.begin);
#pragma unroll 1
    for (int slab = item.slabs.begin; slab < item.slabs.end; ++slab) {
      const SlabScales::Factors factors = next;
      if (slab + 1 < item.slabs.end) next = scales.read(slab + 1);
      auto stage = output_.acquire(arrival());
      const uint32_t from = stage.tensor() + lanes();
      float products[2][kPiece];
      ptx::tcgen05_ld(from, products[0]);
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        ptx::tcgen05_wait_ld(products[piece % 2]);
        if (piece + 1 < kPieces)
          ptx::tcgen05_ld(from + (piece + 1) * kPiece, products[(piece + 1) % 2]);
        else
          stage.release_early();
#pragma unroll
        for (int i = 0; i < kPiece; ++i) {
          const int column = piece * kPiece + i;
          sums[column] = fmaf(products[piece % 2][i], SlabScales::factor(factors, column), sums[column]);
        }
      }
    }
  }

  // ---- parts of k ----

  __device__ __forceinline__ Turnstile turnstile(const Item& item) const {
    return {params_.turnstile.turns + item.place * static_cast<int>(Output::kWarps) + static_cast<int>(warp_),
            item.part};
  }
  /// The layout is [4 columns][128 rows][4], so that neighbouring lanes access neighbouring words.
  __device__ __forceinline__ void exchange(Chunk& own, const Item& item, int chunk) const {
    const int64_t first = static_cast<int64_t>(item.place) * (kColumns / 4) + chunk * (kChunk / 4);
    const int row = static_cast<int>(warp_) * kWarpRows + static_cast<int>(lane_);
    turnstile(item).exchange(own, params_.turnstile.partials + (first * kRows + row) * 4, kRows * 4);
  }

  // ---- results ----

  /// Of the two halves of an item, the first one's results wait in shared memory, in the slabs that TMA would store
  /// from. Each lane keeps its own row there.
  template <class Run>
  __device__ __forceinline__ void finish_half(Run& run, const Item& item, int row) const {
    static_assert(kHalves == 1 || kStages * contract::kBlackwellGemmStoreSlabBytes == kColumns / 2 * 32 * 4,
                  "room for half of the columns of d, f32");
    const uint32_t parked = shared_.output(warp_, 0) + lane_ * 4;
    if (item.column / kColumns % 2 == 0)
      run.park(parked);
    else
      run.store_both(params_, item, row, column_of_d(item.column - kColumns), parked);
  }
  static_assert(!spec::kQuantizes || (!spec::kSwapAb && kColumns * kHalves % (kGated ? 256 : 128) == 0),
                "a thread has all columns of d that share a scale, and whole words of scales");
  /// Of queries, keys and values. A template, so that other kernels do not compile it.
  template <class Params>
  __device__ __forceinline__ void put_heads(const Chunk& values, int chunk, const Item& item) const {
    WrittenHeads<Params, kChunk>(params_, shared_, warp_, lane_)
        .put(values, {chunk, item.row + static_cast<int>(warp_) * kWarpRows, item.column + chunk * kChunk});
  }

  /// Writes to shared memory, from where TMA stores. Rows and columns past the end are not stored. `to`: copy_slab().
  __device__ __forceinline__ void put(const Chunk& values, int chunk, const Item& item, int to) {
    if constexpr (!spec::kScatter) {
      if (lane_ == 0) ptx::cp_async_bulk_wait_group_read<kStages - 1>();
    }
    __syncwarp();
    const uint32_t slab = shared_.output(warp_, stage_);
    stage_ = stage_ + 1 == kStages ? 0 : stage_ + 1;
    Slab::put(slab, kGated && spec::kSwapAb ? lane_of_gates(lane_) : lane_,
              reinterpret_cast<const float(&)[kResults]>(values));
    if constexpr (kGrouped) {
      if (copies(slab, chunk, item, to)) return;
    }
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (lane_ == 0) {
      const int row = item.row + static_cast<int>(warp_) * kWarpRows, column = item.column + chunk * kChunk;
      const int x = (spec::kSwapAb ? row : column) / (kGated ? 2 : 1), y = spec::kSwapAb ? column : row;
      if constexpr (kStacked)
        ptx::cp_async_bulk_tensor_3d_store(params_.d, x, y, group_of(item), slab);
      else
        ptx::cp_async_bulk_tensor_2d_store(params_.d, x, y, slab);
      ptx::cp_async_bulk_commit_group();
    }
  }

  /// Where a lane of swapped gates and ups begins in its slab, whose rows have 16 columns of d. Lanes of gates have the
  /// even rows, and lanes of ups the odd ones.
  __device__ __forceinline__ static uint32_t lane_of_gates(uint32_t lane) {
    return lane % 8 + lane / 16 * 8 + lane / 8 % 2 * 16;
  }
  /// Lanes copy a slab at a group's end, and the result is true: what lies behind the group's rows is not this tile's
  /// to write. They copy every slab whose rows are scattered.
  __device__ __forceinline__ bool copies(uint32_t slab, int chunk, const Item& item, int to) const {
    const int row = item.row + static_cast<int>(warp_) * kWarpRows, column = item.column + chunk * kChunk;
    const int last = spec::kSwapAb ? column + kChunk : row + kWarpRows;
    const int end = spec::kSwapAb ? columns_end(params_, item) : rows_end(params_, item);
    if (!spec::kScatter && last <= end) return false;  // of all lanes alike
    __syncwarp();
    copy_slab(params_, slab, row, column, item, lane_, to);
    if (!spec::kScatter && lane_ == 0) ptx::cp_async_bulk_commit_group();  // of nothing: slabs are counted
    return true;
  }

  const EntryParams& params_;
  const Shared& shared_;
  const AnyWork& work_;
  const uint32_t rank_, warp_, lane_;
  pipeline::OutputConsumer<Output> output_;
  uint32_t stage_ = 0;  // of the next slab
};

}  // namespace
}  // namespace kernelwright

/// The end of a tile of gemm_sm90: parts of k are added up, and results go to memory.
#pragma once

#include "kernels/gemm/gemm_quantize.cuh"
#include "kernels/gemm/sm90/gemm_sm90_blocks.cuh"
#include "kernels/gemm/sm90/gemm_sm90_epilogue.cuh"
#include "kernels/gemm/sm90/gemm_sm90_exchange.cuh"
#include "kernels/gemm/sm90/gemm_sm90_slabs.cuh"
#include "kernels/gemm/sm90/gemm_sm90_statistics.cuh"
#include "kernels/gemm/sm90/gemm_sm90_swapped_scales.cuh"
#include "kernels/gemm/sm90/gemm_sm90_tiles.cuh"
#include "policy/turnstile.cuh"
#include "ptx/memory.cuh"
#include "ptx/tma.cuh"
#include "tile/output_slab.cuh"

namespace kernelwright {
namespace {

using Exchange = PartsExchange<kUnitColumns, !kSwapsScales>;

/// A warpgroup's view of a tile's end.
class TileStore : WarpSlabs {
 public:
  __device__ __forceinline__ TileStore(const EntryParams& params, uint32_t base, uint32_t warpgroup)
      : WarpSlabs(params, base, warpgroup), base_(base), warpgroup_(warpgroup) {}

  /// For a part that takes turns, number `part` at tile `tile`: adds the parts before it to `sums`. If a next part
  /// exists, the sums are left for it, and the result is false: the next part goes on with the tile.
  __device__ __forceinline__ bool take_turn(Sums& sums, int tile, int part) const {
    const int warp = static_cast<int>(warpgroup_ * 4 + warp_), thread = warp * 32 + static_cast<int>(lane_);
    constexpr int kCount = kWaves * spec::kBlockN / 2, kStep = 4 * 32 * kMathWarps;
    const policy::Turnstile<kParts> turnstile(params_.turnstile.turns + tile * kMathWarps + warp, part);
    turnstile.wait();
    turnstile.exchange(reinterpret_cast<float(&)[kCount]>(sums),
                       params_.turnstile.partials + int64_t{tile} * (kCount / 4 * kStep) + thread * 4, kStep);
    turnstile.pass();
    return turnstile.is_last();
  }

  /// `tile`: the warpgroup's part of the tile. `any`: whether a product was made at all.
  __device__ __forceinline__ void operator()(Sums& sums, const Tile& tile, bool any) const {
    if constexpr (kTileCtas > 1)
      Exchange(base_, warpgroup_ * 4 + warp_, lane_).exchange_and_store(sums, any, [&](auto band) {
        store_columns<decltype(band)::kFirst, decltype(band)::kCount>(sums, tile);
      });
    else
      store_columns<0, spec::kBlockN>(sums, tile);
  }
  /// Whether `pieces` equal pieces of a tile can be stored one by one: results are made of sums alone, and TMA stores
  /// them.
  static constexpr bool stores_in_pieces(int pieces) {
    return kTileCtas == 1 && kNeedsSumsAlone && !kMakesBlocks && (!(kScalesColumns && kGated) || kHalves > 1) &&
           !kSwapsScales && !kMeasures && !spec::kRstd && !spec::kWritesKv && !spec::kScatter &&
           ((pieces == 1 && !kScalesColumns) || kWaves * spec::kBlockN / pieces % kUnitColumns == 0);
  }
  /// Stores piece `piece` of kPieces: pieces of a wave follow each other, and waves do. Called for all in order.
  template <int kPieces>
  __device__ __forceinline__ void store_piece(const Sums& sums, const Tile& tile, int piece) const {
    static_assert(stores_in_pieces(kPieces));
    constexpr int kSlabs = kWaves * ((spec::kBlockN + kStoreColumns - 1) / kStoreColumns);
    if constexpr (kHalves > 1)
      store_half(sums[0], tile);
    else if constexpr (kScalesColumns)
      store_quantized<0, spec::kBlockN, kPieces>(sums, tile, piece);
    else if constexpr (kPieces == 1 && kWaves == 1 && kSlabs <= spec::kStoreStages)
      store_at_once<kSlabs>(sums[0], tile);
    else
      store<0, spec::kBlockN, kPieces>(sums, tile, piece);
  }
  /// Waits until TMA has read shared memory, which must not go before that.
  __device__ __forceinline__ void finish() const {
    if (lane_ == 0) ptx::cp_async_bulk_wait_group_read<0>();
  }

 private:
  template <int kFirst, int kCount>
  __device__ __forceinline__ void store_columns(const Sums& sums, const Tile& tile) const {
    with_statistics<EntryParams, kFirst, kCount>(params_, sums, tile, warp_, lane_, [&](const Sums& values) {
      constexpr int kOwnSlabs = kPingPong ? 4 * spec::kStoreStages : 0;  // of a warpgroup, where tiles are its own
      if constexpr (spec::kWritesKv)
        WrittenHeads<EntryParams, kFirst, kCount>(params_, base_ + kLayout.output, warpgroup_).store(values, tile);
      else if constexpr (kMakesBlocks)
        store_blocks<EntryParams, kFirst, kCount>(params_, values, tile, warp_, lane_);
      else if constexpr (kHalves > 1)
        store_half(values[0], tile);
      else if constexpr (kScalesColumns)
        store_quantized<kFirst, kCount>(values, tile);
      else if constexpr (kSwapsScales)
        SwappedScales<EntryParams, kFirst, kCount>(
            params_, base_ + kLayout.output + warpgroup_ * kOwnSlabs * contract::kGemmStoreSlabBytes, warpgroup_)
            .store(values, tile);
      else
        store<kFirst, kCount>(values, tile);
    });
  }

  /// Stores the scales of a thread's two rows, of results from column `column` of the tile on. `factors`: the thread's
  /// largest magnitudes, and then what results are multiplied by. `first`: the warp's first row.
  template <int kRows>
  __device__ __forceinline__ void store_scales(float (&factors)[kRows], const Tile& tile, int first, int column) const {
    const int row = first + static_cast<int>(lane_ / 4);
    const ScaleRows scales(params_, column_of_d(0, params_.n), tile.group, params_.groups.capacity);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float scale = scale_of(largest_of_quad(factors[r]));
      factors[r] = factor_of(scale);
      scales.store(row + 8 * r, column_of_d(0, column), scale,
                   lane_ % 4 == 0 && row + 8 * r < tile.row_end && column < tile.column_end);
    }
  }

  /// Stores columns [kFirst, kFirst + kCount) of the tile. Each warp works alone: it writes 16 rows and a slab's
  /// columns at a time to shared memory, from where TMA stores them. Rows and columns past the end are not stored.
  /// With kPieces, only piece `piece` of them.
  template <int kFirst, int kCount, int kPieces = 1>
  __device__ __forceinline__ void store(const Sums& sums, const Tile& tile, int piece = 0) const {
    constexpr int kFirstChunk = kFirst / kStoreColumns, kChunks = (kCount + kStoreColumns - 1) / kStoreColumns;
    // The addends of the next slab load while this one is stored, if registers allow.
    constexpr int kRegisters = kWaves * spec::kBlockN / 2 + 2 * static_cast<int>(sizeof(Addends<kStoreColumns>) / 4);
    constexpr int kAhead = !kPlainSums && kRegisters <= 200 && (kTileCtas == 1 || kWaves == 1) ? 1 : 0;
    Addends<kStoreColumns> addends[kAhead + 1];
    Places places;
    const auto load = [&](int number) {
      if constexpr (!kPlainSums)
        load_addends(addends[number % (kAhead + 1)], tile, number / kChunks, kFirstChunk + number % kChunks);
    };
    if constexpr (kAhead > 0) load(0);
#pragma unroll
    for (int wave = 0; wave < kWaves; ++wave)
#pragma unroll
      for (int chunk = kFirstChunk; chunk < kFirstChunk + kChunks; ++chunk) {
        const int number = wave * kChunks + chunk - kFirstChunk;
        if (number / (kWaves * kChunks / kPieces) != piece) continue;
        if (number + kAhead < kWaves * kChunks) load(number + kAhead);
        wait_for_slab<kWaves * kChunks>(number);
        const uint32_t slab = slab_of(number);
        const bool whole = chunk < spec::kBlockN / kStoreColumns;
        if (whole)
          put<kStoreColumns>(slab, sums[wave], chunk, addends[number % (kAhead + 1)]);
        else
          put<kTailColumns>(slab, sums[wave], chunk, addends[number % (kAhead + 1)]);
        const int row = first_row(tile, wave), column = tile.column + chunk * kStoreColumns;
        if constexpr (spec::kScatter) {  // all slabs of some rows of the tile have the same rows of d
          if (spec::kSwapAb)
            places.look_up(params_, column, tile.column_end, lane_);
          else if (chunk == kFirstChunk)
            places.look_up(params_, row, tile.row_end, lane_);
        }
        send(slab, tile, row, column, whole, places);
      }
  }

  /// The same where shared memory has room for all slabs of the tile. They share a wait and a fence, which cost as much
  /// as the conversion of a slab. A template, so that other kernels do not compile it.
  template <int kSlabs>
  __device__ __forceinline__ void store_at_once(const float (&sums)[spec::kBlockN / 2], const Tile& tile) const {
    const int row = first_row(tile, 0);
    const bool inside = !kGrouped || ptx::uniform(row + kRowsOfWarp > tile.row_end) == 0;
    if (lane_ == 0) ptx::cp_async_bulk_wait_group_read<0>();
    __syncwarp();
#pragma unroll
    for (int chunk = 0; chunk < kSlabs; ++chunk) {
      if (is_whole(chunk))
        put<kStoreColumns>(slab_of(chunk), sums, chunk, {});
      else
        put<kTailColumns>(slab_of(chunk), sums, chunk, {});
    }
    if (inside) ptx::fence_proxy_async_shared();
    __syncwarp();
#pragma unroll
    for (int chunk = 0; chunk < kSlabs; ++chunk) {
      const int column = tile.column + chunk * kStoreColumns;
      if (inside) {
        if (lane_ == 0) send_by_tma(slab_of(chunk), tile, row, column, is_whole(chunk));
      } else if (is_whole(chunk)) {
        copy_rows<kStoreColumns>(slab_of(chunk), row, column, tile, {});
      } else {
        copy_rows<kTailColumns>(slab_of(chunk), row, column, tile, {});
      }
    }
    if (lane_ == 0) ptx::cp_async_bulk_commit_group();
  }
  /// Whether slab `chunk` of a wave is no shorter one at the end of the tile.
  __device__ __forceinline__ static constexpr bool is_whole(int chunk) { return chunk < spec::kBlockN / kStoreColumns; }

  /// The same of results that are quantised. All results that share scales are made before the first one is stored: a
  /// thread has some of two rows, and four lanes have the rest of them.
  template <int kFirst, int kCount, int kPieces = 1>
  __device__ __forceinline__ void store_quantized(const Sums& sums, const Tile& tile, int piece = 0) const {
    constexpr int kFirstChunk = kFirst / kStoreColumns, kChunks = kCount / kStoreColumns;
    constexpr int kTogether = kUnitColumns / kStoreColumns;  // slabs
    static_assert(kCount % kUnitColumns == 0 && kTogether * kStoreColumns == kUnitColumns, "whole scales, whole slabs");
#pragma unroll
    for (int wave = 0; wave < kWaves; ++wave)
#pragma unroll
      for (int first = kFirstChunk; first < kFirstChunk + kChunks; first += kTogether) {
        if ((wave * kChunks + first - kFirstChunk) / (kWaves * kChunks / kPieces) != piece) continue;
        float values[kTogether][kStoreColumns / (kGated ? 4 : 2)], factors[2] = {};
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          Addends<kStoreColumns> addends;
          if constexpr (!kPlainSums) load_addends(addends, tile, wave, first + i);
          finish_slab<kStoreColumns>(params_, values[i], slab_sums<kStoreColumns>(sums[wave], first + i), addends);
          add_magnitudes(factors, values[i]);
        }
        const int column = tile.column + first * kStoreColumns;
        store_scales(factors, tile, first_row(tile, wave), column);
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          const int number = wave * kChunks + first + i - kFirstChunk;
          wait_for_slab<kWaves * kChunks>(number);
          float scaled[kStoreColumns / (kGated ? 4 : 2)];
#pragma unroll
          for (int j = 0; j < kStoreColumns / (kGated ? 4 : 2); ++j) scaled[j] = values[i][j] * factors[j / 2 % 2];
          Slab<kStoreColumns>::put(slab_of(number), lane_, scaled);
          send(slab_of(number), tile, first_row(tile, wave), column + i * kStoreColumns, true);
        }
      }
  }

  /// The same where a tile has half of the results that share a scale. The CTA's next tile has the other half. Results
  /// of the first half stay in the warp's slabs, in f32, until the second half's largest magnitudes are known.
  template <int kCount>
  __device__ __forceinline__ void store_half(const float (&sums)[kCount], const Tile& tile) const {
    constexpr int kValues = kCount / 2;  // of a thread
    static_assert(kWaves == 1 && kStoreColumns == spec::kBlockN &&
                  kValues * 32 * sizeof(float) == spec::kStoreStages * contract::kGemmStoreSlabBytes);
    float halves[2][kValues];
    finish_slab<kStoreColumns>(params_, halves[1], sums, Addends<kStoreColumns>{});
    const uint32_t kept = output_ + lane_ * 16;
    if (tile.column / spec::kBlockN % 2 == 0) {
      if (lane_ == 0) ptx::cp_async_bulk_wait_group_read<0>();
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kValues; i += 4)
        ptx::st_shared_v4(kept + i * 128, {{__float_as_uint(halves[1][i]), __float_as_uint(halves[1][i + 1]),
                                            __float_as_uint(halves[1][i + 2]), __float_as_uint(halves[1][i + 3])}});
      return;
    }
#pragma unroll
    for (int i = 0; i < kValues; i += 4) {
      const ptx::Vector16 some = ptx::ld_shared_v4(kept + i * 128);
#pragma unroll
      for (int j = 0; j < 4; ++j) halves[0][i + j] = __uint_as_float(some.word[j]);
    }
    __syncwarp();  // all lanes have read what slabs overwrite
    float factors[2] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) add_magnitudes(factors, halves[half]);
    const int column = tile.column - spec::kBlockN;
    store_scales(factors, tile, first_row(tile, 0), column);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < kValues; ++i) halves[half][i] *= factors[i / 2 % 2];
      Slab<kStoreColumns>::put(slab_of(half), lane_, halves[half]);
      send(slab_of(half), tile, first_row(tile, 0), column + half * spec::kBlockN, true);
    }
  }

  __device__ __forceinline__ void load_addends(Addends<kStoreColumns>& addends, const Tile& tile, int wave,
                                               int chunk) const {
    const int first = first_row(tile, wave), column = tile.column + chunk * kStoreColumns;
    if (chunk < spec::kBlockN / kStoreColumns)
      addends.template load<kStoreColumns>(params_, tile, first, column, lane_);
    else
      addends.template load<kTailColumns>(params_, tile, first, column, lane_);
  }
  /// A tile's last columns, if they are not a whole slab, have a box of their own: a whole slab's box would reach into
  /// the next tile.
  template <int kColumns>
  __device__ __forceinline__ void put(uint32_t slab, const float (&sums)[spec::kBlockN / 2], int chunk,
                                      const Addends<kStoreColumns>& addends) const {
    if constexpr (kColumns > 0 && kPlainSums) {
      Slab<kColumns>::put(slab, lane_, slab_sums<kColumns>(sums, chunk));
    } else if constexpr (kColumns > 0) {
      float values[kColumns / (kGated ? 4 : 2)];  // ptxas makes wgmma wait (C7515) if others write accumulators
      finish_slab<kColumns>(params_, values, slab_sums<kColumns>(sums, chunk), addends);
      Slab<kColumns>::put(slab, lane_, values);
    }
  }

  const uint32_t base_, warpgroup_;
};

}  // namespace
}  // namespace kernelwright

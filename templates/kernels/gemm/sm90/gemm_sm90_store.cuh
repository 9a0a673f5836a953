/// The end of a tile of gemm_sm90: parts of k are added up, and results go to memory.
#pragma once

#include "kernels/gemm/gemm_quantize.cuh"
#include "kernels/gemm/sm90/gemm_sm90_blocks.cuh"
#include "kernels/gemm/sm90/gemm_sm90_epilogue.cuh"
#include "kernels/gemm/sm90/gemm_sm90_exchange.cuh"
#include "kernels/gemm/sm90/gemm_sm90_scatter.cuh"
#include "kernels/gemm/sm90/gemm_sm90_statistics.cuh"
#include "kernels/gemm/sm90/gemm_sm90_swapped_scales.cuh"
#include "kernels/gemm/sm90/gemm_sm90_tiles.cuh"
#include "policy/turnstile.cuh"
#include "ptx/memory.cuh"
#include "ptx/tma.cuh"
#include "tile/output_slab.cuh"

namespace kernelwright {
namespace {

constexpr bool kHalvesColumns = kGated && !spec::kSwapAb, kHalvesRows = kGated && spec::kSwapAb;
constexpr int kStoreColumns = contract::gemm_store_columns(tile::kBytesOf<stored_dtype()>, kHalvesColumns);
constexpr int kTailColumns = spec::kBlockN % kStoreColumns;

// Columns of the tile that are stored together: a slab, a head, or those that share a scale or a sum of squares. With
// swap_ab, columns of the tile are rows of d, and any eight of them.
enum : int {
  kUnitColumns = kScalesColumns || kMeasures ? contract::kGemmScaledColumns * (kGated ? 2 : 1)
                 : kSwapsScales              ? 8
                 : spec::kWritesKv           ? (spec::kSwapAb ? 8 : spec::kHeadDimQk)
                                             : kStoreColumns
};
static_assert(!kScalesColumns || spec::kBlockN % kUnitColumns == 0, "whole scales");

using Exchange = PartsExchange<kUnitColumns, !kSwapsScales>;

/// A warpgroup's view of a tile's end.
class TileStore {
 public:
  __device__ __forceinline__ TileStore(const EntryParams& params, uint32_t base, uint32_t warpgroup)
      : params_(params),
        base_(base),
        warpgroup_(warpgroup),
        warp_(threadIdx.x / 32 % 4),
        lane_(threadIdx.x % 32),
        output_(base + kLayout.output + (warpgroup * 4 + warp_) * spec::kStoreStages * contract::kGemmStoreSlabBytes) {}

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
    return kTileCtas == 1 && kNeedsSumsAlone && !kMakesBlocks && !(kScalesColumns && kGated) && !kSwapsScales &&
           !kMeasures && !spec::kRstd && !spec::kWritesKv && !spec::kScatter &&
           ((pieces == 1 && !kScalesColumns) || kWaves * spec::kBlockN / pieces % kUnitColumns == 0);
  }
  /// Stores piece `piece` of kPieces: pieces of a wave follow each other, and waves do. Called for all in order.
  template <int kPieces>
  __device__ __forceinline__ void store_piece(const Sums& sums, const Tile& tile, int piece) const {
    static_assert(stores_in_pieces(kPieces));
    constexpr int kSlabs = kWaves * ((spec::kBlockN + kStoreColumns - 1) / kStoreColumns);
    if constexpr (kScalesColumns)
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
  // ---- slabs: what a warp stores at once ----

  using Places = ScatteredRows<spec::kSwapAb ? kStoreColumns : contract::kGemmStoreRows>;  // of a slab

  template <int kFirst, int kCount>
  __device__ __forceinline__ void store_columns(const Sums& sums, const Tile& tile) const {
    with_statistics<EntryParams, kFirst, kCount>(params_, sums, tile, warp_, lane_, [&](const Sums& values) {
      constexpr int kOwnSlabs = kPingPong ? 4 * spec::kStoreStages : 0;  // of a warpgroup, where tiles are its own
      if constexpr (spec::kWritesKv)
        WrittenHeads<EntryParams, kFirst, kCount>(params_, base_ + kLayout.output, warpgroup_).store(values, tile);
      else if constexpr (kMakesBlocks)
        store_blocks<EntryParams, kFirst, kCount>(params_, values, tile, warp_, lane_);
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
        const int row = first_row(tile, wave) + static_cast<int>(lane_ / 4);
        const int column = tile.column + first * kStoreColumns;
        const ScaleRows scales(params_, column_of_d(0, params_.n), tile.group, params_.groups.capacity);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float scale = scale_of(largest_of_quad(factors[r]));
          factors[r] = factor_of(scale);
          scales.store(row + 8 * r, column_of_d(0, column), scale,
                       lane_ % 4 == 0 && row + 8 * r < tile.row_end && column < tile.column_end);
        }
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

  __device__ __forceinline__ uint32_t slab_of(int number) const {
    return output_ + number % spec::kStoreStages * contract::kGemmStoreSlabBytes;
  }
  /// Waits until TMA has read what slab `number` of kSlabs of the tile's overwrites.
  template <int kSlabs>
  __device__ __forceinline__ void wait_for_slab(int number) const {
    constexpr int kStages = spec::kStoreStages;
    // A tile begins with the first stage. If the last tile had an odd number of slabs, that stage was its last one
    // too.
    constexpr bool kEven = kSlabs % kStages == 0;
    // Where a CTA has one tile, no earlier store uses the stages of its first slabs.
    if constexpr (spec::kScatter) {
      __syncwarp();  // all lanes have copied their rows of it
    } else if (kParts == 1 || number >= kStages) {
      if (lane_ == 0) {
        if (number > 0 || kEven)
          ptx::cp_async_bulk_wait_group_read<kStages - 1>();
        else
          ptx::cp_async_bulk_wait_group_read<0>();
      }
      __syncwarp();
    }
  }
  /// Stores a slab that the warp has written to shared memory. `row` and `column` of the tile are its first. `whole`:
  /// it is no shorter one at the end of the tile.
  __device__ __forceinline__ void send(uint32_t slab, const Tile& tile, int row, int column, bool whole,
                                       const Places& places = {}) const {
    if constexpr (spec::kScatter) {
      __syncwarp();
      if (whole)
        copy_rows<kStoreColumns>(slab, row, column, tile, places);
      else
        copy_rows<kTailColumns>(slab, row, column, tile, places);
      return;
    }
    if constexpr (kGrouped && !kSwapsScales) {
      // What lies behind the group's rows is not this tile's to write.
      const int last = spec::kSwapAb ? column + (whole ? kStoreColumns : kTailColumns) : row + kRowsOfWarp;
      if (ptx::uniform(last > (spec::kSwapAb ? tile.column_end : tile.row_end)) != 0) {
        __syncwarp();
        if (whole)
          copy_rows<kStoreColumns>(slab, row, column, tile, places);
        else
          copy_rows<kTailColumns>(slab, row, column, tile, places);
        if (lane_ == 0) ptx::cp_async_bulk_commit_group();  // of nothing: slabs are counted
        return;
      }
    }
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (lane_ == 0) {
      send_by_tma(slab, tile, row, column, whole);
      ptx::cp_async_bulk_commit_group();
    }
  }
  /// Called by one lane, which commits the group.
  __device__ __forceinline__ void send_by_tma(uint32_t slab, const Tile& tile, int row, int column, bool whole) const {
    if constexpr (kStacked)
      ptx::cp_async_bulk_tensor_3d_store(whole ? params_.d : params_.d_tail, column_of_d(row, column),
                                         spec::kSwapAb ? column : row, tile.group, slab);
    else
      ptx::cp_async_bulk_tensor_2d_store(whole ? params_.d : params_.d_tail, column_of_d(row, column),
                                         spec::kSwapAb ? column : row, slab);
  }

  static constexpr int kRowsOfWarp = contract::kGemmStoreRows;
  /// The column of d that `row` and `column` of the tile begin.
  __device__ __forceinline__ static int column_of_d(int row, int column) {
    return (spec::kSwapAb ? row : column) / (kGated ? 2 : 1);
  }
  /// The first of the warp's rows of a wave.
  __device__ __forceinline__ int first_row(const Tile& tile, int wave) const {
    return tile.row + wave * 64 + static_cast<int>(warp_) * kRowsOfWarp;
  }
  __device__ __forceinline__ void load_addends(Addends<kStoreColumns>& addends, const Tile& tile, int wave,
                                               int chunk) const {
    const int first = first_row(tile, wave), column = tile.column + chunk * kStoreColumns;
    if (chunk < spec::kBlockN / kStoreColumns)
      addends.template load<kStoreColumns>(params_, tile, first, column, lane_);
    else
      addends.template load<kTailColumns>(params_, tile, first, column, lane_);
  }
  /// Stores what the group has of a slab of kColumns columns of the tile, 16 bytes at a time.
  template <int kColumns>
  __device__ __forceinline__ void copy_rows(uint32_t slab, int row, int column, const Tile& tile,
                                            const Places& places) const {
    if constexpr (kColumns > 0) {
      constexpr int kBytes = tile::kBytesOf<stored_dtype()>, kOfPiece = contract::kPieceBytes / kBytes;
      constexpr contract::GemmStoreBox kBox = contract::gemm_store_box(kBytes, spec::kSwapAb, kColumns, kGated);
      constexpr int kPieces = kBox.columns / kOfPiece;  // of a row of d
      static_assert(kPieces * kOfPiece == kBox.columns, "whole pieces");
      // Rows and columns of d.
      const int first = spec::kSwapAb ? column : row, left = column_of_d(row, column);
      const int end = spec::kSwapAb ? tile.column_end : tile.row_end;
      const int right = column_of_d(tile.row_end, tile.column_end);
      unsigned char* const d = static_cast<unsigned char*>(params_.groups.d);
      // No lane leaves the others: else ptxas would keep what is the same in all lanes, slots and descriptors, in
      // registers of each lane. A loop over slabs of fp8 would have 150 more instructions.
      // Every slab comes here where rows are scattered: unrolled, tiles of many sums would spill registers.
      constexpr int kUnroll = spec::kScatter ? 2 : 32;
#pragma unroll kUnroll
      for (int step = 0; step < (kBox.rows * kPieces + 31) / 32; ++step) {
        const int i = step * 32 + static_cast<int>(lane_), at = i / kPieces, piece = i % kPieces;
        const uint32_t swizzled =
            kBox.swizzle_bytes == 0 ? piece : piece ^ contract::swizzle_of_row(at, kBox.swizzle_bytes);
        const int to = places.of(at, first);
        const bool exists = at < kBox.rows && first + at < end && to >= 0 && left + piece * kOfPiece < right;
        const ptx::Vector16 value = ptx::ld_shared_v4(
            slab + (exists ? (at * kPieces + swizzled) * static_cast<uint32_t>(contract::kPieceBytes) : 0));
        ptx::st_global_v4_if(d + (to * params_.groups.d_stride + left + piece * kOfPiece) * kBytes, value, exists);
      }
    }
  }
  template <int kColumns>
  using Slab =
      tile::OutputSlab<spec::kDDType, spec::kSwapAb, kHalvesColumns ? kColumns / 2 : kColumns, kHalvesRows ? 8 : 16>;
  /// The sums of a slab.
  template <int kColumns>
  __device__ __forceinline__ static const float (&slab_sums(const float (&sums)[spec::kBlockN / 2],
                                                            int chunk))[kColumns / 2] {
    return reinterpret_cast<const float(&)[kColumns / 2]>(sums[chunk * (kStoreColumns / 2)]);
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

  const EntryParams& params_;
  const uint32_t base_, warpgroup_, warp_, lane_, output_;
};

}  // namespace
}  // namespace kernelwright

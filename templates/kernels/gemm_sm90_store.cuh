/// The end of a tile of gemm_sm90: parts of k are added, and results go to memory.
#pragma once

#include "kernels/gemm_sm90_tiles.cuh"
#include "ptx/memory.cuh"
#include "ptx/tma.cuh"
#include "tile/staged_store.cuh"

namespace kernelwright {
namespace {

using Sums = float[kWaves][spec::kBlockN / 2];  // of a thread: accumulators of wgmma, 64 rows each

/// A warpgroup's view of a tile's end.
class TileStore {
 public:
  __device__ __forceinline__ TileStore(const GemmParams& params, uint32_t base, uint32_t warpgroup)
      : params_(params),
        base_(base),
        warpgroup_(warpgroup),
        warp_(threadIdx.x / 32 % 4),
        lane_(threadIdx.x % 32),
        output_(base + kLayout.output + (warpgroup * 4 + warp_) * spec::kStoreStages * contract::kGemmStoreSlabBytes) {}

  /// `row`, `column`: of the warpgroup's part of the tile. `any`: whether a product was made at all.
  __device__ __forceinline__ void operator()(Sums& sums, int row, int column, bool any) const {
    if constexpr (kParts > 1)
      exchange_and_store(sums, row, column, any);
    else
      store<0, spec::kBlockN>(sums, row, column);
  }
  /// Shared memory outlives what is read of it.
  __device__ __forceinline__ void finish() const {
    if (lane_ == 0) ptx::cp_async_bulk_wait_group_read<0>();
  }

 private:
  // ---- parts of k: a CTA has one tile, so that the ring is free at its end ----

  static constexpr int kBandPieces = kWaves * kBand / 2 / 4, kMathThreads = 32 * kMathWarps;
  static_assert(kParts == 1 || kParts * kBandPieces * kMathThreads * 16 <= kLayout.output,
                "what the ring has room for");
  /// Where CTA `from` puts piece i, 16 bytes, of its sums in another CTA's band, for the thread there that is this one.
  __device__ __forceinline__ uint32_t staged(int from, int i) const {
    const uint32_t thread = warpgroup_ * 128 + threadIdx.x % 128;
    return base_ + (static_cast<uint32_t>(from * kBandPieces + i) * kMathThreads + thread) * 16;
  }
  template <int kWhich>
  __device__ __forceinline__ static float (&piece(Sums& sums, int i))[4] {
    constexpr int kOfWave = kBand / 2;
    return reinterpret_cast<float(&)[4]>(sums[i * 4 / kOfWave][kWhich * kOfWave + i * 4 % kOfWave]);
  }

  __device__ __forceinline__ void exchange_and_store(Sums& sums, int row, int column, bool any) const {
    const int rank = static_cast<int>(ptx::cluster_ctarank());
    if (!any) {
#pragma unroll
      for (int wave = 0; wave < kWaves; ++wave)
#pragma unroll
        for (float& sum : sums[wave]) sum = 0;
    }
    sync_cluster();  // all products have read their rings
    send<0>(sums, rank);
    sync_cluster();
    add_and_store<0>(sums, rank, row, column);
  }
  __device__ __forceinline__ static void sync_cluster() {
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
  }
  template <int kWhich>
  __device__ __forceinline__ void send(Sums& sums, int rank) const {
    if (kWhich != rank) {
#pragma unroll
      for (int i = 0; i < kBandPieces; ++i) ptx::st_shared_cluster_v4(staged(rank, i), kWhich, piece<kWhich>(sums, i));
    }
    if constexpr (kWhich + 1 < kParts) send<kWhich + 1>(sums, rank);
  }
  /// In the order of k, whoever adds.
  template <int kWhich>
  __device__ __forceinline__ void add_and_store(Sums& sums, int rank, int row, int column) const {
    if (kWhich == rank) {
#pragma unroll
      for (int i = 0; i < kBandPieces; ++i) {
        float(&own)[4] = piece<kWhich>(sums, i);
        float sum[4];
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          float value[4];
          if (part == kWhich)
            for (int j = 0; j < 4; ++j) value[j] = own[j];
          else
            ptx::ld_shared_v4_f32(staged(part, i), value);
#pragma unroll
          for (int j = 0; j < 4; ++j) sum[j] = part == 0 ? value[j] : sum[j] + value[j];
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) own[j] = sum[j];
      }
      store<kWhich * kBand, kBand>(sums, row, column);
    }
    if constexpr (kWhich + 1 < kParts) add_and_store<kWhich + 1>(sums, rank, row, column);
  }

  /// Columns [kFirst, kFirst + kCount) of the tile, each warp for itself: 16 rows and 64 columns at a time to shared
  /// memory, from where TMA stores them; rows and columns past the end are not stored.
  template <int kFirst, int kCount>
  __device__ __forceinline__ void store(const Sums& sums, int row, int column) const {
    constexpr int kFirstChunk = kFirst / kSlab, kChunks = (kCount + kSlab - 1) / kSlab;
#pragma unroll
    for (int wave = 0; wave < kWaves; ++wave)
#pragma unroll
      for (int chunk = kFirstChunk; chunk < kFirstChunk + kChunks; ++chunk) {
        constexpr int kStages = spec::kStoreStages;
        const int number = wave * kChunks + chunk;
        if (lane_ == 0) ptx::cp_async_bulk_wait_group_read<kStages - 1>();
        __syncwarp();
        const uint32_t slab = output_ + number % kStages * contract::kGemmStoreSlabBytes;
        const bool whole = chunk < spec::kBlockN / kSlab;
        if (whole)
          put(slab, sums[wave], chunk);
        else
          put_tail(slab, sums[wave]);
        ptx::fence_proxy_async_shared();
        __syncwarp();
        if (lane_ == 0) {
          ptx::cp_async_bulk_tensor_2d_store(whole ? params_.d : params_.d_tail, column + chunk * kSlab,
                                             row + wave * 64 + static_cast<int>(warp_) * 16, slab);
          ptx::cp_async_bulk_commit_group();
        }
      }
  }

  __device__ __forceinline__ void put(uint32_t slab, const float (&sums)[spec::kBlockN / 2], int chunk) const {
    const tile::StagedRows<spec::kDDType, kSlab, 0> rows(slab, lane_);
    rows.put(reinterpret_cast<const float(&)[kSlab / 2]>(sums[chunk * (kSlab / 2)]), 1.f, 1.f);
  }
  /// Columns past the last whole 64 of the tile: a box of their own, rows one behind the other. Stored as 64 they would
  /// reach into the next tile.
  __device__ __forceinline__ void put_tail(uint32_t slab, const float (&sums)[spec::kBlockN / 2]) const {
    constexpr int kColumns = spec::kBlockN % kSlab, kFirst = spec::kBlockN - kColumns;
    const uint32_t row = slab + lane_ % 16 * (kColumns * 2), half = lane_ / 16 * 16;
#pragma unroll
    for (int tile = 0; tile < kColumns / 8; tile += 2) {
      const float* const at = &sums[(kFirst + tile * 8) / 2];
      const auto word = [&](int i) { return tile::Element<spec::kDDType>::pack(at[2 * i], at[2 * i + 1]); };
      if (tile + 1 < kColumns / 8)
        ptx::stmatrix_x4(row + half + tile * 16, {word(0), word(1), word(2), word(3)});
      else
        ptx::stmatrix_x2(row + tile * 16, {word(0), word(1)});
    }
  }

  const GemmParams& params_;
  const uint32_t base_, warpgroup_, warp_, lane_, output_;
};

}  // namespace
}  // namespace kernelwright

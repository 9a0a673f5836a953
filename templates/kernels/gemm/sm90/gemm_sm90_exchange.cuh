/// Parts of k of gemm_sm90 in a cluster: CTAs exchange their sums through shared memory. Each CTA has one tile, so that
/// the ring is free at its end.
#pragma once

#include "kernels/gemm/sm90/gemm_sm90_tiles.cuh"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

/// A math thread's view. kUnitColumns: columns that are stored together. kInRows: whether rows can be stored apart.
template <int kUnitColumns, bool kInRows>
class PartsExchange {
  // A CTA adds up and stores a band of columns, whole slabs. Where the tile has too few columns, it is a band of rows,
  // of whole warps.
  static constexpr bool kOfRows = spec::kBlockN % (kTileCtas * kUnitColumns) != 0;
  static_assert(!kOfRows || (kMathWarps % kTileCtas == 0 && kInRows), "bands of whole slabs or of whole warps");
  static constexpr int kBandWarps = kOfRows ? kMathWarps / kTileCtas : kMathWarps;
  static constexpr int kBandColumns = kOfRows ? spec::kBlockN : spec::kBlockN / kTileCtas;
  static constexpr int kBandPieces = kWaves * kBandColumns / 2 / 4, kBandThreads = 32 * kBandWarps;
  static_assert(kTileCtas == 1 || kTileCtas * kBandPieces * kBandThreads * 16 <= kLayout.output,
                "what the ring has room for");

 public:
  /// Columns of the tile that a CTA stores.
  template <int kFirstColumn>
  struct Band {
    static constexpr int kFirst = kFirstColumn, kCount = kBandColumns;
  };

  /// `math_warp`: the warp's number among those that multiply.
  __device__ __forceinline__ PartsExchange(uint32_t base, uint32_t math_warp, uint32_t lane)
      : base_(base), math_warp_(math_warp), lane_(lane) {}

  /// Adds up all parts, and calls `store` with the Band that the CTA stores. `any`: whether a product was made at all.
  template <class Store>
  __device__ __forceinline__ void exchange_and_store(Sums& sums, bool any, const Store& store) const {
    const int rank = static_cast<int>(ptx::cluster_ctarank());
    if (!any) {
#pragma unroll
      for (int wave = 0; wave < kWaves; ++wave)
#pragma unroll
        for (float& sum : sums[wave]) sum = 0;
    }
    sync_cluster();  // all products have read their rings
    if constexpr (kOfRows) {
      const int owner = static_cast<int>(math_warp_) / kBandWarps;
      if (owner != rank) send<0>(sums, rank, owner);
      sync_cluster();
      if (owner == rank) finish<0>(sums, rank, store);
    } else {
      send_columns<0>(sums, rank);
      sync_cluster();
      finish_columns<0>(sums, rank, store);
    }
  }

 private:
  /// The place of piece i, 16 bytes, that CTA `from` writes to another CTA. The piece belongs to that CTA's band, and
  /// to the thread there that has this thread's number.
  __device__ __forceinline__ uint32_t staged(int from, int i) const {
    const uint32_t thread = math_warp_ % kBandWarps * 32 + lane_;
    return base_ + (static_cast<uint32_t>(from * kBandPieces + i) * kBandThreads + thread) * 16;
  }
  /// Piece i of the sums, of band kWhich of columns, or of band 0 of rows.
  template <int kWhich>
  __device__ __forceinline__ static float (&piece(Sums& sums, int i))[4] {
    constexpr int kOfWave = kBandColumns / 2;
    return reinterpret_cast<float(&)[4]>(sums[i * 4 / kOfWave][kWhich * kOfWave + i * 4 % kOfWave]);
  }

  __device__ __forceinline__ static void sync_cluster() {
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
  }
  template <int kWhich>
  __device__ __forceinline__ void send(Sums& sums, int rank, int owner) const {
#pragma unroll
    for (int i = 0; i < kBandPieces; ++i) ptx::st_shared_cluster_v4(staged(rank, i), owner, piece<kWhich>(sums, i));
  }
  template <int kWhich>
  __device__ __forceinline__ void send_columns(Sums& sums, int rank) const {
    if (kWhich != rank) send<kWhich>(sums, rank, kWhich);
    if constexpr (kWhich + 1 < kTileCtas) send_columns<kWhich + 1>(sums, rank);
  }
  /// Adds in the order of k, in whichever CTA. `own`: the number of this CTA's part.
  template <int kWhich, class Store>
  __device__ __forceinline__ void finish(Sums& sums, int own, const Store& store) const {
#pragma unroll
    for (int i = 0; i < kBandPieces; ++i) {
      float(&here)[4] = piece<kWhich>(sums, i);
      float sum[4];
#pragma unroll
      for (int part = 0; part < kTileCtas; ++part) {
        float value[4];
        if (part == own) {
#pragma unroll
          for (int j = 0; j < 4; ++j) value[j] = here[j];
        } else {
          ptx::ld_shared_v4_f32(staged(part, i), value);
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[j] = part == 0 ? value[j] : sum[j] + value[j];
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) here[j] = sum[j];
    }
    store(Band<kWhich * kBandColumns>{});
  }
  template <int kWhich, class Store>
  __device__ __forceinline__ void finish_columns(Sums& sums, int rank, const Store& store) const {
    if (kWhich == rank) finish<kWhich>(sums, kWhich, store);
    if constexpr (kWhich + 1 < kTileCtas) finish_columns<kWhich + 1>(sums, rank, store);
  }

  const uint32_t base_, math_warp_, lane_;
};

}  // namespace
}  // namespace kernelwright

/// D = A B^T in bf16 with f32 sums: TMA fills a ring of slots, two warpgroups multiply, persistent CTAs walk the tiles.
///
/// Warpgroup 0 loads (one thread of it), warpgroups 1 and 2 each own rows of the tile. A slot is full once its bytes
/// have landed, and empty once every consumer warp of the cluster has let go of it: the CTAs of a cluster work on tiles
/// one above the other, and each loads its share of their common tile of B for both.
#include "spec.h"

#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"

namespace kernelwright::test {

using namespace ptx;

namespace {

constexpr GemmVariant kVariant = spec::kVariant;
constexpr int kRows = kVariant.rows_per_warpgroup;
constexpr int kBlockM = 2 * kRows, kBlockN = kVariant.block_n;
constexpr int kBlockK = 64;  // 128 bytes of bf16: a row of the swizzle's atom
constexpr int kStages = kVariant.stages, kCluster = kVariant.cluster;
constexpr int kWaves = kRows / 64;  // wgmma are 64 rows high
constexpr int kConsumerWarps = 8;
constexpr uint32_t kABytes = kBlockM * 128, kBBytes = kBlockN * 128;
constexpr uint32_t kSlabBytes = 64 * 128;  // 64 columns of MN-major B for the slot's 64 k
constexpr uint32_t kStagedSlabBytes = kRows * 128;
// Registers: 168 for each of 384 threads at the launch, then 40 x 128 + 232 x 256.
constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;

static_assert(kCluster == 1 || !kVariant.b_mn_major || kBlockN % 128 == 0, "each CTA loads whole slabs of 64 columns");

struct Shared {
  uint32_t base;
  __device__ uint32_t a(uint32_t slot) const { return base + slot * kABytes; }
  __device__ uint32_t b(uint32_t slot) const { return base + kStages * kABytes + slot * kBBytes; }
  /// [block_n / 64][kRows][64] bf16 of one consumer warpgroup, each slab in swizzle 128B.
  __device__ uint32_t staging(uint32_t consumer) const {
    return base + gemm_ring_bytes(kVariant) + consumer * kRows * kBlockN * 2;
  }
  __device__ uint32_t full(uint32_t slot) const {
    return base + gemm_ring_bytes(kVariant) + gemm_staging_bytes(kVariant) + slot * 8;
  }
  __device__ uint32_t empty(uint32_t slot) const { return full(kStages + slot); }
};

/// One lap of the ring flips the parity that a wait looks for.
struct Cursor {
  uint32_t slot = 0, parity = 0;
  __device__ void advance() {
    if (++slot == kStages) {
      slot = 0;
      parity ^= 1;
    }
  }
};

/// The tiles of one CTA: neighbours in n follow each other, so that clusters in flight share rows of A.
struct Tiles {
  int tiles_n, count, stride, next;
  uint32_t rank;
  __device__ Tiles(const GemmParams& params, uint32_t cta_rank) : rank(cta_rank) {
    tiles_n = (params.n + kBlockN - 1) / kBlockN;
    count = tiles_n * ((params.m + kBlockM * kCluster - 1) / (kBlockM * kCluster));
    stride = static_cast<int>(gridDim.x) / kCluster;
    next = static_cast<int>(blockIdx.x) / kCluster;
  }
  /// The first row and column of the next tile; false after the last.
  __device__ bool take(int& row, int& column) {
    if (next >= count) return false;
    row = (next / tiles_n * kCluster + static_cast<int>(rank)) * kBlockM;
    column = next % tiles_n * kBlockN;
    next += stride;
    return true;
  }
};

/// This CTA's share of the tile of B, for all CTAs of the cluster.
__device__ __forceinline__ void load_b(const GemmParams& params, uint32_t to, uint32_t full, uint32_t rank, int column,
                                       int k) {
  const auto load = [&](uint32_t shared, int x, int y) {
    if constexpr (kCluster == 1) {
      cp_async_bulk_tensor_2d(shared, params.b, x, y, full);
    } else {
      cp_async_bulk_tensor_2d_multicast(shared, params.b, x, y, full, (1 << kCluster) - 1);
    }
  };
  if constexpr (kVariant.b_mn_major) {
    constexpr int kSlabs = kBlockN / 64 / kCluster;
#pragma unroll
    for (int i = 0; i < kSlabs; ++i) {
      const int slab = static_cast<int>(rank) * kSlabs + i;
      load(to + slab * kSlabBytes, column + slab * 64, k);
    }
  } else {
    const int first = static_cast<int>(rank) * (kBlockN / kCluster);
    load(to + first * 128, k, column + first);
  }
}

__device__ __forceinline__ void produce(const GemmParams& params, const Shared& shared, uint32_t rank) {
  Cursor at;
  Tiles tiles(params, rank);
  for (int row, column; tiles.take(row, column);) {
    for (int k = 0; k < params.k; k += kBlockK, at.advance()) {
      // A fresh mbarrier counts as past parity 1, so the first lap does not block.
      mbarrier_wait_parity_cluster(shared.empty(at.slot), at.parity ^ 1);
      const uint32_t full = shared.full(at.slot);
      mbarrier_arrive_expect_tx(full, kABytes + kBBytes);
      cp_async_bulk_tensor_2d(shared.a(at.slot), params.a, k, row, full);
      load_b(params, shared.b(at.slot), full, rank, column, k);
    }
  }
  if constexpr (kCluster > 1 && !kVariant.cluster_barrier_exit) {
    // The other CTA still arrives on these barriers: this one must not be gone by then.
    for (int i = 0; i < kStages; ++i, at.advance()) mbarrier_wait_parity_cluster(shared.empty(at.slot), at.parity ^ 1);
  }
}

/// One arrival of this warp on the slot's barrier in every CTA of the cluster.
__device__ __forceinline__ void release(const Shared& shared, uint32_t slot, uint32_t lane) {
  if constexpr (kCluster == 1) {
    if (lane == 0) mbarrier_arrive(shared.empty(slot));
  } else {
    if (lane < kCluster) mbarrier_arrive_cluster(mapa(shared.empty(slot), lane));
  }
}

__device__ __forceinline__ void multiply(float (&sum)[kWaves][kBlockN / 2], const Shared& shared, uint32_t slot,
                                         uint32_t consumer, bool first) {
  const uint64_t a = wgmma_descriptor(shared.a(slot) + consumer * kRows * 128, 0, 1024);
  const uint64_t b = wgmma_descriptor(shared.b(slot), kVariant.b_mn_major ? kSlabBytes : 0, 1024);
  // A descriptor counts 16 bytes: 16 k are 32 bytes along a K-major row, or 16 MN-major rows.
  constexpr uint64_t kAStep = 32 >> 4, kBStep = kVariant.b_mn_major ? (16 * 128) >> 4 : 32 >> 4;
#pragma unroll
  for (int wave = 0; wave < kWaves; ++wave) {
#pragma unroll
    for (int i = 0; i < kBlockK / 16; ++i)
      wgmma_ss<DType::kBf16, kVariant.b_mn_major>(sum[wave], a + wave * (64 * 128 >> 4) + i * kAStep, b + i * kBStep,
                                                  !first || i > 0);
  }
}

/// Registers -> swizzled shared memory -> TMA. Thread 0 of the warpgroup issues all its stores, so that it can wait for
/// them.
__device__ __forceinline__ void store_bf16(const float (&sum)[kWaves][kBlockN / 2], const GemmParams& params,
                                           const Shared& shared, uint32_t consumer, int row, int column) {
  const uint32_t thread = threadIdx.x % 128, lane = thread % 32, barrier = 1 + consumer;
  const uint32_t staging = shared.staging(consumer);
  if (thread == 0) cp_async_bulk_wait_group_read<0>();  // the last tile has left the staging
  bar_sync(barrier, 128);
  // Lane l gives the address of row l%16 and of the 8 columns at 8(l/16).
#pragma unroll
  for (int wave = 0; wave < kWaves; ++wave) {
    const uint32_t at = staging + (wave * 64 + thread / 32 * 16 + lane % 16) * 128;
#pragma unroll
    for (int j = 0; j < kBlockN / 16; ++j) {
      const float* d = sum[wave] + j * 8;
      const uint32_t packed[4] = {cvt_rn_bf16x2_f32(d[0], d[1]), cvt_rn_bf16x2_f32(d[2], d[3]),
                                  cvt_rn_bf16x2_f32(d[4], d[5]), cvt_rn_bf16x2_f32(d[6], d[7])};
      const uint32_t chunk = (j % 4 * 2 + lane / 16) ^ (lane % 8);
      stmatrix_x4(at + j / 4 * kStagedSlabBytes + chunk * 16, packed);
    }
  }
  fence_proxy_async_shared();
  bar_sync(barrier, 128);
  if (thread == 0) {
#pragma unroll
    for (int slab = 0; slab < kBlockN / 64; ++slab)
      cp_async_bulk_tensor_2d_store(params.d, column + slab * 64, row + static_cast<int>(consumer) * kRows,
                                    staging + slab * kStagedSlabBytes);
    cp_async_bulk_commit_group();
  }
}

__device__ __forceinline__ void store_f32(const float (&sum)[kWaves][kBlockN / 2], const GemmParams& params,
                                          uint32_t consumer, int row, int column) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
#pragma unroll
  for (int half = 0; half < 2 * kWaves; ++half) {
    const int r = row + static_cast<int>(consumer) * kRows + half / 2 * 64 + warp * 16 + half % 2 * 8 + lane / 4;
    if (r >= params.m) continue;
    float* const to = params.d_f32 + static_cast<int64_t>(r) * params.n;
#pragma unroll
    for (int j = 0; j < kBlockN / 8; ++j) {
      const int c = column + j * 8 + lane % 4 * 2;
      const float* d = sum[half / 2] + j * 4 + half % 2 * 2;
      if (c < params.n) to[c] = d[0];
      if (c + 1 < params.n) to[c + 1] = d[1];
    }
  }
}

__device__ __forceinline__ void consume(const GemmParams& params, const Shared& shared, uint32_t rank,
                                        uint32_t consumer) {
  const uint32_t lane = threadIdx.x % 32;
  Cursor at;
  Tiles tiles(params, rank);
  for (int row, column; tiles.take(row, column);) {
    // The first product overwrites it. Yet ptxas 12.8 serialises wgmma on accumulators that nobody has set (C7515).
    float sum[kWaves][kBlockN / 2] = {};
    uint32_t previous = 0;
    for (int k = 0; k < params.k; k += kBlockK, at.advance()) {
      mbarrier_wait_parity(shared.full(at.slot), at.parity);
#pragma unroll
      for (int wave = 0; wave < kWaves; ++wave) pin_registers(sum[wave]);
      wgmma_fence();
      multiply(sum, shared, at.slot, consumer, k == 0);
      wgmma_commit_group();
      // wgmma still reads the slot after it is issued: let go of what has been waited for.
      wgmma_wait_group<kVariant.mma_in_flight>();
#pragma unroll
      for (int wave = 0; wave < kWaves; ++wave) pin_registers(sum[wave]);
      if constexpr (kVariant.mma_in_flight == 0) {
        release(shared, at.slot, lane);
      } else {
        if (k > 0) release(shared, previous, lane);
        previous = at.slot;
      }
    }
    if constexpr (kVariant.mma_in_flight > 0) {
      wgmma_wait_group<0>();
#pragma unroll
      for (int wave = 0; wave < kWaves; ++wave) pin_registers(sum[wave]);
      release(shared, previous, lane);
    }
    if constexpr (kVariant.output_f32) {
      store_f32(sum, params, consumer, row, column);
    } else {
      store_bf16(sum, params, shared, consumer, row, column);
    }
  }
  if constexpr (!kVariant.output_f32) {
    if (threadIdx.x % 128 == 0) cp_async_bulk_wait_group_read<0>();  // shared memory goes with the CTA
  }
}

}  // namespace
}  // namespace kernelwright::test

extern "C" __global__ void __launch_bounds__(kernelwright::test::kGemmThreads, 1)
    gemm_sm90(const __grid_constant__ kernelwright::test::GemmParams params) {
  using namespace kernelwright::test;
  extern __shared__ __align__(1024) unsigned char memory[];
  const Shared shared{shared_address(memory)};
  const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);  // the same in all lanes, to the compiler too
  const uint32_t rank = kCluster > 1 ? cluster_ctarank() : 0;
  if (warp == 0 && elect_one()) {
    prefetch_tensormap(params.a);
    prefetch_tensormap(params.b);
    if constexpr (!kVariant.output_f32) prefetch_tensormap(params.d);
    for (int slot = 0; slot < kStages; ++slot) {
      mbarrier_init(shared.full(slot), 1);
      mbarrier_init(shared.empty(slot), kCluster * kConsumerWarps);
    }
    fence_mbarrier_init();
  }
  // No CTA may reach into another one whose barriers are not there yet.
  if constexpr (kCluster > 1) {
    barrier_cluster_arrive();
    barrier_cluster_wait();
  } else {
    __syncthreads();
  }

  if (warp < 4) {
    setmaxnreg_dec<kProducerRegisters>();
    if (warp == 0 && elect_one()) produce(params, shared, rank);
  } else {
    setmaxnreg_inc<kConsumerRegisters>();
    consume(params, shared, rank, warp / 4 - 1);
  }
  if constexpr (kCluster > 1 && kVariant.cluster_barrier_exit) {
    barrier_cluster_arrive();
    barrier_cluster_wait();
  }
}

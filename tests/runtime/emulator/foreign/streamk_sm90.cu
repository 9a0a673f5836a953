/// Stream-K as in streamk_sm80, warp-specialised: D = A B^T in bf16 with f32 sums. Warp 0 loads by TMA. Warpgroups 1
/// and 2 multiply 64 rows each. Each of them passes its own sums on and has its own flags, so that no warpgroup waits
/// for the other.
#include "spec.h"

#include "ptx/barrier.cuh"
#include "ptx/flags.cuh"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"

namespace kernelwright::test {

using namespace ptx;

namespace {

constexpr StreamkVariant kVariant = spec::kVariant;
constexpr int kBlockM = 128, kBlockN = 64, kBlockK = 64, kStages = kStreamkHopperStages;
constexpr int kConsumerWarps = 8, kSums = kBlockN / 2;
// Registers: 168 for each of 384 threads at the launch, then 40 x 128 + 232 x 256.
constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;

struct Shared {
  uint32_t base;
  __device__ uint32_t a(uint32_t slot) const { return base + slot * kStreamkSlotBytes; }
  __device__ uint32_t b(uint32_t slot) const { return a(slot) + kBlockM * 128; }
  /// [64][64] bf16 of one consumer warpgroup, in swizzle 128B.
  __device__ uint32_t staging(uint32_t consumer) const {
    return base + kStages * kStreamkSlotBytes + consumer * kStreamkStagingBytes;
  }
  __device__ uint32_t full(uint32_t slot) const { return base + kStreamkBarriersAt + slot * 8; }
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

/// The steps of one CTA, tile by tile.
struct Work {
  int tiles_n, steps, total;  // steps: of k in a tile; total: of all tiles
  int at, end;
  int tile = 0, first = 0, last = 0;  // the segment: steps [first, last) of a tile

  explicit __device__ Work(const StreamkHopperParams& params)
      : tiles_n((params.n + kBlockN - 1) / kBlockN), steps((params.k + kBlockK - 1) / kBlockK) {
    total = tiles_n * ((params.m + kBlockM - 1) / kBlockM) * steps;
    at = begin_of(blockIdx.x), end = begin_of(blockIdx.x + 1);
  }
  __device__ int begin_of(int cta) const { return total * cta / static_cast<int>(gridDim.x); }
  __device__ int row() const { return tile / tiles_n * kBlockM; }
  __device__ int column() const { return tile % tiles_n * kBlockN; }
  __device__ bool take() {
    if (at >= end) return false;
    tile = at / steps, first = at % steps, last = min(steps, first + end - at);
    at += last - first;
    return true;
  }
  /// The number of CTAs that have steps of the tile ahead of this CTA's.
  __device__ int ctas_before() const {
    int count = 0;
    for (int cta = blockIdx.x; cta > 0 && begin_of(cta) > tile * steps; --cta) ++count;
    return count;
  }
};

__device__ __forceinline__ void produce(const StreamkHopperParams& params, const Shared& shared) {
  Cursor at;
  for (Work work(params); work.take();)
    for (int step = work.first; step < work.last; ++step, at.advance()) {
      // A fresh mbarrier counts as past parity 1, so the first lap does not block.
      mbarrier_wait_parity(shared.empty(at.slot), at.parity ^ 1);
      const uint32_t full = shared.full(at.slot);
      mbarrier_arrive_expect_tx(full, kStreamkSlotBytes);
      cp_async_bulk_tensor_2d(shared.a(at.slot), params.a, step * kBlockK, work.row(), full);
      cp_async_bulk_tensor_2d(shared.b(at.slot), params.b, step * kBlockK, work.column(), full);
    }
}

__device__ __forceinline__ void multiply(float (&sum)[kSums], const Shared& shared, uint32_t slot, uint32_t consumer,
                                         bool first) {
  const uint64_t a = wgmma_descriptor(shared.a(slot) + consumer * 64 * 128, 0, 1024);
  const uint64_t b = wgmma_descriptor(shared.b(slot), 0, 1024);
#pragma unroll
  for (int i = 0; i < kBlockK / 16; ++i)  // 16 k are 32 bytes of a row
    wgmma_ss<DType::kBf16, false>(sum, a + i * 2, b + i * 2, !first || i > 0);
}

__device__ __forceinline__ void mainloop(float (&sum)[kSums], const Shared& shared, Cursor& at, const Work& work,
                                         uint32_t consumer) {
  for (int step = work.first; step < work.last; ++step, at.advance()) {
    mbarrier_wait_parity(shared.full(at.slot), at.parity);
    pin_registers(sum);
    wgmma_fence();
    multiply(sum, shared, at.slot, consumer, step == work.first);
    wgmma_commit_group();
    wgmma_wait_group<0>();
    pin_registers(sum);
    if (threadIdx.x % 32 == 0) mbarrier_arrive(shared.empty(at.slot));
  }
}

/// Registers -> swizzled shared memory -> TMA, issued by thread 0 of the warpgroup.
__device__ __forceinline__ void store(const float (&sum)[kSums], const TensorMap& map, uint32_t staging,
                                      uint32_t barrier, int row, int column) {
  const uint32_t thread = threadIdx.x % 128, lane = thread % 32;
  if (thread == 0) cp_async_bulk_wait_group_read<0>();  // the last tile has left the staging
  bar_sync(barrier, 128);
  const uint32_t at = staging + (thread / 32 * 16 + lane % 16) * 128;
#pragma unroll
  for (int j = 0; j < kBlockN / 16; ++j) {
    const float* d = sum + j * 8;
    const uint32_t packed[4] = {cvt_rn_bf16x2_f32(d[0], d[1]), cvt_rn_bf16x2_f32(d[2], d[3]),
                                cvt_rn_bf16x2_f32(d[4], d[5]), cvt_rn_bf16x2_f32(d[6], d[7])};
    stmatrix_x4(at + (((j * 2 + lane / 16) ^ (lane % 8)) << 4), packed);
  }
  fence_proxy_async_shared();
  bar_sync(barrier, 128);
  if (thread == 0) {
    cp_async_bulk_tensor_2d_store(map, column, row, staging);
    cp_async_bulk_commit_group();
  }
}

__device__ __forceinline__ void signal(uint32_t* flag, uint32_t barrier) {
  bar_sync(barrier, 128);  // all sums of the warpgroup are stored
  if (threadIdx.x % 128 == 0) {
    if constexpr (kVariant.fences) {
      fence_acq_rel_gpu();
      red_flag_add_relaxed(flag, 1);
    } else {
      red_flag_add_release(flag, 1);
    }
  }
}

__device__ __forceinline__ void wait(const uint32_t* flag, uint32_t value, uint32_t barrier) {
  if (threadIdx.x % 128 == 0) {
    if constexpr (kVariant.fences) {
      while (ld_flag_relaxed(flag) != value) {
      }
      fence_acq_rel_gpu();
    } else {
      while (ld_flag_acquire(flag) != value) {
      }
    }
  }
  bar_sync(barrier, 128);
}

__device__ __forceinline__ void save(const float (&sum)[kSums], float* part) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) part[i * 128] = sum[i];
}
__device__ __forceinline__ void add(float (&sum)[kSums], const float* part) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) sum[i] += ld_global_cg_f32(part + i * 128);
}

/// Adds what other CTAs have of the tile. Returns whether this CTA stores it.
__device__ __forceinline__ bool fix_up(float (&sum)[kSums], const StreamkHopperParams& params, const Work& work,
                                       uint32_t consumer) {
  const uint32_t barrier = 1 + consumer;
  const auto part_of = [&](int index) {
    return params.parts + static_cast<int64_t>(index * 2 + consumer) * 64 * kBlockN + threadIdx.x % 128;
  };
  const auto flag_of = [&](int index) { return params.flags + index * 2 + consumer; };
  if constexpr (kVariant.fixup == StreamkFixup::kParts) {
    const int rank = blockIdx.x;
    if (work.first > 0) {
      save(sum, part_of(rank));
      signal(flag_of(rank), barrier);
      return false;
    }
    // The CTAs behind this one have the rest of the tile.
    for (int peer = rank + 1; peer < gridDim.x && work.begin_of(peer) < (work.tile + 1) * work.steps; ++peer) {
      wait(flag_of(peer), 1, barrier);
      add(sum, part_of(peer));
    }
    return true;
  } else {
    const int before = work.ctas_before();
    if (before > 0) {
      wait(flag_of(work.tile), before, barrier);
      add(sum, part_of(work.tile));
    }
    if (work.last == work.steps) return true;
    save(sum, part_of(work.tile));
    signal(flag_of(work.tile), barrier);
    return false;
  }
}

__device__ __forceinline__ void consume(const StreamkHopperParams& params, const Shared& shared, uint32_t consumer) {
  Cursor at;
  for (Work work(params); work.take();) {
    float sum[kSums] = {};
    mainloop(sum, shared, at, work, consumer);
    if (fix_up(sum, params, work, consumer))
      store(sum, params.d, shared.staging(consumer), 1 + consumer, work.row() + static_cast<int>(consumer) * 64,
            work.column());
  }
  if (threadIdx.x % 128 == 0) cp_async_bulk_wait_group_read<0>();  // shared memory goes with the CTA
}

}  // namespace
}  // namespace kernelwright::test

extern "C" __global__ void __launch_bounds__(kernelwright::test::kStreamkHopperThreads, 1)
    streamk_sm90(const __grid_constant__ kernelwright::test::StreamkHopperParams params) {
  using namespace kernelwright::test;
  extern __shared__ __align__(1024) unsigned char memory[];
  const Shared shared{shared_address(memory)};
  const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);  // the same in all lanes, to the compiler too
  if (warp == 0 && elect_one()) {
    for (int slot = 0; slot < kStages; ++slot) {
      mbarrier_init(shared.full(slot), 1);
      mbarrier_init(shared.empty(slot), kConsumerWarps);
    }
    fence_mbarrier_init();
  }
  __syncthreads();

  if (warp < 4) {
    setmaxnreg_dec<kProducerRegisters>();
    if (warp == 0 && elect_one()) produce(params, shared);
  } else {
    setmaxnreg_inc<kConsumerRegisters>();
    consume(params, shared, warp / 4 - 1);
  }
}

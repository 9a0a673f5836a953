/// Stream-K: D = A B^T in bf16 with f32 sums. Each CTA has the same number of steps of k, counted through all tiles of
/// D. So a CTA may begin and end amid a tile. The CTAs that share a tile add their sums through global memory, in the
/// order of k, so that every schedule gives the same bits. There are at least as many steps as CTAs.
///
/// Four warps, each with 32 x 32 of the tile. cp.async fills a ring of slots; ldmatrix and mma.sync read it.
#include "spec.h"

#include "ptx/barrier.cuh"
#include "ptx/flags.cuh"
#include "ptx/math.cuh"
#include "ptx/memory.cuh"

namespace kernelwright::test {

using namespace ptx;

namespace {

constexpr StreamkVariant kVariant = spec::kVariant;
constexpr int kTile = kStreamkTile, kBlockK = kStreamkBlockK, kStages = kStreamkStages;
constexpr uint32_t kSlotBytes = kTile * kBlockK * 2;  // of A, or of B
constexpr int kSums = 32;                             // of a thread

/// One CTA's steps within one tile.
struct Segment {
  int tile, first, last;  // steps of k: [first, last)
};

/// Rows of a slot have 4 chunks of 16 bytes. They change places, so that 8 rows meet all banks.
__device__ __forceinline__ uint32_t chunk_address(uint32_t slot, int row, int chunk) {
  return slot + row * 64 + ((chunk ^ (row >> 1 & 3)) << 4);
}

struct Cta {
  const StreamkParams& params;
  uint32_t shared;
  int tiles_n, steps;  // of k in a tile

  __device__ uint32_t slot_a(int step) const { return shared + step % kStages * 2 * kSlotBytes; }
  __device__ uint32_t slot_b(int step) const { return slot_a(step) + kSlotBytes; }

  __device__ __forceinline__ void load(const uint16_t* from, uint32_t slot, int first_row, int rows, int k) const {
#pragma unroll
    for (int i = 0; i < kTile * 4 / kStreamkThreads; ++i) {
      const int chunk = threadIdx.x + i * kStreamkThreads, row = chunk / 4, column = k + chunk % 4 * 8;
      const bool exists = first_row + row < rows && column < params.k;
      const uint16_t* at = exists ? from + static_cast<int64_t>(first_row + row) * params.k + column : from;
      cp_async_cg_16(chunk_address(slot, row, chunk % 4), at, exists ? 16 : 0);
    }
  }
  /// A group for each step, also where there is nothing left to load: then all waits have one count.
  __device__ __forceinline__ void load_step(const Segment& segment, int step) const {
    if (step < segment.last) {
      load(params.a, slot_a(step), segment.tile / tiles_n * kTile, params.m, step * kBlockK);
      load(params.b, slot_b(step), segment.tile % tiles_n * kTile, params.n, step * kBlockK);
    }
    cp_async_commit_group();
  }

  __device__ __forceinline__ void multiply(float (&sum)[2][4][4], int step) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = warp / 2 * 32 + lane % 16, column = warp % 2 * 32 + lane % 8 + lane / 16 * 8;
#pragma unroll
    for (int k16 = 0; k16 < kBlockK / 16; ++k16) {
      uint32_t a[2][4], b[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        ldmatrix_x4(a[i], chunk_address(slot_a(step), row + i * 16, k16 * 2 + lane / 16));
        ldmatrix_x4(b[i], chunk_address(slot_b(step), column + i * 16, k16 * 2 + lane / 8 % 2));
      }
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const uint32_t half[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
          mma_m16n8k16_bf16(sum[i][j], a[i], half);
        }
    }
  }

  __device__ __forceinline__ void mainloop(float (&sum)[2][4][4], const Segment& segment) const {
    __syncthreads();  // the segment before has been read
    for (int i = 0; i < kStages - 1; ++i) load_step(segment, segment.first + i);
    for (int step = segment.first; step < segment.last; ++step) {
      cp_async_wait_group<kStages - 2>();
      __syncthreads();  // the step has landed for all, and all have read the step before
      load_step(segment, step + kStages - 1);
      multiply(sum, step);
    }
  }

  __device__ __forceinline__ void store(const float (&sum)[2][4][4], int tile) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = tile / tiles_n * kTile + warp / 2 * 32 + i * 16 + half * 8 + lane / 4;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int column = tile % tiles_n * kTile + warp % 2 * 32 + j * 8 + lane % 4 * 2;
          if (row < params.m && column < params.n)  // n is even
            st_global_u32(params.d + static_cast<int64_t>(row) * params.n + column,
                          cvt_rn_bf16x2_f32(sum[i][j][half * 2], sum[i][j][half * 2 + 1]));
        }
      }
  }
};

__device__ __forceinline__ void signal(uint32_t* flag, uint32_t value) {
  __syncthreads();  // all sums are stored
  if (threadIdx.x == 0) {
    if constexpr (kVariant.fences) {
      fence_acq_rel_gpu();
      red_flag_add_relaxed(flag, 1);  // `value` is one more than before
    } else {
      st_flag_release(flag, value);
    }
  }
}

__device__ __forceinline__ void wait(const uint32_t* flag, uint32_t value) {
  if (threadIdx.x == 0) {
    if constexpr (kVariant.fences) {
      while (ld_flag_relaxed(flag) != value) {
      }
      fence_acq_rel_gpu();
    } else {
      while (ld_flag_acquire(flag) != value) {
      }
    }
  }
  __syncthreads();
}

__device__ __forceinline__ float* part_of(const StreamkParams& params, int index) {
  return params.parts + static_cast<int64_t>(index) * kTile * kTile + threadIdx.x;
}
__device__ __forceinline__ void save(const float* sum, float* part) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) part[i * kStreamkThreads] = sum[i];
}
__device__ __forceinline__ void add(float* sum, const float* part) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) sum[i] += ld_global_cg_f32(part + i * kStreamkThreads);
}

}  // namespace
}  // namespace kernelwright::test

extern "C" __global__ void __launch_bounds__(kernelwright::test::kStreamkThreads)
    streamk_sm80(const kernelwright::test::StreamkParams params) {
  using namespace kernelwright::test;
  extern __shared__ __align__(128) unsigned char memory[];
  const int tiles_n = (params.n + kTile - 1) / kTile, steps = (params.k + kBlockK - 1) / kBlockK;
  const int total = tiles_n * ((params.m + kTile - 1) / kTile) * steps, ctas = gridDim.x, rank = blockIdx.x;
  const Cta cta{params, shared_address(memory), tiles_n, steps};
  const int end = total * (rank + 1) / ctas;
  for (int at = total * rank / ctas; at < end;) {
    const int tile = at / steps, first = at % steps;
    const int last = min(steps, first + end - at);
    const Segment segment{tile, first, last};
    at += last - first;
    float sum[2][4][4] = {};
    cta.mainloop(sum, segment);
    float* const sums = &sum[0][0][0];
    if constexpr (kVariant.fixup == StreamkFixup::kParts) {
      if (first > 0) {
        save(sums, part_of(params, rank));
        signal(params.flags + rank, 1);
        continue;
      }
      // The CTAs behind this one have the rest of the tile.
      for (int peer = rank + 1; peer < ctas && total * peer / ctas < (tile + 1) * steps; ++peer) {
        wait(params.flags + peer, 1);
        add(sums, part_of(params, peer));
      }
    } else {
      // The number of CTAs that have added their sums.
      int before = 0;
      for (int peer = rank; peer > 0 && total * peer / ctas > tile * steps; --peer) ++before;
      if (before > 0) {
        wait(params.flags + tile, before);
        add(sums, part_of(params, tile));
      }
      if (last < steps) {
        save(sums, part_of(params, tile));
        signal(params.flags + tile, before + 1);
        continue;
      }
    }
    cta.store(sum, tile);
  }
}

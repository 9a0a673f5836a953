/// Grouped GEMM: D = A B^T in bf16 with f32 sums, for groups with sizes and addresses of their own. The host makes one
/// map for each operand. The kernel edits copies of these, whenever a CTA comes to another group.
///
/// Persistent CTAs walk the tiles of all groups. Warp 0 loads, and edits the maps of A and B. Warpgroups 1 and 2
/// multiply 64 rows each, and store them through maps of D that each warpgroup edits for itself.
#include "spec.h"

#include "ptx/barrier.cuh"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "ptx/tensor_map_edit.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"

namespace kernelwright::test {

using namespace ptx;

namespace {

constexpr GroupedVariant kVariant = spec::kVariant;
constexpr int kBlockM = 128, kBlockN = 64, kBlockK = 64, kStages = kGroupedStages;
constexpr int kConsumerWarps = 8;
// Registers: 168 for each of 384 threads at the launch, then 40 x 128 + 232 x 256.
constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;

struct Shared {
  uint32_t base;
  __device__ uint32_t a(uint32_t slot) const { return base + slot * kGroupedSlotBytes; }
  __device__ uint32_t b(uint32_t slot) const { return a(slot) + kBlockM * 128; }
  /// [64][64] bf16 of one consumer warpgroup, in swizzle 128B.
  __device__ uint32_t staging(uint32_t consumer) const {
    return base + kStages * kGroupedSlotBytes + consumer * kGroupedStagingBytes;
  }
  __device__ uint32_t map(int index) const { return base + kGroupedMapsAt + index * 128; }
  __device__ uint32_t full(uint32_t slot) const { return base + kGroupedBarriersAt + slot * 8; }
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

/// The tiles of one CTA, through all groups.
struct Tiles {
  const GroupedParams& params;
  int next = blockIdx.x, before = 0;  // tiles of the groups ahead of `group`
  int group = 0, row = 0, column = 0;
  bool new_group = true;
  GroupedProblem problem = {};

  __device__ bool take() {
    new_group = problem.m == 0;
    for (; group < params.num_groups; ++group, new_group = true) {
      if (new_group) problem = params.groups[group];
      const int tiles_n = (problem.n + kBlockN - 1) / kBlockN;
      const int tiles = (problem.m + kBlockM - 1) / kBlockM * tiles_n, index = next - before;
      if (index < tiles) {
        row = index / tiles_n * kBlockM, column = index % tiles_n * kBlockN;
        next += gridDim.x;
        return true;
      }
      before += tiles;
    }
    return false;
  }
};

/// A warp makes `map` a map of a matrix with `rows` rows of `columns` elements. No copy may be using `map`. All lanes
/// may use it afterwards.
__device__ __forceinline__ void edit_map(const TensorMap& from, TensorMap* map, uint32_t copy, uint64_t address,
                                         int rows, int columns) {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t word = reinterpret_cast<const uint32_t*>(&from)[lane];
  if constexpr (kVariant.edit == MapEdit::kShared) {
    st_shared_u32(copy + lane * 4, word);
    __syncwarp();  // lane 0 edits what all lanes have written
    if (lane == 0) {
      tensormap_replace_address_shared(copy, address);
      tensormap_replace_dim_shared<0>(copy, columns);
      tensormap_replace_dim_shared<1>(copy, rows);
      tensormap_replace_stride_shared<0>(copy, static_cast<uint64_t>(columns) * 2);
    }
    __syncwarp();  // all lanes copy what lane 0 has edited
    tensormap_cp_fenceproxy(map, copy);
  } else {
    st_global_u32(reinterpret_cast<uint32_t*>(map) + lane, word);
    __syncwarp();  // as above
    if (lane == 0) {
      const uint64_t at = reinterpret_cast<uint64_t>(map);
      tensormap_replace_address_global(at, address);
      tensormap_replace_dim_global<0>(at, columns);
      tensormap_replace_dim_global<1>(at, rows);
      tensormap_replace_stride_global<0>(at, static_cast<uint64_t>(columns) * 2);
      fence_proxy_tensormap_release();
    }
    __syncwarp();  // all lanes acquire what lane 0 has released
  }
  fence_proxy_tensormap_acquire(map);
}

__device__ __forceinline__ void produce(const GroupedParams& params, const Shared& shared, TensorMap* maps) {
  const bool leads = threadIdx.x % 32 == 0;
  Cursor at;
  for (Tiles tiles{params}; tiles.take();) {
    const GroupedProblem& problem = tiles.problem;
    if (tiles.new_group) {
      // The slots are empty once the copies through the former maps are over.
      Cursor drained = at;
      for (int i = 0; i < kStages; ++i, drained.advance())
        mbarrier_wait_parity(shared.empty(drained.slot), drained.parity ^ 1);
      edit_map(params.a, maps, shared.map(0), problem.a, problem.m, problem.k);
      edit_map(params.b, maps + 1, shared.map(1), problem.b, problem.n, problem.k);
    }
    for (int k = 0; k < problem.k; k += kBlockK, at.advance()) {
      // A fresh mbarrier counts as past parity 1, so the first lap does not block.
      mbarrier_wait_parity(shared.empty(at.slot), at.parity ^ 1);
      if (leads) {
        const uint32_t full = shared.full(at.slot);
        mbarrier_arrive_expect_tx(full, kGroupedSlotBytes);
        cp_async_bulk_tensor_2d(shared.a(at.slot), maps[0], k, tiles.row, full);
        cp_async_bulk_tensor_2d(shared.b(at.slot), maps[1], k, tiles.column, full);
      }
    }
  }
}

__device__ __forceinline__ void multiply(float (&sum)[kBlockN / 2], const Shared& shared, uint32_t slot,
                                         uint32_t consumer, bool first) {
  const uint64_t a = wgmma_descriptor(shared.a(slot) + consumer * 64 * 128, 0, 1024);
  const uint64_t b = wgmma_descriptor(shared.b(slot), 0, 1024);
#pragma unroll
  for (int i = 0; i < kBlockK / 16; ++i)  // 16 k are 32 bytes of a row
    wgmma_ss<DType::kBf16, false>(sum, a + i * 2, b + i * 2, !first || i > 0);
}

/// Registers -> swizzled shared memory -> TMA, issued by thread 0 of the warpgroup.
__device__ __forceinline__ void store(const float (&sum)[kBlockN / 2], const TensorMap& map, uint32_t staging,
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

__device__ __forceinline__ void consume(const GroupedParams& params, const Shared& shared, TensorMap* maps,
                                        uint32_t consumer) {
  const uint32_t thread = threadIdx.x % 128, warp = __shfl_sync(0xffffffff, thread / 32, 0);
  TensorMap* const map = maps + 2 + consumer;
  Cursor at;
  for (Tiles tiles{params}; tiles.take();) {
    const GroupedProblem& problem = tiles.problem;
    if (tiles.new_group && warp == 0) {
      if (thread == 0) cp_async_bulk_wait_group<0>();  // no store uses the former map
      __syncwarp();
      edit_map(params.d, map, shared.map(2 + static_cast<int>(consumer)), problem.d, problem.m, problem.n);
    }
    float sum[kBlockN / 2] = {};
    uint32_t previous = 0;
    for (int k = 0; k < problem.k; k += kBlockK, at.advance()) {
      mbarrier_wait_parity(shared.full(at.slot), at.parity);
      pin_registers(sum);
      wgmma_fence();
      multiply(sum, shared, at.slot, consumer, k == 0);
      wgmma_commit_group();
      wgmma_wait_group<1>();  // wgmma still reads the slot; the one before is free
      pin_registers(sum);
      if (k > 0 && thread % 32 == 0) mbarrier_arrive(shared.empty(previous));
      previous = at.slot;
    }
    wgmma_wait_group<0>();
    pin_registers(sum);
    if (thread % 32 == 0) mbarrier_arrive(shared.empty(previous));
    store(sum, *map, shared.staging(consumer), 1 + consumer, tiles.row + static_cast<int>(consumer) * 64, tiles.column);
  }
  if (thread == 0) cp_async_bulk_wait_group_read<0>();  // shared memory goes with the CTA
}

}  // namespace
}  // namespace kernelwright::test

extern "C" __global__ void __launch_bounds__(kernelwright::test::kGroupedThreads, 1)
    grouped_gemm_sm90(const __grid_constant__ kernelwright::test::GroupedParams params) {
  using namespace kernelwright::test;
  extern __shared__ __align__(1024) unsigned char memory[];
  const Shared shared{shared_address(memory)};
  const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);  // the same in all lanes, to the compiler too
  TensorMap* const maps = params.maps + blockIdx.x * kGroupedMaps;
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
    if (warp == 0) produce(params, shared, maps);
  } else {
    setmaxnreg_inc<kConsumerRegisters>();
    consume(params, shared, maps, warp / 4 - 1);
  }
}

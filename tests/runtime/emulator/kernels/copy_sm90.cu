/// Every way of Hopper to copy without the thread, each in a kernel as small as shows it with its synchronisation.
#include "hopper_params.h"
#include "ptx/cluster.cuh"
#include "ptx/launch.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "ptx/tma.cuh"

namespace kernelwright::test {

using namespace ptx;

namespace {

extern __shared__ __align__(1024) unsigned char memory[];

/// Makes barriers that were initialised by thread 0 usable by all threads of the CTA and by the async proxy.
__device__ __forceinline__ void publish_barriers() {
  if (threadIdx.x == 0) fence_mbarrier_init();
  __syncthreads();
}

}  // namespace
}  // namespace kernelwright::test

using namespace kernelwright::test;

// Global -> shared on an mbarrier, changed in place, shared -> global in groups. There are three slots: one is loaded,
// one is in work, and one is stored.
extern "C" __global__ void __launch_bounds__(kCopyThreads) bulk_copy(const __grid_constant__ BulkCopyParams params) {
  constexpr uint32_t kBytes = kBulkChunk * 4;
  const uint32_t base = shared_address(memory), full = base + kBulkSlots * kBytes;
  const int first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);
  const auto load = [&](int chunk, int slot) {
    mbarrier_arrive_expect_tx(full + slot * 8, kBytes);
    cp_async_bulk_load(base + slot * kBytes, params.from + static_cast<int64_t>(chunk) * kBulkChunk, kBytes,
                       full + slot * 8);
  };
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < kBulkSlots; ++slot) mbarrier_init(full + slot * 8, 1);
  }
  publish_barriers();
  if (threadIdx.x == 0 && first < params.chunks) load(first, 0);
  int turn = 0;
  for (int chunk = first; chunk < params.chunks; chunk += step, ++turn) {
    const int slot = turn % kBulkSlots;
    if (threadIdx.x == 0 && chunk + step < params.chunks) {
      cp_async_bulk_wait_group_read<kBulkSlots - 2>();  // all stores but the last one, which was from another slot
      load(chunk + step, (turn + 1) % kBulkSlots);
    }
    mbarrier_wait_parity(full + slot * 8, turn / kBulkSlots % 2);
#pragma unroll
    for (int i = 0; i < kBulkChunk / kCopyThreads; ++i) {
      const uint32_t at = base + slot * kBytes + (i * kCopyThreads + threadIdx.x) * 4;
      st_shared_u32(at, ld_shared_u32(at) + params.add);
    }
    fence_proxy_async_shared();
    __syncthreads();
    if (threadIdx.x == 0) {
      cp_async_bulk_store(params.to + static_cast<int64_t>(chunk) * kBulkChunk, base + slot * kBytes, kBytes);
      cp_async_bulk_commit_group();
    }
  }
  if (threadIdx.x == 0) cp_async_bulk_wait_group<0>();
}

// Sums of many CTAs in global memory, by bytes and by boxes that hang over the tensor's edges.
extern "C" __global__ void __launch_bounds__(kCopyThreads)
    bulk_reduce(const __grid_constant__ BulkReduceParams params) {
  const uint32_t base = shared_address(memory);
  for (int i = threadIdx.x; i < 256; i += kCopyThreads)
    st_shared_f32(base + i * 4, static_cast<float>(static_cast<int>(blockIdx.x) * 256 + i));
  fence_proxy_async_shared();
  __syncthreads();
  if (threadIdx.x == 0) {
    cp_reduce_async_bulk_add_f32(params.flat, base, 256 * 4);
    cp_async_bulk_commit_group();
    cp_reduce_async_bulk_tensor_2d_add(params.sums, params.x, params.y + static_cast<int>(blockIdx.x) * 4, base);
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group_read<0>();
  }
}

// One CTA's shared memory to another's, registers to another's, global memory to all: one barrier counts the bytes.
extern "C" __global__ void __launch_bounds__(kCopyThreads)
    cluster_exchange(const __grid_constant__ ClusterExchangeParams params) {
  constexpr uint32_t kBytes = kClusterWords * 4;
  const uint32_t base = shared_address(memory);
  const uint32_t received = base, sent = received + kBytes, all = sent + kSentWords * 4;
  const uint32_t mine = all + kClusterCtas * kBytes, full = mine + kBytes;
  const uint32_t rank = cluster_ctarank(), next = (rank + 1) % kClusterCtas, before = (rank + 3) % kClusterCtas;
  const uint32_t* from = params.from + static_cast<int64_t>(blockIdx.x) * kClusterWords;
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    fence_mbarrier_init();
  }
  // No CTA may reach into another one whose barrier is not there yet.
  barrier_cluster_arrive();
  for (int i = threadIdx.x; i < kClusterWords; i += kCopyThreads) st_shared_u32(mine + i * 4, from[i] * 3 + rank);
  fence_proxy_async_shared();
  barrier_cluster_wait();
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(full, kBytes + kSentWords * 4 + kClusterCtas * kBytes);
    cp_async_bulk_to_cluster(mapa(received, next), mine, kBytes, mapa(full, next));
    cp_async_bulk_load_multicast(all + rank * kBytes, from, kBytes, full, (1 << kClusterCtas) - 1);
  } else if (threadIdx.x >= 32 && threadIdx.x < 36) {
    const uint32_t i = threadIdx.x - 32;
    st_async_u32(mapa(sent + i * 4, before), rank * 1000 + i, mapa(full, before));
  } else if (threadIdx.x == 64) {
    const uint32_t words[4] = {rank * 1000 + 4, rank * 1000 + 5, rank * 1000 + 6, rank * 1000 + 7};
    st_async_v4_u32(mapa(sent + 16, before), words, mapa(full, before));
  }
  mbarrier_wait_parity_cluster(full, 0);
  uint32_t* to = params.to + static_cast<int64_t>(blockIdx.x) * kClusterOutputWords;
  for (int i = threadIdx.x; i < kClusterOutputWords; i += kCopyThreads) to[i] = ld_shared_u32(received + i * 4);
  // What another CTA still reads of `mine` must not go with this one.
  barrier_cluster_arrive();
  barrier_cluster_wait();
}

// A box of 1 to 5 dimensions: its bytes as they land, and back to a tensor.
extern "C" __global__ void __launch_bounds__(kCopyThreads) tensor_box(const __grid_constant__ TensorBoxParams params) {
  const uint32_t base = shared_address(memory), full = base + (params.bytes + 127) / 128 * 128;
  if (threadIdx.x == 0) {
    prefetch_tensormap(params.from);
    mbarrier_init(full, 1);
  }
  publish_barriers();
  if (threadIdx.x == 0) {
    mbarrier_expect_tx(full, params.bytes);
    const int x = params.at[0], y = params.at[1], z = params.at[2];
    switch (params.rank) {
      case 1: cp_async_bulk_tensor_1d(base, params.from, x, full); break;
      case 2:
        cp_async_bulk_prefetch_tensor_2d(params.from, x, y);
        cp_async_bulk_tensor_2d(base, params.from, x, y, full);
        break;
      case 3: cp_async_bulk_tensor_3d(base, params.from, x, y, z, full); break;
      case 4: cp_async_bulk_tensor_4d(base, params.from, x, y, z, params.at[3], full); break;
      default: cp_async_bulk_tensor_5d(base, params.from, x, y, z, params.at[3], params.at[4], full); break;
    }
    mbarrier_arrive(full);
  }
  while (!mbarrier_test_wait_parity(full, 0)) {
  }
  for (uint32_t i = threadIdx.x; i < params.bytes / 4; i += kCopyThreads) params.dump[i] = ld_shared_u32(base + i * 4);
  __syncthreads();  // nobody waits any more
  if (threadIdx.x == 0) {
    mbarrier_inval(full);
    if (params.store) {
      if (params.rank == 2) cp_async_bulk_tensor_2d_store(params.to, params.at[0], params.at[1], base);
      if (params.rank == 3) cp_async_bulk_tensor_3d_store(params.to, params.at[0], params.at[1], params.at[2], base);
      cp_async_bulk_commit_group();
      cp_async_bulk_wait_group_read<0>();
    }
  }
}

// Ampere's copies in a ring: threads 0..127 copy, their copies arrive by themselves; threads 128..255 consume.
extern "C" __global__ void __launch_bounds__(kAsyncThreads)
    cp_async_ring(const __grid_constant__ AsyncCopyParams params) {
  constexpr int kSlots = 3;
  constexpr uint32_t kChunkBytes = kAsyncChunk * 4, kSlotBytes = kChunkBytes + kCopyThreads * 4;
  const uint32_t base = shared_address(memory), full = base + kSlots * kSlotBytes, empty = full + kSlots * 8;
  const int thread = static_cast<int>(threadIdx.x) % kCopyThreads;
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < kSlots; ++slot) {
      mbarrier_init(full + slot * 8, kCopyThreads);
      mbarrier_init(empty + slot * 8, kCopyThreads / 32);
    }
  }
  __syncthreads();
  if (threadIdx.x < kCopyThreads) {
    for (int chunk = 0; chunk < params.chunks; ++chunk) {
      const uint32_t slot = chunk % kSlots, parity = chunk / kSlots % 2, to = base + slot * kSlotBytes;
      mbarrier_wait_parity(empty + slot * 8, parity ^ 1);
      const int word = chunk * kAsyncChunk + thread * 4, left = params.valid - word;
      const uint32_t bytes = left <= 0 ? 0 : left >= 4 ? 16 : static_cast<uint32_t>(left) * 4;
      cp_async_cg_16(to + thread * 16, params.from + (bytes ? word : 0), bytes);
      cp_async_ca_4(to + kChunkBytes + thread * 4, params.factor + chunk * kCopyThreads + thread);
      cp_async_mbarrier_arrive_noinc(full + slot * 8);
    }
    cp_async_wait_all();  // none outlives its thread
  } else {
    for (int chunk = 0; chunk < params.chunks; ++chunk) {
      const uint32_t slot = chunk % kSlots, parity = chunk / kSlots % 2, at = base + slot * kSlotBytes;
      const int other = kCopyThreads - 1 - thread;  // what another thread copied
      mbarrier_wait_parity(full + slot * 8, parity);
      Vector16 value = ld_shared_v4(at + other * 16);
      const uint32_t factor = ld_shared_u32(at + kChunkBytes + other * 4);
      __syncwarp();
      if (thread % 32 == 0) mbarrier_arrive(empty + slot * 8);
#pragma unroll
      for (uint32_t& word : value.word) word *= factor;
      *reinterpret_cast<Vector16*>(params.to + chunk * kAsyncChunk + other * 4) = value;
    }
  }
}

// The same in groups: one chunk is copied while the one before it is used.
extern "C" __global__ void __launch_bounds__(kCopyThreads)
    cp_async_groups(const __grid_constant__ AsyncCopyParams params) {
  constexpr uint32_t kChunkBytes = kAsyncChunk * 4, kSlotBytes = kChunkBytes + kCopyThreads * 4;
  const uint32_t base = shared_address(memory);
  const int thread = static_cast<int>(threadIdx.x), other = kCopyThreads - 1 - thread;
  const auto copy = [&](int chunk) {
    if (chunk < params.chunks) {
      const uint32_t to = base + chunk % 2 * kSlotBytes;
      const int word = chunk * kAsyncChunk + thread * 4, left = params.valid - word;
      const uint32_t bytes = left <= 0 ? 0 : left >= 4 ? 16 : static_cast<uint32_t>(left) * 4;
      cp_async_cg_16(to + thread * 16, params.from + (bytes ? word : 0), bytes);
      cp_async_ca_4(to + kChunkBytes + thread * 4, params.factor + chunk * kCopyThreads + thread);
    }
    cp_async_commit_group();  // empty at the end: the count stays
  };
  copy(0);
  for (int chunk = 0; chunk < params.chunks; ++chunk) {
    copy(chunk + 1);
    cp_async_wait_group<1>();
    __syncthreads();
    const uint32_t at = base + chunk % 2 * kSlotBytes;
    Vector16 value = ld_shared_v4(at + other * 16);
    const uint32_t factor = ld_shared_u32(at + kChunkBytes + other * 4);
#pragma unroll
    for (uint32_t& word : value.word) word *= factor;
    *reinterpret_cast<Vector16*>(params.to + chunk * kAsyncChunk + other * 4) = value;
    __syncthreads();  // the slot is copied into next
  }
}

extern "C" __global__ void __launch_bounds__(kCopyThreads)
    dependent_primary(const __grid_constant__ DependentParams params) {
  griddepcontrol_launch_dependents();
  const int i = static_cast<int>(blockIdx.x) * kCopyThreads + static_cast<int>(threadIdx.x);
  if (i < params.count) params.middle[i] = 2 * params.from[i] + 1;
}

extern "C" __global__ void __launch_bounds__(kCopyThreads)
    dependent_secondary(const __grid_constant__ DependentParams params) {
  const int i = static_cast<int>(blockIdx.x) * kCopyThreads + static_cast<int>(threadIdx.x);
  if (i >= params.count) return;
  const uint32_t own = params.from[i];  // nobody writes it: may be read before the wait
  griddepcontrol_wait();
  params.to[i] = own + params.middle[params.count - 1 - i];
}

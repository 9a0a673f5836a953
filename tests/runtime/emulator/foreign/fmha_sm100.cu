/// Attention forward, with a role for each warp. Two tiles of 128 queries share the keys of a CTA.
///
///   warps 0-3, 4-7   softmax of one tile each: a thread has a row of S. It writes P over S in tensor memory, or to
///                    shared memory
///   warps 8-11       correction: rescale O in tensor memory, and in the end divide by the sums and stage O
///   warp 12          owns tensor memory; one thread issues all products
///   warp 13          one thread loads Q, K and V
///   warp 14          one thread stores O
///
/// The statistics of a row go from the softmax to the correction through two columns of S in tensor memory: the former
/// and the new maximum of each step, and in the end the sum.
#include "spec.h"

#include "ptx/barrier.cuh"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "ptx/tcgen05.cuh"
#include "ptx/tcgen05_mma.cuh"
#include "ptx/tma.cuh"

namespace kernelwright::test {

using namespace ptx;

namespace {

constexpr FmhaVariant kVariant = spec::kVariant;
constexpr int kQueries = kFmhaQueries, kKeys = kFmhaKeys, kHeadDim = kFmhaHeadDim, kStages = kFmhaStages;
constexpr int kMmaWarp = 12, kLoadWarp = 13, kStoreWarp = 14;
constexpr uint32_t kEndBarrier = 1, kEndThreads = 128 + 32;
// Registers: 128 for each of 512 threads at the launch, then 176 x 256 + 104 x 128 + 56 x 128.
constexpr int kSoftmaxRegisters = 176, kCorrectionRegisters = 104, kOtherRegisters = 56;
// Tensor memory: S of both tiles, then O of both. P, two elements to a column, takes the second half of S.
constexpr uint32_t kColumns = 256, kStatisticsColumn = 0, kPColumn = kKeys / 2;

struct Shared {
  uint32_t base;
  __device__ uint32_t q(int tile) const { return base + tile * kFmhaTileBytes; }
  __device__ uint32_t kv(uint32_t slot) const { return base + kFmhaRingAt + slot * kFmhaSlotBytes; }
  __device__ uint32_t staging(int tile) const { return base + kFmhaStagingAt + tile * kFmhaTileBytes; }
  __device__ uint32_t p(int tile) const { return base + kFmhaPAt + tile * kFmhaTileBytes; }
  __device__ uint32_t barrier(uint32_t index) const { return base + kFmhaBarriersAt + index * 8; }
  __device__ uint32_t kv_full(uint32_t slot) const { return barrier(slot); }
  __device__ uint32_t kv_empty(uint32_t slot) const { return barrier(kStages + slot); }
  __device__ uint32_t of_tile(uint32_t kind, int tile) const { return barrier(2 * kStages + kind * 2 + tile); }
  __device__ uint32_t q_full(int tile) const { return of_tile(0, tile); }
  __device__ uint32_t s_full(int tile) const { return of_tile(1, tile); }
  __device__ uint32_t p_full(int tile) const { return of_tile(2, tile); }
  __device__ uint32_t statistics_full(int tile) const { return of_tile(3, tile); }
  __device__ uint32_t statistics_empty(int tile) const { return of_tile(4, tile); }
  __device__ uint32_t o_full(int tile) const { return of_tile(5, tile); }
  __device__ uint32_t o_rescaled(int tile) const { return of_tile(6, tile); }
  __device__ uint32_t o_staged(int tile) const { return of_tile(7, tile); }
  __device__ uint32_t tensor_address() const { return base + kFmhaBarriersAt + kFmhaBarriers * 8; }
};

/// Addresses in tensor memory; a warp adds its lanes.
struct Tensor {
  uint32_t base;
  __device__ uint32_t s(int tile) const { return base + tile * kKeys; }
  __device__ uint32_t p(int tile) const { return s(tile) + kPColumn; }
  __device__ uint32_t statistics(int tile) const { return s(tile) + kStatisticsColumn; }
  __device__ uint32_t o(int tile) const { return base + 2 * kKeys + tile * kHeadDim; }
  __device__ Tensor lanes_of(uint32_t warp) const { return {base + (warp % 4 * 32 << 16)}; }
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

constexpr uint32_t instruction_descriptor(bool b_mn_major) {
  InstructionDescriptor descriptor;
  descriptor.a = descriptor.b = MmaElement::kBf16;
  descriptor.m = kQueries, descriptor.n = 64;
  descriptor.b_mn_major = b_mn_major;
  return descriptor.bits();
}

__device__ __forceinline__ uint64_t matrix(uint32_t address) {
  SharedDescriptor descriptor;
  return descriptor.bits(address);
}

/// S = Q K^T.
__device__ __forceinline__ void multiply_qk(uint32_t s, uint32_t q, uint32_t k) {
#pragma unroll
  for (int i = 0; i < kHeadDim / 16; ++i)  // 16 of k are 32 bytes of a row
    tcgen05_mma_ss<MmaKind::kF16>(s, matrix(q) + i * 2, matrix(k) + i * 2, instruction_descriptor(false), i > 0);
}
/// O += P V. 16 keys are 8 columns of P in tensor memory, 32 bytes of a row of P in shared memory, and 16 rows of V.
__device__ __forceinline__ void multiply_pv(uint32_t o, uint32_t p, uint32_t v, bool first) {
#pragma unroll
  for (int i = 0; i < kKeys / 16; ++i) {
    const uint64_t rows = matrix(v) + i * (16 * 128 >> 4);
    if constexpr (kVariant.p_shared)
      tcgen05_mma_ss<MmaKind::kF16>(o, matrix(p) + i * 2, rows, instruction_descriptor(true), !first || i > 0);
    else
      tcgen05_mma_ts<MmaKind::kF16>(o, p + i * 8, rows, instruction_descriptor(true), !first || i > 0);
  }
}

__device__ __forceinline__ void load(const FmhaParams& params, const Shared& shared, int steps) {
  const int query = blockIdx.x * 2 * kQueries, head = blockIdx.y;
  Cursor at;
  const auto load_q = [&](int tile) {
    mbarrier_arrive_expect_tx(shared.q_full(tile), kFmhaTileBytes);
    cp_async_bulk_tensor_3d(shared.q(tile), params.q, 0, query + tile * kQueries, head, shared.q_full(tile));
  };
  const auto load_kv = [&](const TensorMap& map, int step) {
    // A fresh mbarrier counts as past parity 1, so the first lap does not block.
    mbarrier_wait_parity(shared.kv_empty(at.slot), at.parity ^ 1);
    mbarrier_arrive_expect_tx(shared.kv_full(at.slot), kFmhaSlotBytes);
    cp_async_bulk_tensor_3d(shared.kv(at.slot), map, 0, step * kKeys, head, shared.kv_full(at.slot));
    at.advance();
  };
  load_q(0);
  load_q(1);
  for (int step = 0; step < steps; ++step) {
    load_kv(params.k, step);
    load_kv(params.v, step);
  }
  // The last commits still arrive on these barriers: the CTA must not be gone by then.
  for (int i = 0; i < kStages; ++i, at.advance()) mbarrier_wait_parity(shared.kv_empty(at.slot), at.parity ^ 1);
}

/// The products of a step and the scores of the next one take turns: while one tile multiplies, the other one's softmax
/// runs. Products of one thread are performed in order. So the scores of the next step do not overtake P V.
__device__ __forceinline__ void multiply(const Shared& shared, const Tensor& tensor, int steps) {
  Cursor k, v;
  v.advance();
  const auto next = [](Cursor& cursor) {
    cursor.advance();
    cursor.advance();
  };
  mbarrier_wait_parity(shared.kv_full(k.slot), k.parity);
  for (int tile = 0; tile < 2; ++tile) {
    mbarrier_wait_parity(shared.q_full(tile), 0);
    multiply_qk(tensor.s(tile), shared.q(tile), shared.kv(k.slot));
    tcgen05_commit(shared.s_full(tile));
  }
  tcgen05_commit(shared.kv_empty(k.slot));
  for (int step = 0; step < steps; ++step, next(v)) {
    const bool more = step + 1 < steps;
    next(k);
    mbarrier_wait_parity(shared.kv_full(v.slot), v.parity);
    if (more) mbarrier_wait_parity(shared.kv_full(k.slot), k.parity);
    for (int tile = 0; tile < 2; ++tile) {
      mbarrier_wait_parity(shared.p_full(tile), step & 1);
      if (step > 0) mbarrier_wait_parity(shared.o_rescaled(tile), (step - 1) & 1);
      tcgen05_fence_after_thread_sync();
      multiply_pv(tensor.o(tile), kVariant.p_shared ? shared.p(tile) : tensor.p(tile), shared.kv(v.slot), step == 0);
      if (!more) {
        tcgen05_commit(shared.o_full(tile));
        continue;
      }
      mbarrier_wait_parity(shared.statistics_empty(tile), step & 1);  // they lie where S comes
      tcgen05_fence_after_thread_sync();
      multiply_qk(tensor.s(tile), shared.q(tile), shared.kv(k.slot));
      tcgen05_commit(shared.s_full(tile));
    }
    tcgen05_commit(shared.kv_empty(v.slot));
    if (more) tcgen05_commit(shared.kv_empty(k.slot));
  }
}

__device__ __forceinline__ void send_statistics(const Shared& shared, const Tensor& tensor, int tile, float first,
                                                float second) {
  const float statistics[2] = {first, second};
  tcgen05_st(tensor.statistics(tile), statistics);
  tcgen05_wait_st();
  tcgen05_fence_before_thread_sync();
  mbarrier_arrive(shared.statistics_full(tile));
}

/// Half a row of P, in swizzle 128B.
__device__ __forceinline__ void store_p(uint32_t tile, int half, const uint32_t (&p)[kKeys / 4]) {
  const uint32_t row = threadIdx.x % 128;
#pragma unroll
  for (int i = 0; i < kKeys / 16; ++i) {
    const uint32_t chunk = half * (kKeys / 16) + i;
    st_shared_v4(tile + row * 128 + ((chunk ^ (row % 8)) << 4),
                 Vector16{{p[i * 4], p[i * 4 + 1], p[i * 4 + 2], p[i * 4 + 3]}});
  }
}

__device__ __forceinline__ void softmax(const FmhaParams& params, const Shared& shared, const Tensor& tensor, int tile,
                                        int steps) {
  float largest = minus_infinity(), sum = 0;
  for (int step = 0; step < steps; ++step) {
    mbarrier_wait_parity(shared.s_full(tile), step & 1);
    tcgen05_fence_after_thread_sync();
    float s[kKeys];
    tcgen05_ld(tensor.s(tile), s);
    tcgen05_wait_ld(s);
    const int keys = params.kv_len - step * kKeys;
    float larger = largest;
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      if (i >= keys) s[i] = minus_infinity();
      larger = fmaxf(larger, s[i]);
    }
    send_statistics(shared, tensor, tile, largest, larger);
    float of_step = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t p[kKeys / 4];
#pragma unroll
      for (int i = 0; i < kKeys / 4; ++i) {
        const int at = half * (kKeys / 2) + i * 2;
        const float low = ex2_approx_ftz((s[at] - larger) * params.scale_log2),
                    high = ex2_approx_ftz((s[at + 1] - larger) * params.scale_log2);
        of_step += low + high;
        p[i] = cvt_rn_bf16x2_f32(low, high);
      }
      if constexpr (kVariant.p_shared)
        store_p(shared.p(tile), half, p);
      else
        tcgen05_st(tensor.p(tile) + half * (kKeys / 4), p);
    }
    if constexpr (kVariant.p_shared) {
      fence_proxy_async_shared();
    } else {
      tcgen05_wait_st();
      tcgen05_fence_before_thread_sync();
    }
    mbarrier_arrive(shared.p_full(tile));
    sum = sum * ex2_approx_ftz((largest - larger) * params.scale_log2) + of_step;
    largest = larger;
  }
  mbarrier_wait_parity(shared.statistics_empty(tile), (steps - 1) & 1);
  tcgen05_fence_after_thread_sync();
  send_statistics(shared, tensor, tile, sum, largest);
}

/// O *= factor, a row to a thread.
__device__ __forceinline__ void rescale(uint32_t o, float factor) {
#pragma unroll
  for (int column = 0; column < kHeadDim; column += 32) {
    float values[32];
    tcgen05_ld(o + column, values);
    tcgen05_wait_ld(values);
#pragma unroll
    for (float& value : values) value *= factor;
    tcgen05_st(o + column, values);
  }
  tcgen05_wait_st();
}

__device__ __forceinline__ void stage(uint32_t o, uint32_t staging, float factor) {
  const uint32_t row = threadIdx.x % 128;
#pragma unroll
  for (int column = 0; column < kHeadDim; column += 32) {
    float values[32];
    tcgen05_ld(o + column, values);
    tcgen05_wait_ld(values);
#pragma unroll
    for (int i = 0; i < 32; i += 8) {
      Vector16 chunk;
#pragma unroll
      for (int j = 0; j < 4; ++j)
        chunk.word[j] = cvt_rn_bf16x2_f32(values[i + j * 2] * factor, values[i + j * 2 + 1] * factor);
      st_shared_v4(staging + row * 128 + ((((column + i) / 8) ^ (row % 8)) << 4), chunk);
    }
  }
}

__device__ __forceinline__ void correct(const FmhaParams& params, const Shared& shared, const Tensor& tensor,
                                        int steps) {
  for (int step = 0; step < steps; ++step)
    for (int tile = 0; tile < 2; ++tile) {
      mbarrier_wait_parity(shared.statistics_full(tile), step & 1);
      tcgen05_fence_after_thread_sync();
      float statistics[2];
      tcgen05_ld(tensor.statistics(tile), statistics);
      tcgen05_wait_ld(statistics);
      tcgen05_fence_before_thread_sync();
      mbarrier_arrive(shared.statistics_empty(tile));
      if (step == 0) continue;
      const float factor = ex2_approx_ftz((statistics[0] - statistics[1]) * params.scale_log2);
      // These statistics come from S of this step. The commit of S covers P V of the step before as well.
      if (__any_sync(0xffffffff, factor < 1)) rescale(tensor.o(tile), factor);
      tcgen05_fence_before_thread_sync();
      mbarrier_arrive(shared.o_rescaled(tile));
    }
  for (int tile = 0; tile < 2; ++tile) {
    mbarrier_wait_parity(shared.statistics_full(tile), steps & 1);
    mbarrier_wait_parity(shared.o_full(tile), 0);
    tcgen05_fence_after_thread_sync();
    float statistics[2];
    tcgen05_ld(tensor.statistics(tile), statistics);
    tcgen05_wait_ld(statistics);
    stage(tensor.o(tile), shared.staging(tile), rcp_approx_ftz(statistics[0]));
    fence_proxy_async_shared();
    mbarrier_arrive(shared.o_staged(tile));
  }
}

__device__ __forceinline__ void store(const FmhaParams& params, const Shared& shared) {
  const int query = blockIdx.x * 2 * kQueries, head = blockIdx.y;
  for (int tile = 0; tile < 2; ++tile) {
    mbarrier_wait_parity(shared.o_staged(tile), 0);
    cp_async_bulk_tensor_3d_store(params.o, 0, query + tile * kQueries, head, shared.staging(tile));
    cp_async_bulk_commit_group();
  }
  cp_async_bulk_wait_group_read<0>();  // shared memory goes with the CTA
}

__device__ __forceinline__ void init(const Shared& shared) {
  for (int slot = 0; slot < kStages; ++slot) {
    mbarrier_init(shared.kv_full(slot), 1);
    mbarrier_init(shared.kv_empty(slot), 1);
  }
  for (int tile = 0; tile < 2; ++tile) {
    mbarrier_init(shared.q_full(tile), 1);
    mbarrier_init(shared.s_full(tile), 1);
    mbarrier_init(shared.p_full(tile), 128);
    mbarrier_init(shared.statistics_full(tile), 128);
    mbarrier_init(shared.statistics_empty(tile), 128);
    mbarrier_init(shared.o_full(tile), 1);
    mbarrier_init(shared.o_rescaled(tile), 128);
    mbarrier_init(shared.o_staged(tile), 128);
  }
  fence_mbarrier_init();
}

}  // namespace
}  // namespace kernelwright::test

extern "C" __global__ void __launch_bounds__(kernelwright::test::kFmhaThreads, 1)
    fmha_sm100(const __grid_constant__ kernelwright::test::FmhaParams params) {
  using namespace kernelwright::test;
  extern __shared__ __align__(1024) unsigned char memory[];
  const Shared shared{shared_address(memory)};
  const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);  // the same in all lanes, to the compiler too
  const int steps = (params.kv_len + kKeys - 1) / kKeys;
  if (warp == kLoadWarp && elect_one()) init(shared);
  if (warp == kMmaWarp) {
    tcgen05_alloc(shared.tensor_address(), kColumns);
    tcgen05_relinquish_alloc_permit();
  }
  __syncthreads();
  const Tensor tensor{ld_shared_u32(shared.tensor_address())}, own = tensor.lanes_of(warp);

  if (warp < 8) {
    setmaxnreg_inc<kSoftmaxRegisters>();
    softmax(params, shared, own, warp / 4, steps);
  } else if (warp < kMmaWarp) {
    setmaxnreg_dec<kCorrectionRegisters>();
    correct(params, shared, own, steps);
    tcgen05_fence_before_thread_sync();
    bar_arrive(kEndBarrier, kEndThreads);
  } else {
    setmaxnreg_dec<kOtherRegisters>();
    if (warp == kLoadWarp) {
      if (elect_one()) load(params, shared, steps);
    } else if (warp == kStoreWarp) {
      if (elect_one()) store(params, shared);
    } else if (warp == kMmaWarp) {
      if (elect_one()) multiply(shared, tensor, steps);
      __syncwarp();
      bar_sync(kEndBarrier, kEndThreads);
      tcgen05_fence_after_thread_sync();
      tcgen05_dealloc(tensor.base, kColumns);
    }
  }
}

/// O = softmax(scale Q K^T + bias) V in bf16, with the online softmax of Milakov and Gimelshein (arXiv:1805.02867).
///
/// Warpgroup 0 loads (one thread of it): Q once, K with its bias and V through two rings. Warpgroups 1 and 2 have 64
/// queries each and take turns to issue their products, so that one's softmax runs beside the other's. Scores stay in
/// registers: S = Q K^T comes from shared memory, P goes as a register operand into O += P V, where V is MN-major.
#include "spec.h"

#include "ptx/barrier.cuh"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"

namespace kernelwright::test {

using namespace ptx;

namespace {

constexpr AttentionVariant kVariant = spec::kVariant;
constexpr int kHeadDim = kVariant.head_dim, kBlockN = kVariant.block_n, kStages = kVariant.stages;
constexpr int kSlabs = kHeadDim / 64;  // 64 columns of bf16 are a row of the swizzle's atom
constexpr uint32_t kQSlabBytes = kAttentionBlockM * 128, kSlabBytes = kBlockN * 128;
constexpr uint32_t kSlotBytes = attention_slot_bytes(kVariant), kBiasBytes = attention_bias_bytes(kVariant);
constexpr int kConsumerWarps = 8;
// 168 registers for each of 384 threads at the launch, then 40 x 128 + 232 x 256.
constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
constexpr float kLog2E = 1.4426950408889634f;

struct Shared {
  uint32_t base;
  __device__ uint32_t q(uint32_t consumer) const { return base + consumer * 64 * 128; }
  __device__ uint32_t k(uint32_t slot) const { return base + attention_q_bytes(kVariant) + slot * kSlotBytes; }
  __device__ uint32_t v(uint32_t slot) const { return k(kStages + slot); }
  __device__ uint32_t bias(uint32_t slot) const { return k(2 * kStages) + slot * kBiasBytes; }
  __device__ uint32_t full_q(uint32_t consumer) const { return bias(kStages) + consumer * 8; }
  __device__ uint32_t full_k(uint32_t slot) const { return full_q(2) + slot * 8; }
  __device__ uint32_t full_v(uint32_t slot) const { return full_k(kStages + slot); }
  __device__ uint32_t empty_k(uint32_t slot) const { return full_k(2 * kStages + slot); }
  __device__ uint32_t empty_v(uint32_t slot) const { return full_k(3 * kStages + slot); }
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

/// Blocks of keys that some query of this CTA sees; at least one.
__device__ __forceinline__ int blocks_of(const AttentionParams& params) {
  int keys = params.kv_len;
  if constexpr (kVariant.causal) {
    const int past_last = min(static_cast<int>(blockIdx.x + 1) * kAttentionBlockM, params.q_len);
    keys = min(keys, past_last + params.kv_len - params.q_len);
  }
  return max(1, (keys + kBlockN - 1) / kBlockN);
}

// ---- the loading thread ----

__device__ __forceinline__ void load_q(const AttentionParams& params, const Shared& shared, uint32_t consumer) {
  const int row = static_cast<int>(blockIdx.x) * kAttentionBlockM + static_cast<int>(consumer) * 64;
  const uint32_t full = shared.full_q(consumer);
  mbarrier_arrive_expect_tx(full, attention_q_bytes(kVariant) / 2);
#pragma unroll
  for (int slab = 0; slab < kSlabs; ++slab)
    cp_async_bulk_tensor_3d(shared.q(consumer) + slab * kQSlabBytes, params.q, slab * 64, row,
                            static_cast<int>(blockIdx.y), full);
}

__device__ __forceinline__ void load_slot(const TensorMap& map, uint32_t to, int row, uint32_t full) {
#pragma unroll
  for (int slab = 0; slab < kSlabs; ++slab)
    cp_async_bulk_tensor_3d(to + slab * kSlabBytes, map, slab * 64, row, static_cast<int>(blockIdx.y), full);
}

__device__ __forceinline__ void produce(const AttentionParams& params, const Shared& shared) {
  const float* bias = params.bias + static_cast<int64_t>(blockIdx.y) * params.bias_stride;
  const int blocks = blocks_of(params);
  Cursor at;
  load_q(params, shared, 0);
  for (int block = 0; block < blocks; ++block, at.advance()) {
    // A fresh mbarrier counts as past parity 1, so the first lap does not block.
    mbarrier_wait_parity(shared.empty_k(at.slot), at.parity ^ 1);
    const uint32_t full_k = shared.full_k(at.slot), full_v = shared.full_v(at.slot);
    mbarrier_arrive_expect_tx(full_k, kSlotBytes + kBiasBytes);
    load_slot(params.k, shared.k(at.slot), block * kBlockN, full_k);
    cp_async_bulk_load(shared.bias(at.slot), bias + block * kBlockN, kBiasBytes, full_k);
    if (block == 0) load_q(params, shared, 1);  // the first warpgroup is at work by then
    mbarrier_wait_parity(shared.empty_v(at.slot), at.parity ^ 1);
    mbarrier_arrive_expect_tx(full_v, kSlotBytes);
    load_slot(params.v, shared.v(at.slot), block * kBlockN, full_v);
  }
}

// ---- a warpgroup of 64 queries ----

/// What a thread has of its two rows, l/4 and l/4 + 8 of its warp's 16.
struct Rows {
  float largest[2] = {minus_infinity(), minus_infinity()};  // score so far, base 2
  float sum[2] = {0, 0};                                    // of this thread's columns
};

__device__ __forceinline__ void issue_scores(float (&s)[kBlockN / 2], const Shared& shared, uint32_t consumer,
                                             uint32_t slot) {
  const uint64_t q = wgmma_descriptor(shared.q(consumer), 0, 1024), k = wgmma_descriptor(shared.k(slot), 0, 1024);
#pragma unroll
  for (int i = 0; i < kHeadDim / 16; ++i)
    wgmma_ss<DType::kBf16, false>(s, q + (i / 4 * kQSlabBytes + i % 4 * 32) / 16,
                                  k + (i / 4 * kSlabBytes + i % 4 * 32) / 16, i > 0);
  wgmma_commit_group();
}

__device__ __forceinline__ void issue_output(float (&o)[kHeadDim / 2], const uint32_t (&p)[kBlockN / 16][4],
                                             const Shared& shared, uint32_t slot, bool first) {
  const uint64_t v = wgmma_descriptor(shared.v(slot), kSlabBytes, 1024);
#pragma unroll
  for (int i = 0; i < kBlockN / 16; ++i)
    wgmma_rs<DType::kBf16, true>(o, p[i], v + i * (16 * 128 / 16), !first || i > 0);
  wgmma_commit_group();
}

/// Scores to base 2, with bias and mask; then lets go of the slot of K: it is the last to read it.
__device__ __forceinline__ void finish_scores(float (&s)[kBlockN / 2], const AttentionParams& params,
                                              const Shared& shared, uint32_t slot, int block, int first_row) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < kBlockN / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float bias = ld_shared_f32(shared.bias(slot) + (j * 8 + lane % 4 * 2 + i) * 4) * kLog2E;
      s[j * 4 + i] = s[j * 4 + i] * params.scale_log2 + bias;
      s[j * 4 + 2 + i] = s[j * 4 + 2 + i] * params.scale_log2 + bias;
    }
  }
  __syncwarp();  // every lane has read its bias
  if (lane == 0) mbarrier_arrive(shared.empty_k(slot));
  if constexpr (kVariant.causal) {
    const int first_key = block * kBlockN, diagonal = params.kv_len - params.q_len;
    if (first_key + kBlockN - 1 <= first_row + diagonal) return;                  // below it for all 16 rows
    const int last = first_row + lane / 4 + diagonal - first_key - lane % 4 * 2;  // column of 8j + i that is seen last
#pragma unroll
    for (int j = 0; j < kBlockN / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (j * 8 + i % 2 > last + i / 2 * 8) s[j * 4 + i] = minus_infinity();
    }
  }
}

/// Scores to probabilities of the largest so far. `shrink`: what earlier sums are to be multiplied with.
__device__ __forceinline__ void softmax(float (&s)[kBlockN / 2], Rows& rows, float (&shrink)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = rows.largest[half];
#pragma unroll
    for (int j = 0; j < kBlockN / 4; ++j) largest = fmaxf(largest, s[j / 2 * 4 + half * 2 + j % 2]);
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 2));
    const float from = largest == minus_infinity() ? 0 : largest;  // a row that sees nothing yet
    shrink[half] = ex2_approx_ftz(rows.largest[half] - from);
    rows.largest[half] = largest;
    float sum = rows.sum[half] * shrink[half];
#pragma unroll
    for (int j = 0; j < kBlockN / 4; ++j) {
      float& score = s[j / 2 * 4 + half * 2 + j % 2];
      score = ex2_approx_ftz(score - from);
      sum += score;
    }
    rows.sum[half] = sum;
  }
}

__device__ __forceinline__ void multiply_rows(float (&o)[kHeadDim / 2], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < kHeadDim / 2; ++i) o[i] *= factor[i / 2 % 2];
}

/// An accumulator of 16 columns is an operand of 16 k, pair by pair.
__device__ __forceinline__ void pack(const float (&s)[kBlockN / 2], uint32_t (&p)[kBlockN / 16][4]) {
#pragma unroll
  for (int i = 0; i < kBlockN / 4; ++i) p[i / 4][i % 4] = cvt_rn_bf16x2_f32(s[i * 2], s[i * 2 + 1]);
}

__device__ __forceinline__ void store(const float (&o)[kHeadDim / 2], const AttentionParams& params, int first_row) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + half * 8 + lane / 4;
    if (row >= params.q_len) continue;
    const int64_t index = (static_cast<int64_t>(blockIdx.y) * params.q_len + row) * kHeadDim + lane % 4 * 2;
    uint32_t* const to = reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(params.o) + index);
#pragma unroll
    for (int j = 0; j < kHeadDim / 8; ++j) to[j * 4] = cvt_rn_bf16x2_f32(o[j * 4 + half * 2], o[j * 4 + half * 2 + 1]);
  }
}

/// The turn to issue products: barrier 1 is the first warpgroup's, 2 the second's. Each hands the turn to the other.
struct Turns {
  uint32_t consumer;
  __device__ void wait() const { bar_sync(1 + consumer, 256); }
  __device__ void pass() const { bar_arrive(2 - consumer, 256); }
};

__device__ __forceinline__ void consume(const AttentionParams& params, const Shared& shared, uint32_t consumer) {
  const uint32_t lane = threadIdx.x % 32;
  const int first_row = static_cast<int>(blockIdx.x) * kAttentionBlockM + threadIdx.x / 32 * 16 - 64;  // of this warp
  const int blocks = blocks_of(params);
  const Turns turns{consumer};
  Cursor at;    // of K
  Cursor at_v;  // one step behind where they overlap
  Rows rows;
  // The first products overwrite them. Yet ptxas 12.8 serialises wgmma on accumulators that nobody has set (C7515).
  float s[kBlockN / 2] = {}, o[kHeadDim / 2] = {};
  float shrink[2];
  uint32_t p[kBlockN / 16][4];
  const auto release_v = [&] {
    if (lane == 0) mbarrier_arrive(shared.empty_v(at_v.slot));  // wgmma alone read it, and it was waited for
    at_v.advance();
  };
  /// Registers ready, then the turn: from here to pass() this warpgroup alone issues products.
  const auto begin_scores = [&] {
    mbarrier_wait_parity(shared.full_k(at.slot), at.parity);
    turns.wait();
    pin_registers(s);
    wgmma_fence();
    issue_scores(s, shared, consumer, at.slot);
  };
  const auto pass = [&](int block) {
    if (consumer == 0 || block + 1 < blocks) turns.pass();  // after the second one's last turn nobody waits
  };
  const auto output = [&](bool first) {
    mbarrier_wait_parity(shared.full_v(at_v.slot), at_v.parity);
    pin_registers(o);
    pin_registers(p);
    wgmma_fence();
    issue_output(o, p, shared, at_v.slot, first);
    wgmma_wait_group<0>();
    pin_registers(o);
    pin_registers(p);
    release_v();
  };

  if (consumer == 1) turns.pass();  // the first turn is the first warpgroup's
  mbarrier_wait_parity(shared.full_q(consumer), 0);
  if constexpr (!kVariant.overlap) {
#pragma unroll 1
    for (int block = 0; block < blocks; ++block, at.advance()) {
      begin_scores();
      pass(block);
      wgmma_wait_group<0>();
      pin_registers(s);
      finish_scores(s, params, shared, at.slot, block, first_row);
      softmax(s, rows, shrink);
      if (block > 0) multiply_rows(o, shrink);
      pack(s, p);
      output(block == 0);
    }
  } else {
    begin_scores();
    pass(0);
    wgmma_wait_group<0>();
    pin_registers(s);
    finish_scores(s, params, shared, at.slot, 0, first_row);
    at.advance();
    softmax(s, rows, shrink);
    pack(s, p);
#pragma unroll 1
    for (int block = 1; block < blocks; ++block, at.advance()) {
      mbarrier_wait_parity(shared.full_v(at_v.slot), at_v.parity);
      pin_registers(o);
      pin_registers(p);
      begin_scores();
      issue_output(o, p, shared, at_v.slot, block == 1);
      pass(block);
      wgmma_wait_group<1>();  // the scores; the output is still being summed
      pin_registers(s);
      finish_scores(s, params, shared, at.slot, block, first_row);
      softmax(s, rows, shrink);
      wgmma_wait_group<0>();
      pin_registers(o);
      pin_registers(p);
      release_v();
      multiply_rows(o, shrink);
      pack(s, p);
    }
    output(blocks == 1);
  }

  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = rows.sum[half];
    sum += __shfl_xor_sync(0xffffffff, sum, 1);
    sum += __shfl_xor_sync(0xffffffff, sum, 2);
    inverse[half] = sum == 0 ? 0 : 1 / sum;
  }
  multiply_rows(o, inverse);
  store(o, params, first_row);
}

}  // namespace
}  // namespace kernelwright::test

extern "C" __global__ void __launch_bounds__(kernelwright::test::kAttentionThreads, 1)
    attention_sm90(const __grid_constant__ kernelwright::test::AttentionParams params) {
  using namespace kernelwright::test;
  extern __shared__ __align__(1024) unsigned char memory[];
  const Shared shared{shared_address(memory)};
  const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);  // the same in all lanes, to the compiler too
  if (threadIdx.x == 0) {
    for (int consumer = 0; consumer < 2; ++consumer) mbarrier_init(shared.full_q(consumer), 1);
    for (int slot = 0; slot < 2 * kStages; ++slot) {
      mbarrier_init(shared.full_k(slot), 1);  // and full_v behind
      mbarrier_init(shared.empty_k(slot), kConsumerWarps);
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

/// The row of a token is the sum of the rows that its experts made, each times its weight, in the order of slots. A
/// thread has eight neighbouring elements of one token. It loads the token's positions and weights, then copies its
/// part of all rows to shared memory, so that all are in flight at once, and adds. Loads to registers would not be:
/// ptxas moves each behind the sum before it. No two threads meet, so a token's row is dealt to as many CTAs as it
/// fills.
///
/// A row whose weight is 0 is not read, so nothing in it spreads.
#include "spec.h"

#include "contract/moe_combine.h"
#include "policy/load_words.cuh"
#include "policy/row_words.cuh"
#include "ptx/launch.cuh"

namespace kernelwright {

using Params = contract::MoeCombineParams;
using policy::HeadVector;
using Words = policy::RowWords<spec::kInDType>;
using Element = tile::Storage<spec::kInDType>;

enum : int { kVectors = contract::vectors_of_row(spec::kWidth), kOutWords = policy::kWordsOfEight<spec::kOutDType> };

/// Loads a word of each slot of a token.
__device__ __forceinline__ void load_slots(const void* from, uint32_t (&words)[spec::kTopK]) {
  constexpr int kOfLoad = contract::slots_of_load(spec::kTopK);
#pragma unroll
  for (int i = 0; i < spec::kTopK; i += kOfLoad)
    policy::load_words<kOfLoad>(static_cast<const char*>(from) + 4 * i, true, words + i);
}

__device__ __forceinline__ void add(const Words& row, float weight, HeadVector& sum) {
#pragma unroll
  for (int e = 0; e < policy::kLaneElements; ++e) {
    if constexpr (spec::kWeighted)
      sum[e] = fmaf(weight, row.value(e), sum[e]);
    else
      sum[e] += row.value(e);
  }
}

__device__ __forceinline__ void combine(const Params& params, int64_t token, int vector) {
  __shared__ ptx::Vector16 parts[spec::kTopK][spec::kThreads];
  const int at = vector * policy::kLaneElements;
  uint32_t positions[spec::kTopK], weights[spec::kTopK] = {};
  load_slots(params.positions + token * spec::kTopK, positions);
  if constexpr (spec::kWeighted) load_slots(params.weights + token * spec::kTopK, weights);
  Words residual;
  if constexpr (spec::kAdds)
    residual.load_once<true>(static_cast<const Element*>(params.residual) + token * params.residual_stride + at, true);
  const auto* const rows = static_cast<const Element*>(params.rows) + at;
#pragma unroll
  for (int slot = 0; slot < spec::kTopK; ++slot) {
    bool exists = positions[slot] < params.num_rows;
    if constexpr (spec::kWeighted) {
      exists = exists && __uint_as_float(weights[slot]) != 0.f;
      weights[slot] = exists ? weights[slot] : 0;  // infinity times the zeros of a row that is not there is NaN
    }
    ptx::cp_async_cg_16(ptx::shared_address(&parts[slot][threadIdx.x]),
                        rows + (exists ? positions[slot] * params.rows_stride : 0), exists ? 16 : 0);
  }
  ptx::cp_async_wait_all();
  HeadVector sum = {};
#pragma unroll
  for (int slot = 0; slot < spec::kTopK; ++slot) {
    Words row;
    row.vector[0] = ptx::ld_shared_v4(ptx::shared_address(&parts[slot][threadIdx.x]));
    add(row, __uint_as_float(weights[slot]), sum);
  }
  if constexpr (spec::kAdds) {
#pragma unroll
    for (int e = 0; e < policy::kLaneElements; ++e) sum[e] += residual.value(e);
  }
  uint32_t words[kOutWords];
  policy::pack_eight<spec::kOutDType, spec::kArch>(sum, 1.f, words);
  policy::store_words(static_cast<char*>(params.out) + (token * params.out_stride + at) * bits_of(spec::kOutDType) / 8,
                      words);
}

}  // namespace kernelwright

extern "C" __global__ void __launch_bounds__(kernelwright::spec::kThreads)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::contract::MoeCombineParams params) {
  using namespace kernelwright;
  const int64_t thread = int64_t{blockIdx.x} * spec::kThreads + threadIdx.x;
  const int64_t token = thread / kVectors;
  if constexpr (spec::kArch >= 90) {
    ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();
  }
  if (token < params.tokens) combine(params, token, static_cast<int>(thread - token * kVectors));
}

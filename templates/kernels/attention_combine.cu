/// Merges the parts of split keys: O = sum_s w_s O_s / sum_s w_s with w_s = 2^lse_s. One warp a row, in the order of
/// the parts, so that the result does not depend on who finished first. A part that saw no key has lse -inf and an
/// output of zeros.
#include "spec.h"

#include "contract/attention_params.h"
#include "contract/spec_words.h"
#include "policy/score_mod.cuh"
#include "policy/softmax.cuh"
#include "ptx/launch.cuh"
#include "ptx/math.cuh"
#include "tile/row_tile.cuh"

extern "C" __global__ void __launch_bounds__(128)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::contract::CombineParams params) {
  using namespace kernelwright;
  if constexpr (spec::kArch >= 90) ptx::griddepcontrol_wait();
  const int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= params.rows) return;

  const auto lse_of = [&](int part) {
    return part < params.num_splits ? params.partial_lse[static_cast<int64_t>(part) * params.rows + row]
                                    : ptx::minus_infinity();
  };
  float largest = ptx::minus_infinity();
  bool seen = false;  // some part saw a key; its lse may be NaN, which fmaxf would drop
#pragma unroll 1
  for (int part = lane; part < params.num_splits; part += 32) {
    const float lse = lse_of(part);
    seen |= lse != ptx::minus_infinity();
    largest = fmaxf(largest, lse);
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, distance));
  if (largest == ptx::minus_infinity()) largest = 0;  // nothing was seen, or only NaN

  constexpr int kPairs = (spec::kHeadDimV + 63) / 64;  // pairs of columns to a lane
  float2 sum[kPairs] = {};
  float total = 0;
  if (__any_sync(0xffffffff, seen)) {
#pragma unroll 1
    for (int first = 0; first < params.num_splits; first += 32) {
      // A lane weighs one part for all: then no load of an output waits for another.
      const float weight = ptx::ex2_approx_ftz(lse_of(first + lane) - largest);
      total += weight;
      const int parts = min(32, params.num_splits - first);
#pragma unroll 8
      for (int s = 0; s < parts; ++s) {
        const float share = __shfl_sync(0xffffffff, weight, s);
        const float* part = params.partial_o + (static_cast<int64_t>(first + s) * params.rows + row) * spec::kHeadDimV;
#pragma unroll
        for (int j = 0; j < kPairs; ++j) {
          const int column = (j * 32 + lane) * 2;
          if (spec::kHeadDimV % 64 != 0 && column >= spec::kHeadDimV) continue;
          const float2 value = *reinterpret_cast<const float2*>(part + column);
          sum[j].x += share * value.x, sum[j].y += share * value.y;
        }
      }
    }
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) total += __shfl_xor_sync(0xffffffff, total, distance);

  const float inverse = total == 0 ? 0 : 1 / total;
  const int q_head = row % params.q_heads;
  const int64_t token = row / params.q_heads;  // over the whole batch
  const int64_t batch = params.q_len > 0 ? token / params.q_len : 0;
  const int64_t query = token - batch * params.q_len;
  const int64_t offset =
      batch * params.o_strides.batch + query * params.o_strides.token + q_head * params.o_strides.head;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int column = (i * 32 + lane) * 2;
    if (spec::kHeadDimV % 64 != 0 && column >= spec::kHeadDimV) continue;
    tile::store_pair<spec::kOutDType>(params.o, offset + column, sum[i].x * inverse, sum[i].y * inverse);
  }
  if (spec::kLse && lane == 0) {
    const float log2_sum = total == 0 ? ptx::minus_infinity() : largest + ptx::lg2_approx_ftz(total);
    const int64_t index =
        params.q_len > 0 ? (batch * params.q_heads + q_head) * params.q_len + query : token * params.q_heads + q_head;
    params.lse[index] = log2_sum * policy::kLn2;
  }
}

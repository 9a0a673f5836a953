/// How a math warpgroup of attention_sm90 takes tiles of V, and cleans them of keys that are not the sequence's.
#pragma once

#include "kernels/attention/sm90/attention_sm90_math.cuh"

namespace kernelwright {
namespace {

/// Waits for the first sub-stage of the next tile of V. kCleans: writes zeros for keys that are not the sequence's, in
/// any of its sub-stages. Their probability is 0, but 0 times the bytes there may be NaN.
template <bool kCleans>
__device__ __forceinline__ uint32_t MathWarpgroup::take_values() {
  const uint32_t values = tiles_.template wait_v<0>();
  if constexpr (kCleans && kMathCleansFirst) clean_first(values);
  if (kCleans && last_keys_ < spec::kBlockN) {
    tiles_.template wait_more_v<1>();
    clear_last_keys(values, last_keys_);
    ptx::fence_proxy_async_shared();
    ptx::bar_sync(kCleanBarrier, kMathThreads);
    last_keys_ = spec::kBlockN;
  }
  return values;
}

/// Writes zeros for keys before the sequence's start, with which an item's first tile may begin.
__device__ __forceinline__ void MathWarpgroup::clean_first(uint32_t values) {
  if (hidden_keys() == 0) return;
  tiles_.template wait_more_v<1>();
  clear_first_keys(values, hidden_keys());
  ptx::fence_proxy_async_shared();
  ptx::bar_sync(kCleanBarrier, kMathThreads);
  hide(0);
}

/// The item's count is read late. Where warpgroups may have no rows, that read would stand behind a condition; there it
/// is read early.
__device__ __forceinline__ void MathWarpgroup::note_last_keys() {
  const int keys = kSkipsRows || kOthersClean ? posted_keys_ : ptx::uniform(item_.last_keys<kHidesInTiles>());
  last_keys_ = foreign_keys() ? keys : spec::kBlockN;
}

/// Whether a tile of V may hold more than the sequence's keys. TMA fills with zeros past the end of a tensor. Gathering
/// and converting warps write zeros for all other keys.
__device__ __forceinline__ bool MathWarpgroup::foreign_keys() const {
  if constexpr (kOthersClean) return false;
  return spec::kKvLayout != KvLayoutKind::kPadded || params_.kv_lengths != nullptr;
}

}  // namespace
}  // namespace kernelwright

/// Neighbouring words, loaded at once.
#pragma once

#include "ptx/memory.cuh"

namespace kernelwright::policy {

/// kCount words, 1, 2 or 4, to whose bytes `from` is aligned. Where they do not exist, nothing is read, and they are 0.
template <int kCount>
__device__ __forceinline__ void load_words(const void* from, bool exists, uint32_t* words) {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4);
  if constexpr (kCount == 4) {
    const ptx::Vector16 vector = ptx::ld_global_v4_if(from, exists);
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = vector.word[i];
  } else if constexpr (kCount == 2) {
    ptx::ld_global_v2_u32_if(words, from, exists);
  } else {
    words[0] = ptx::ld_global_u32_if(from, exists);
  }
}

}  // namespace kernelwright::policy

/// As mbarrier.cuh beside it, for templates/ptx/tcgen05.cuh: fences, of which a model of orders has no need.
#pragma once

#include "ptx/mbarrier.cuh"

namespace kernelwright::ptx {

inline void tcgen05_fence_before_thread_sync() {}
inline void tcgen05_fence_after_thread_sync() {}

}  // namespace kernelwright::ptx

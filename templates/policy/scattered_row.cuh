/// Rows of a GEMM's result whose places the launch gives.
#pragma once

#include "contract/gemm_groups.h"
#include "ptx/atomic.cuh"
#include "ptx/memory.cuh"

namespace kernelwright::policy {

/// The row of d that row `row` of the groups becomes; -1: none. So are rows that do not exist. If d has no such row,
/// the status says so: many threads may write it, and all write 1. Lanes stay together.
__device__ __forceinline__ int scattered_row(const contract::GemmGroupsParams& groups, int row, bool exists) {
  const int to = static_cast<int>(ptx::ld_global_u32_if(groups.scatter + row, exists));
  const bool fits = static_cast<uint32_t>(to) < static_cast<uint32_t>(groups.result_rows);
  ptx::st_relaxed_gpu_s32_if(groups.status, 1, exists && !fits && to != -1 && groups.status != nullptr);
  return exists && fits ? to : -1;
}

}  // namespace kernelwright::policy

/// Where the scales of groups of rows lie in atoms: contract/scale_atoms.h. A CTA counts them once, from its table of
/// groups.
#pragma once

#include "contract/gemm_groups.h"
#include "contract/scale_atoms.h"
#include "policy/running_sum.cuh"
#include "ptx/memory.cuh"

namespace kernelwright::policy {

/// kGroups: groups for which the table has room.
template <int kGroups>
class GroupAtoms {
 public:
  /// `table`: of groups. The atoms ahead of each group are words behind it.
  explicit __device__ __forceinline__ GroupAtoms(uint32_t table) : table_(table) {}

  /// Called by all `threads` of the CTA, whose number is a multiple of 32, behind GroupTable::make() of `count` groups.
  /// The caller synchronises the CTA behind it.
  template <class Table>
  __device__ __forceinline__ void make(const Table& groups, int count, int threads) const {
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
    int ahead = 0;  // of the groups of earlier passes
#pragma unroll 1
    for (int base = 0; base < count; base += threads) {
      const int group = base + thread;
      int own = 0;
      if (group < count) {
        const typename Table::Rows rows = groups.rows_of(group);
        own = (rows.end - rows.first + contract::ScaleAtom::kRows - 1) / contract::ScaleAtom::kRows;
      }
      const int up_to = running_sum(own, lane);  // of the warp's groups up to this one
      if (lane == 31) ptx::st_shared_u32(total(warp), static_cast<uint32_t>(up_to));
      __syncthreads();
      int before = ahead + up_to - own;
#pragma unroll 1
      for (int i = 0; i < threads / 32; ++i) {
        const int of_warp = static_cast<int>(ptx::ld_shared_u32(total(i)));
        before += i < warp ? of_warp : 0;
        ahead += of_warp;
      }
      if (group < count) ptx::st_shared_u32(place(group), static_cast<uint32_t>(before));
      __syncthreads();  // totals are free again
    }
  }

  /// Rows of atoms ahead of those of a group.
  __device__ __forceinline__ int ahead_of(int group) const {
    return static_cast<int>(ptx::ld_shared_u32(place(group)));
  }

 private:
  __device__ __forceinline__ uint32_t place(int group) const {
    return table_ + contract::gemm_group_table(kGroups).total + static_cast<uint32_t>(group) * 4;
  }
  __device__ __forceinline__ uint32_t total(int warp) const {
    return table_ + contract::gemm_group_table(kGroups).totals + static_cast<uint32_t>(warp) * 4;
  }

  const uint32_t table_;
};

}  // namespace kernelwright::policy

/// Groups of rows of a GEMM: where they begin and end, and which tile of which group an item is. Of kind k, the rows
/// are those of a and b, and each group has as many tiles.
///
/// Bounds are in device memory, and a launch ahead may have written them. Each CTA reads all of them once, with all its
/// threads, and keeps a table in shared memory. There each role finds its tiles, or one warp finds them for all roles.
#pragma once

#include "contract/gemm_groups.h"
#include "policy/running_sum.cuh"
#include "ptx/memory.cuh"

namespace kernelwright::policy {

/// kGroups: groups for which the table has room. kTileRows: rows of a and d that a CTA or a cluster takes at a time.
/// kPointers: the launch gives the addresses of matrices b. Those of groups with rows must be multiples of 16, not
/// null.
template <GroupKind kKind, GroupBounds kBounds, int kGroups, int kTileRows, bool kPointers>
class GroupTable {
  static constexpr int kMatrixAlignment = 16;  // of copies of 16 bytes
  static constexpr contract::GemmGroupTable kTable = contract::gemm_group_table(kGroups);

 public:
  /// A group, and the tile of its rows and columns that an item is.
  struct Item {
    int group;
    int first, end;     // the group's rows of a and d
    int tiles, within;  // tiles of its rows; the item among those of the group
  };

  __device__ __forceinline__ GroupTable(uint32_t table, const contract::GemmGroupsParams& params)
      : table_(table), count_(min(params.count, kGroups)) {}

  /// Called by all `threads` of the CTA, whose number is a multiple of 32, once the bounds can be read. The caller
  /// synchronises the CTA behind it. If a bound does not fit, there are no tiles at all, and the status says so.
  __device__ __forceinline__ void make(const contract::GemmGroupsParams& params, int threads) const {
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
    int ahead = 0;  // tiles of the groups of earlier passes
    bool fit = true;
#pragma unroll 1
    for (int base = 0; base < count_; base += threads) {
      const int group = base + thread;
      int first = 0, end = 0;
      if (group < count_) fit = read(params, group, first, end) && fit;
      const int tiles = kKind == GroupKind::kK ? 1 : (end - first + kTileRows - 1) / kTileRows;
      const int up_to = running_sum(tiles, lane);  // tiles of the warp's groups up to this one
      if (lane == 31) ptx::st_shared_u32(total(warp), static_cast<uint32_t>(up_to));
      __syncthreads();
      int warps_ahead = 0, all = 0;
#pragma unroll 1
      for (int i = 0; i < threads / 32; ++i) {
        const int of_warp = static_cast<int>(ptx::ld_shared_u32(total(i)));
        warps_ahead += i < warp ? of_warp : 0;
        all += of_warp;
      }
      if (group < count_) {
        ptx::st_shared_u32(tiles_ahead(group), static_cast<uint32_t>(ahead + warps_ahead + up_to - tiles));
        ptx::st_shared_u32(rows(group), static_cast<uint32_t>(first));
        ptx::st_shared_u32(rows(group) + 4, static_cast<uint32_t>(end));
      }
      ahead += all;
      __syncthreads();  // totals are free again
    }
    const bool all_fit = __syncthreads_and(fit) != 0;
    if (thread > 0) return;
    ptx::st_shared_u32(tiles_ahead(count_), all_fit ? static_cast<uint32_t>(ahead) : 0);
    if (!all_fit && blockIdx.x == 0 && params.status) ptx::st_global_u32(params.status, 1);
  }

  /// Tiles of rows, of all groups. Of kind k, groups.
  __device__ __forceinline__ int tiles() const { return at(tiles_ahead(count_)); }

  /// The rows of a group: from `first` to `end` - 1.
  struct Rows {
    int first, end;
  };
  __device__ __forceinline__ Rows rows_of(int group) const { return {at(rows(group)), at(rows(group) + 4)}; }

  /// Item `index` of tiles() * `columns`. Items of a group follow each other. Called by one thread.
  __device__ __forceinline__ Item find(int index, int columns) const {
    const int tile = index / columns;
    int low = 0, high = count_;  // the last group with at most `tile` tiles ahead of it is in [low, high)
#pragma unroll 1
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (at(tiles_ahead(middle)) <= tile)
        low = middle;
      else
        high = middle;
    }
    return item(low, index, columns);
  }
  /// The same by a whole warp, whose lanes look at 32 groups at once: two steps find one of 1024.
  __device__ __forceinline__ Item find_by_warp(int index, int columns) const {
    constexpr int kRun = (kGroups + 31) / 32;  // groups for each lane in the first step
    const int tile = index / columns, lane = static_cast<int>(threadIdx.x % 32);
    const int run = last_with(lane * kRun, tile) * kRun;
    int group = run;
#pragma unroll 1
    for (int first = run; first < run + kRun && first < count_; first += 32) {
      const uint32_t fit = with_at_most(first + lane < run + kRun ? first + lane : count_, tile);
      if (fit == 0) break;
      group = first + __popc(fit) - 1;
    }
    return item(group, index, columns);
  }

 private:
  /// Lanes whose group has at most `tile` tiles ahead of it: the first ones, as groups ascend with lanes.
  __device__ __forceinline__ uint32_t with_at_most(int group, int tile) const {
    return __ballot_sync(0xffffffff, group < count_ && at(tiles_ahead(min(group, count_))) <= tile);
  }
  __device__ __forceinline__ int last_with(int group, int tile) const { return __popc(with_at_most(group, tile)) - 1; }
  __device__ __forceinline__ Item item(int group, int index, int columns) const {
    const int ahead = at(tiles_ahead(group));
    return {group, at(rows(group)), at(rows(group) + 4), at(tiles_ahead(group + 1)) - ahead, index - ahead * columns};
  }
  /// Reads the rows of a group. False: its bounds do not fit, and it has none.
  __device__ __forceinline__ static bool read(const contract::GemmGroupsParams& params, int group, int& first,
                                              int& end) {
    const int32_t* const bounds = ptx::opaque(params.bounds);
    int from = 0, to = 0;
    bool fits = true;
    if constexpr (kKind == GroupKind::kMasked) {
      const int count = ptx::ld_global_settled_s32(bounds + group);
      fits = count >= 0 && count <= params.capacity;
      from = group * params.capacity, to = from + count;
    } else {
      if constexpr (kBounds == GroupBounds::kStarts) {
        from = ptx::ld_global_settled_s32(bounds + group);
        to = ptx::ld_global_settled_s32(bounds + group + 1);
      } else {
        from = group > 0 ? ptx::ld_global_settled_s32(bounds + group - 1) : 0;
        to = ptx::ld_global_settled_s32(bounds + group);
      }
      fits = 0 <= from && from <= to && to <= params.rows;
    }
    if constexpr (kPointers) {
      if (fits && to > from) {
        const int64_t matrix = ptx::ld_global_s64(params.pointers + group);
        fits = matrix != 0 && matrix % kMatrixAlignment == 0;
      }
    }
    first = fits ? from : 0, end = fits ? to : 0;
    return fits;
  }

  __device__ __forceinline__ static int at(uint32_t address) { return static_cast<int>(ptx::ld_shared_u32(address)); }
  __device__ __forceinline__ uint32_t tiles_ahead(int group) const {
    return table_ + kTable.first + static_cast<uint32_t>(group) * 4;
  }
  __device__ __forceinline__ uint32_t rows(int group) const {
    return table_ + kTable.rows + static_cast<uint32_t>(group) * 8;
  }
  __device__ __forceinline__ uint32_t total(int warp) const {
    return table_ + kTable.totals + static_cast<uint32_t>(warp) * 4;
  }

  const uint32_t table_;
  const int count_;
};

}  // namespace kernelwright::policy

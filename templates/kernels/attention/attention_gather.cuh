/// K and V for pages that are no multiple of 8 keys: no box of TMA lies within such a page. Two warps copy the rows one
/// by one, 16 bytes a lane, to the places where TMA's swizzle would put them.
///
/// They fill the rings that TMA would fill. Each lane works alone. Its copies arrive on a slot's full barrier when they
/// are done, so copies to all free slots are in flight at once. A row that the item does not see becomes zeros, and its
/// page is not looked up. A row on a page that does not exist becomes zeros too. attention_sm90_gather.cuh and
/// attention_sm100_load.cuh have the walk over tiles.
#pragma once

#include "kernels/attention/attention_mapped.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

constexpr int kGatherWarps = 2, kGatherThreads = kGatherWarps * 32;

/// A lane of a gathering warp.
///
/// One cp.async of a warp copies 128 bytes of four rows: lanes 8q to 8q + 7 have row q. The warps take such groups of
/// four in turn, so that all rows of a lane have the same place in the swizzle's pattern of 8. One lane computes a
/// row's address once, for K and for V, and leaves it in shared memory, because there are no registers for it.
class RowGather {
  static constexpr uint32_t kRows = spec::kBlockN / kGatherWarps;  // rows of a tile that a warp copies
  static constexpr uint32_t kGroups = kRows / 4;
  static constexpr uint32_t kAddressBytes = 8, kTableBytes = kRows * kAddressBytes;
  static constexpr uint32_t kPage = spec::kPageSize > 0 ? spec::kPageSize : 1;
  static_assert(spec::kBlockN % 16 == 0 && kGatherWarps == 2, "two warps have every other group of four rows");
  static_assert(!kGathersKv || kShares == 1, "a thread copies to its own CTA");

 public:
  /// `tables`: the addresses of rows in shared memory, [1 tile of K, 2 of V][kBlockN] of 8 bytes.
  __device__ __forceinline__ RowGather(const contract::AttentionParams& params, uint32_t tables, uint32_t warp)
      : params_(params), tables_(tables), warp_(warp) {}

  /// The page table of a sequence.
  __device__ __forceinline__ const int32_t* pages(int batch) const {
    return params_.page_table + static_cast<int64_t>(batch) * params_.page_table_stride;
  }

  /// Finds the rows of a tile for K and V, those of step `step`. Row i of the warp is row i / 4 * 8 + 4 * warp + i % 4
  /// of the tile.
  __device__ __forceinline__ void look_up(const KvTile& tile, uint32_t step) const {
    __syncwarp();  // all lanes have read the old tables
    const uint32_t lane = opaque_lane();
#pragma unroll
    for (uint32_t first = 0; first < kRows; first += 32) {
      const uint32_t i = first + lane;
      if (first + 32 > kRows && i >= kRows) break;
      const int key = tile.first_key + static_cast<int>(i / 4 * 8 + warp_ * 4 + i % 4);
      uint64_t k = 0, v = 0;
      if (key >= tile.low && key < tile.high) {
        const int64_t page = ptx::ld_global_settled_s32(tile.pages + static_cast<uint32_t>(key) / kPage);
        if (static_cast<uint32_t>(page) < static_cast<uint32_t>(params_.num_pages)) {
          k = address(params_.k, params_.k_strides, page, static_cast<uint32_t>(key) % kPage, tile.head);
          v = address(params_.v, params_.v_strides, page, static_cast<uint32_t>(key) % kPage, tile.head);
        }
      }
      const uint32_t entry = (i % 4 * kGroups + i / 4) * kAddressBytes;
      ptx::st_shared_u64(key_table() + entry, k);
      ptx::st_shared_u64(value_table(step) + entry, v);
    }
    __syncwarp();
  }
  /// Copies the next tile of K, whose rows were looked up last.
  template <class Keys>
  __device__ __forceinline__ void gather_keys(Keys& keys) const {
    gather_chunks<0>(keys);
  }
  /// Copies the next tile of V, of step `step`.
  template <class Values>
  __device__ __forceinline__ void gather_values(Values& values, uint32_t step) const {
    gather_value_stages<0>(values, step);
  }

 private:
  // Addresses of the warp's rows: of the tile of K, and of the tiles of V of two steps. They are [4][groups], so that a
  // lane reads those of two groups at once. 0: the row becomes zeros.
  __device__ __forceinline__ uint32_t table(uint32_t which) const {
    return tables_ + (which * kGatherWarps + warp_) * kTableBytes;
  }
  __device__ __forceinline__ uint32_t key_table() const { return table(0); }
  __device__ __forceinline__ uint32_t value_table(uint32_t step) const { return table(1 + step % 2); }

  /// Opaque: values that follow from the lane alone are computed anew for every tile.
  static __device__ __forceinline__ uint32_t opaque_lane() { return ptx::opaque(threadIdx.x) % 32; }

  static __device__ __forceinline__ uint64_t address(const void* tensor, const contract::Strides& strides, int64_t page,
                                                     uint32_t token, int head) {
    return reinterpret_cast<uint64_t>(tensor) +
           kElementBytes * (page * strides.batch + static_cast<int64_t>(token) * strides.token + head * strides.head);
  }

  template <int kChunk, class Keys>
  __device__ __forceinline__ void gather_chunks(Keys& keys) const {
    constexpr int kSlabs =
        contract::slabs_of(spec::kHeadDimQk, kElementBytes, spec::kSwizzleBytes) / spec::kNumQkStages;
    keys.template acquire_k<kChunk>();
    copy<kChunk * kSlabs, kSlabs, spec::kHeadDimQk, spec::kBlockN>(key_table(), keys.template get_k_smem<kChunk>());
    keys.template arrive_with_copies<kChunk>();
    if constexpr (kChunk + 1 < spec::kNumQkStages)
      gather_chunks<kChunk + 1>(keys);
    else
      keys.commit_step();
  }

  static constexpr int kLineBytes = 128;  // bytes of a row that eight lanes copy at a time
  /// The place of piece `chunk` of a line, relative to the row's place in the line's first slab. Slabs have kKeys rows.
  /// `row` is below 8.
  template <int kKeys>
  static __device__ __forceinline__ uint32_t place(uint32_t chunk, uint32_t row) {
    if constexpr (kRowPieces == kLineBytes / 16) return (chunk ^ row) * 16;
    return chunk / kRowPieces * (kKeys * kRowBytes) +
           (chunk % kRowPieces ^ contract::swizzle_of_row(row, spec::kSwizzleBytes)) * 16;
  }

  template <int kStage, class Values>
  __device__ __forceinline__ void gather_value_stages(Values& values, uint32_t step) const {
    values.template acquire_v<kStage>();
    copy<0, kSlabsV, spec::kHeadDimV, kStageKeys>(value_table(step) + kStage * (kStageKeys / 8 * kAddressBytes),
                                                  values.template get_v_smem<kStage>());
    values.template arrive_with_copies<kStage>();
    if constexpr (kStage + 1 < kValueStages)
      gather_value_stages<kStage + 1>(values, step);
    else
      values.commit_step();
  }

  /// Copies slabs [kFirstSlab, kFirstSlab + kSlabs) of the warp's rows among kKeys. Their addresses begin at `table`.
  /// Columns from kDepth on become zeros.
  template <int kFirstSlab, int kSlabs, int kDepth, int kKeys>
  __device__ __forceinline__ void copy(uint32_t table, uint32_t slot) const {
    static_assert(kKeys % 16 == 0, "a lane reads the addresses of two groups at once");
    constexpr int kLines = (kSlabs * static_cast<int>(kRowBytes) + kLineBytes - 1) / kLineBytes;
    const uint32_t lane = opaque_lane(), chunk = lane % 8, row = warp_ * 4 + lane / 8;
    uint32_t from = table + lane / 8 * (kGroups * kAddressBytes);
    uint32_t to = slot + row * kRowBytes + place<kKeys>(chunk, row);
#pragma unroll 2
    for (uint32_t group = 0; group < kKeys / 8; group += 2) {
      const ptx::Vector16 pair = ptx::ld_shared_v4(from);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint64_t address = pair.word[2 * i] | static_cast<uint64_t>(pair.word[2 * i + 1]) << 32;
        const char* const source = reinterpret_cast<const char*>(address) + chunk * 16;
#pragma unroll
        for (int line = 0; line < kLines; ++line) {
          const int first = kFirstSlab * static_cast<int>(kRowBytes) + line * kLineBytes;
          const int slabs = kSlabs * static_cast<int>(kRowBytes) - line * kLineBytes;  // bytes of them, from here on
          if (slabs < kLineBytes && static_cast<int>(chunk) * 16 >= slabs) break;
          const int bytes = kDepth * kElementBytes - first;  // of the head, from here on
          const bool exists = address != 0 && (bytes >= kLineBytes || static_cast<int>(chunk) * 16 < bytes);
          ptx::cp_async_cg_16(to + i * (8 * kRowBytes) + line * (kLineBytes / kRowBytes * (kKeys * kRowBytes)),
                              source + first, exists ? 16 : 0);
        }
      }
      from += 2 * kAddressBytes;
      to += 16 * kRowBytes;
    }
  }

  const contract::AttentionParams& params_;
  const uint32_t tables_, warp_;
};

}  // namespace
}  // namespace kernelwright

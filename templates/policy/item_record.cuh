/// What the loading warp computes about a work item and passes to the multiplying warps through shared memory.
/// Divisions by run-time numbers cost hundreds of cycles, and one thread has these cycles to spare.
#pragma once

#include "policy/attention_item.cuh"
#include "policy/item_tiles.cuh"
#include "policy/mask.cuh"
#include "ptx/memory.cuh"

namespace kernelwright::policy {

/// 64 bytes, four vectors. A reader takes each part when it needs the part: the loop over keys has no registers for the
/// others.
struct alignas(16) ItemRecord {
  // Key tiles, as in TileList: none if the item sees no key. end < 0: there is no further item.
  struct alignas(16) Walk {
    int begin, end, full_begin, full_end;
    __device__ bool is_partial(int tile) const { return tile < full_begin || tile >= full_end; }
  } walk;
  // Where the mask starts; keys are counted as tiles are. first_row counts queries, or queries and heads if heads are
  // packed.
  struct alignas(16) Rows {
    int first_row, head, kv_len, diagonal;
  } rows;
  struct alignas(16) Target {
    int64_t output;  // elements from the start of o to the tile's first row
    int64_t lse;     // index of the first row's LSE
  } target;
  int num_rows;
  // Keys of the last tile that belong to the sequence; memory behind them may hold anything. Where kHidesInTiles, the
  // upper 16 bits have the keys of the first tile that are before the sequence's start.
  int last_keys;
  // What policy/open_scores.cuh and policy/key_scales.cuh need beyond `rows`. Written and read only for these.
  int batch, origin;  // the key from which tiles are counted
};
static_assert(sizeof(ItemRecord) == 64, "kItemBytes");

/// `origin`: the key from which tiles are counted. kOpen: whether the record has `batch` and `origin`. kHidesInTiles:
/// whether the first tile may begin with keys before the start of the sequence.
template <int kBlockN, bool kOpen, bool kHidesInTiles, class WorkItemT>
__device__ __forceinline__ ItemRecord describe(const contract::AttentionParams& params, const WorkItemT& work,
                                               const TileList& tiles, int origin) {
  const int kv_len = work.sequence.kv_len - origin;
  ItemRecord record = {{tiles.begin, tiles.end, tiles.full_begin, tiles.full_end},
                       {work.first_row, work.coord.head, kv_len, kv_len - work.sequence.q_len},
                       {work.offset(params.o_strides, 0), work.lse_index(params, 0)},
                       work.num_rows,
                       min(kBlockN, kv_len - (tiles.end - 1) * kBlockN),
                       kOpen ? work.coord.batch : 0,
                       kOpen ? origin : 0};
  if constexpr (kHidesInTiles)
    record.last_keys |= hidden_keys<kHidesInTiles>(work, origin + tiles.begin * kBlockN) << 16;
  return record;
}

__device__ __forceinline__ void post(uint32_t address, const ItemRecord& record) {
  const ptx::Vector16* const words = reinterpret_cast<const ptx::Vector16*>(&record);
#pragma unroll
  for (int i = 0; i < 4; ++i) ptx::st_shared_v4(address + 16 * i, words[i]);
}

/// A posted record, which is read in parts.
struct PostedItem {
  uint32_t address;
  __device__ ItemRecord::Walk walk() const { return part<ItemRecord::Walk>(0); }
  __device__ ItemRecord::Rows rows() const { return part<ItemRecord::Rows>(16); }
  __device__ ItemRecord::Target target() const { return part<ItemRecord::Target>(32); }
  __device__ int num_rows() const { return static_cast<int>(ptx::ld_shared_u32(address + 48)); }
  /// kHidesInTiles: as for describe().
  template <bool kHidesInTiles>
  __device__ int last_keys() const {
    const auto word = static_cast<int>(ptx::ld_shared_u32(address + 52));
    return kHidesInTiles ? word & 0xffff : word;
  }
  /// Keys of the first tile that are before the sequence's start. Only where kHidesInTiles.
  __device__ int hidden_keys() const { return static_cast<int>(ptx::ld_shared_u32(address + 52)) >> 16; }
  __device__ int batch() const { return static_cast<int>(ptx::ld_shared_u32(address + 56)); }
  __device__ int origin() const { return static_cast<int>(ptx::ld_shared_u32(address + 60)); }

 private:
  template <class Part>
  __device__ Part part(uint32_t offset) const {
    const ptx::Vector16 words = ptx::ld_shared_v4(address + offset);
    return *reinterpret_cast<const Part*>(&words);
  }
};

}  // namespace kernelwright::policy

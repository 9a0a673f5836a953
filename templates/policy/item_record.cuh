/// What the loading warp works out of a work item and tells the warps that multiply, through shared memory: divisions
/// by run-time numbers cost hundreds of cycles, and one thread has them to spare.
#pragma once

#include "policy/attention_item.cuh"
#include "policy/mask.cuh"
#include "ptx/memory.cuh"

namespace kernelwright::policy {

/// 64 bytes, four vectors. Readers take the part that they need when they need it: the loop over keys has no registers
/// to carry the rest.
struct alignas(16) ItemRecord {
  // Key tiles, as TileList has them: none if no key is seen. end < 0: there is no further item.
  struct alignas(16) Walk {
    int begin, end, full_begin, full_end;
    __device__ bool is_partial(int tile) const { return tile < full_begin || tile >= full_end; }
  } walk;
  // What the mask starts from, keys counted as the tiles are. first_row counts queries, or queries and heads if packed.
  struct alignas(16) Rows {
    int first_row, head, kv_len, diagonal;
  } rows;
  struct alignas(16) Target {
    int64_t output;  // elements from o to the tile's first row
    int64_t lse;     // index of its LSE
  } target;
  int num_rows;
  int last_keys;  // keys of the last tile that are the sequence's; what lies behind them may be anything
  // What policy/open_scores.cuh asks beyond `rows`: written and read where a Spec has it.
  int batch, origin;  // the key that tiles are counted from
};
static_assert(sizeof(ItemRecord) == 64, "kItemBytes");

/// `origin`: the key that tiles are counted from. kOpen: the Spec has policy/open_scores.cuh.
template <int kBlockN, bool kOpen, class WorkItemT>
__device__ __forceinline__ ItemRecord describe(const contract::AttentionParams& params, const WorkItemT& work,
                                               const TileList& tiles, int origin) {
  const int kv_len = work.sequence.kv_len - origin;
  return {{tiles.begin, tiles.end, tiles.full_begin, tiles.full_end},
          {work.first_row, work.coord.head, kv_len, kv_len - work.sequence.q_len},
          {work.offset(params.o_strides, 0), work.lse_index(params, 0)},
          work.num_rows,
          min(kBlockN, kv_len - (tiles.end - 1) * kBlockN),
          kOpen ? work.coord.batch : 0,
          kOpen ? origin : 0};
}

__device__ __forceinline__ void post(uint32_t address, const ItemRecord& record) {
  const ptx::Vector16* const words = reinterpret_cast<const ptx::Vector16*>(&record);
#pragma unroll
  for (int i = 0; i < 4; ++i) ptx::st_shared_v4(address + 16 * i, words[i]);
}

/// A posted record, read in parts.
struct PostedItem {
  uint32_t address;
  __device__ ItemRecord::Walk walk() const { return part<ItemRecord::Walk>(0); }
  __device__ ItemRecord::Rows rows() const { return part<ItemRecord::Rows>(16); }
  __device__ ItemRecord::Target target() const { return part<ItemRecord::Target>(32); }
  __device__ int num_rows() const { return static_cast<int>(ptx::ld_shared_u32(address + 48)); }
  __device__ int last_keys() const { return static_cast<int>(ptx::ld_shared_u32(address + 52)); }
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

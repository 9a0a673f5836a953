/// V in columns (docs/kv-write.md): pages have [depth][keys], which is what an fp8 product reads. TMA brings it as it
/// is, and no warp transposes. Under 16-bit queries the converting warps make [depth][keys] of f16 of it
/// (attention_sm90_convert.cuh).
///
/// A tile is a tile::ColumnTile of the depth and, in fp8, of rows of ones. The order of its keys is that of P as fp8
/// products have it packed.
#pragma once

#include "kernels/attention/sm90/attention_sm90_tiles.cuh"
#include "policy/either.cuh"
#include "ptx/memory.cuh"
#include "tile/column_tile.cuh"

namespace kernelwright {
namespace {

struct ValueColumns {
  enum : int { kWidth = contract::column_slab_bytes(spec::kBlockN, spec::kPageSize), kSlabs = spec::kBlockN / kWidth };
  using Tile = tile::ColumnTile<kOutputColumns, kWidth>;
  enum : int { kSlabBytes = Tile::kSlabBytes, kRun = Tile::kRun };
  /// What a product reads: the tile, or what it is converted to. Pieces of the latter have 8 keys in their order.
  using Converted = tile::ColumnTile<kOutputColumns, contract::converted_slab_bytes(spec::kBlockN)>;
  using Operand = policy::Either<kConvertsKv, Converted, Tile>::type;
  static_assert(!spec::kVColumns || kSlabs * kSlabBytes <= (kConvertsKv ? raw_ring().slot : kLayout.value_slot),
                "a slot has room for a tile");
  static_assert(!spec::kVColumns || !kConvertsKv || raw_ring().slot % (contract::kSwizzleRows * kWidth) == 0,
                "a slot begins where the swizzle's pattern does");

  /// Writes the rows of ones of all slots at `slots`. No box has them, so they stay. All threads call it, ahead of the
  /// barrier that begins their work.
  __device__ __forceinline__ static void write_ones(uint32_t slots) {
    constexpr uint32_t kOnes = 0x38383838, kBytes = contract::kSumRows * kWidth;
#pragma unroll 1
    for (uint32_t at = threadIdx.x * 16; at < spec::kNumKvStages * kSlabs * kBytes; at += kNumThreads * 16)
      ptx::st_shared_v4(slots + (at / kBytes + 1) * kSlabBytes - kBytes + at % kBytes, {{kOnes, kOnes, kOnes, kOnes}});
    ptx::fence_proxy_async_shared();
  }

  /// Loads the next tile.
  template <class Values>
  __device__ __forceinline__ static void load(const contract::TensorMap& map, Values& values, const KvTile& tile) {
    constexpr int kPage = spec::kPageSize > 0 ? spec::kPageSize : 1;
    values.template acquire_v<0>();
    const pipeline::TileTarget to = values.get_tile(true, spec::kHeadDimV * spec::kBlockN);
#pragma unroll 1
    for (int slab = 0; slab < kSlabs; ++slab) {
      const int key = tile.first_key + slab * kWidth;
      const int page = key < tile.high && key + kWidth > tile.low ? tile.pages[key / kPage] : -1;  // as in load_tile()
      OwnBoxes::load(to.smem + slab * kSlabBytes, map, key % kPage, 0, tile.head, page, to.full);
    }
    values.commit_step();
  }

  /// Writes zeros for the keys [begin, end) of the tile at `values`: a share of each math thread.
  __device__ __forceinline__ static void clear(uint32_t values, int begin, int end) {
    const int thread = static_cast<int>(ptx::opaque(threadIdx.x)) - 128, first = begin / kRun;
    const int count = (end + kRun - 1) / kRun - first;
#pragma unroll 1
    for (int i = thread; i < count * spec::kHeadDimV; i += kMathThreads) {
      const int run = first + i / spec::kHeadDimV, row = i % spec::kHeadDimV;
      Tile::keep(values + Tile::place(static_cast<uint32_t>(row), static_cast<uint32_t>(run)), run * kRun,
                 [&](int key) { return key < begin || key >= end; });
    }
  }
};

// Of V as an operand.
enum : int {
  kValueSwizzleBytes = spec::kVColumns ? int{ValueColumns::Operand::kSwizzle}
                       : kTransposesV  ? contract::transposed_swizzle_bytes(spec::kBlockN, spec::kSwizzleBytes)
                                       : int{spec::kSwizzleBytes}
};

}  // namespace
}  // namespace kernelwright

/// Scales of gemm_sm90's operands, for one thread of a math warpgroup. Of a product of 64 rows, a thread has rows 16 *
/// warp + lane / 4 and 8 more, and columns 8 j + 2 (lane % 4) and one more.
#pragma once

#include "kernels/gemm/gemm_epilogue.cuh"
#include "kernels/gemm/sm90/gemm_sm90_tiles.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

/// Scales of a whole row and a whole column, or of the whole tensor: they multiply the sums once k is done.
class EndScales {
 public:
  static constexpr bool kAny = spec::kScales == ScaleKind::kPerTensor || spec::kScales == ScaleKind::kPerToken;

  __device__ __forceinline__ explicit EndScales(const GemmParams& params) : params_(params) {}

  /// `tile`: the warpgroup's part of the tile. Scales past the end are not read.
  __device__ __forceinline__ void apply(Sums& sums, const Tile& tile) const {
    const float *const a = of_group(params_.scale_a, tile, spec::kSwapAb, tile.row_end), *const b = of_group(
                                                                                             params_.scale_b, tile,
                                                                                             !spec::kSwapAb,
                                                                                             tile.column_end);
    if constexpr (spec::kScales == ScaleKind::kPerTensor) {
      const float factor = ptx::ld_global_settled_f32(a) * ptx::ld_global_settled_f32(b);
#pragma unroll
      for (int wave = 0; wave < kWaves; ++wave)
#pragma unroll
        for (float& sum : sums[wave]) sum *= factor;
    } else if constexpr (spec::kScales == ScaleKind::kPerToken) {
      const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32 % 4);
      const int first = tile.row + warp * 16 + lane / 4;
      float of_row[kWaves][2];
#pragma unroll
      for (int i = 0; i < 2 * kWaves; ++i) {
        const int row = min(first + i / 2 * 64 + i % 2 * 8, tile.row_end - 1);
        of_row[i / 2][i % 2] = scale_of_row<!spec::kSwapAb>(a, row);
      }
#pragma unroll
      for (int j = 0; j < spec::kBlockN / 8; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int column = tile.column + j * 8 + lane % 4 * 2 + i;
          const float of_column = scale_of_row<spec::kSwapAb>(b, min(column, tile.column_end - 1));
#pragma unroll
          for (int wave = 0; wave < kWaves; ++wave) {
            sums[wave][j * 4 + i] *= of_row[wave][0] * of_column;
            sums[wave][j * 4 + 2 + i] *= of_row[wave][1] * of_column;
          }
        }
    }
  }

 private:
  /// With groups, the problem's b has scales for each. `extent`: rows or columns that the operand has.
  __device__ __forceinline__ static const float* of_group(const float* scales, const Tile& tile, bool of_b,
                                                          int extent) {
    const float* const all = ptx::opaque(scales);
    if (kBatched && !of_b && spec::kScales == ScaleKind::kPerToken) return all + tile.scale_row;
    if (!kManyB || !of_b) return all;
    return all + (spec::kScales == ScaleKind::kPerTensor ? int64_t{1} : int64_t{extent}) * tile.group;
  }

  /// The scale of row `row` of an operand, of the problem's a or b.
  template <bool kOfA>
  __device__ __forceinline__ float scale_of_row(const float* scales, int row) const {
    if constexpr (kGathers && kOfA) {
      const int source = source_row(params_, row);
      return source >= 0 ? ptx::ld_global_settled_f32(scales + source) : 0;
    }
    return ptx::ld_global_settled_f32(scales + row);
  }

  const GemmParams& params_;
};

/// The greatest power of two that divides `number` and is at most `most`.
constexpr int greatest_power_of_two(int number, int most) {
  while (number % most != 0) most /= 2;
  return most;
}

/// Scales of blocks, slab by slab. Scales of single rows lie in the slot. Scales of 128 x 128 elements are few, and
/// come from memory. Each lane reads that of another slab, so that a warp reads once for 32 slabs, and its lanes tell
/// each other. Where several products take a slab's columns, that did not pay on an H200: a thread reads a slab ahead.
///
/// With gates, 128 gates and the ups between them are a block of 256 that has a scale for each kind. The scales of all
/// gates lie first, those of all ups behind them. So weights may be interleaved, and their scales need not.
class BlockScales {
  static constexpr int kKinds = kGated ? 2 : 1, kBlock = 128 * kKinds;
  // A warpgroup's part of a tile may begin in the middle of a block, at a multiple of kStep, and end in another block.
  static constexpr int kExtent = spec::kSwapAb ? kWaves * 64 : spec::kBlockN;
  static constexpr int kStep = spec::kSwapAb ? 64 : greatest_power_of_two(spec::kBlockN, kBlock);
  static constexpr int kBlocks = (kBlock - kStep + kExtent - 1) / kBlock + 1;
  static constexpr int kLanes = 32;

 public:
  /// Whether scales of blocks are held by lanes, and all scales are read while the slab's first product runs.
  static constexpr bool kHeldByLanes = kProductColumns == spec::kBlockN;
  /// The factors of the products of one slab and 64 rows.
  struct Factors {
    float of[2][kKinds][kBlocks];  // rows lane / 4, and 8 more; blocks of columns
    float of_rows[kKinds];         // with swap_ab: one for all rows, and the address of the columns' scales
    uint32_t columns;
  };
  static constexpr bool kReadsSlot = spec::kSwapAb;  // when it adds products
  static constexpr bool kShifts = kGrouped && !kMasked && !kGathers;

  __device__ __forceinline__ explicit BlockScales(const GemmParams& params)
      : blocks_(spec::kSwapAb ? params.scale_a : params.scale_b),
        stride_(spec::kSwapAb ? params.scale_a_stride : params.scale_b_stride),
        last_block_(((spec::kSwapAb ? params.m : params.n) - 1) / kBlock),
        last_slab_((params.k - 1) / kSlabDepth) {}

  /// Called before a tile begins. `tile`: the warpgroup's part of it.
  __device__ __forceinline__ void begin(const Tile& tile, int slab) {
    const int first = spec::kSwapAb ? tile.row : tile.column;
    offset_ = first % kBlock;
    shift_ = static_cast<uint32_t>(tile.scale_shift()) * 4;
    const float* blocks = ptx::opaque(blocks_);
    if constexpr (kManyB) blocks += int64_t{tile.group} * (last_block_ + 1) * kKinds * stride_;
#pragma unroll
    for (int kind = 0; kind < kKinds; ++kind)
#pragma unroll
      for (int i = 0; i < kBlocks; ++i)
        at_[kind][i] = blocks + (kind * (last_block_ + 1) + min(first / kBlock + i, last_block_)) * stride_;
    slab_ = slab;
    hold();
  }
  /// Called before a round of kSlabs slabs: lanes hold their scales from here on.
  template <int kSlabs>
  __device__ __forceinline__ void reach() {
    static_assert(kSlabs <= kLanes);
    if (kHeldByLanes && slab_ + kSlabs > first_held_ + kLanes) hold();
  }
  /// Called for each slab, in order. All lanes call it together.
  __device__ __forceinline__ void next() {
#pragma unroll
    for (int i = 0; i < kKinds * kBlocks; ++i) {
      const float held = held_[i / kBlocks][i % kBlocks];
      block_[i / kBlocks][i % kBlocks] = kHeldByLanes ? __shfl_sync(0xffffffff, held, slab_ - first_held_) : held;
    }
    ++slab_;
    if constexpr (!kHeldByLanes) hold();
  }
  /// Reads the slab's factors for wave `wave` of the warpgroup, whose first row in the tile is `row`. Scales of single
  /// rows are at `scales`.
  __device__ __forceinline__ void read(uint32_t scales, uint32_t row, int wave, Factors& factors) const {
    const uint32_t lane = threadIdx.x % 32;
    if constexpr (spec::kSwapAb) {
#pragma unroll
      for (int kind = 0; kind < kKinds; ++kind) factors.of_rows[kind] = of_block(block_[kind], wave * 64);
      factors.columns = scales + shift_ + lane % 4 * 8;
    } else {
      const uint32_t at = scales + shift_ + (row + wave * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4) * 4;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float of_row = ptx::ld_shared_f32(at + half * 32);
#pragma unroll
        for (int kind = 0; kind < kKinds; ++kind)
#pragma unroll
          for (int i = 0; i < kBlocks; ++i) factors.of[half][kind][i] = of_row * block_[kind][i];
      }
    }
  }
  /// sums += factors * products, for columns `first` and on of the tile.
  __device__ __forceinline__ void add(float (&sums)[spec::kBlockN / 2], int first, const Products& products,
                                      const Factors& factors) const {
#pragma unroll
    for (int tile = 0; tile < kProductColumns / 8; ++tile) {
      const int column = first + tile * 8;
      if constexpr (spec::kSwapAb) {
        float of_column[2];
        if constexpr (kShifts) {  // pairs may lie at no multiple of 8 bytes
          of_column[0] = ptx::ld_shared_f32(factors.columns + column * 4);
          of_column[1] = ptx::ld_shared_f32(factors.columns + column * 4 + 4);
        } else {
          ptx::ld_shared_v2_f32(factors.columns + column * 4, of_column);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sums[column / 2 + i] += products[tile * 4 + i] * (factors.of_rows[i / 2 % kKinds] * of_column[i % 2]);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sums[column / 2 + i] += products[tile * 4 + i] * of_block(factors.of[i / 2][column / 8 % kKinds], column);
      }
    }
  }

 private:
  /// Reads the scales of slab slab_, or lane by lane of that and the next ones.
  __device__ __forceinline__ void hold() {
    first_held_ = slab_;
    const int ahead = kHeldByLanes ? static_cast<int>(threadIdx.x % kLanes) : 0;
    const int slab = min(slab_ + ahead, last_slab_);
#pragma unroll
    for (int i = 0; i < kKinds * kBlocks; ++i)
      held_[i / kBlocks][i % kBlocks] = ptx::ld_global_settled_f32(at_[i / kBlocks][i % kBlocks] + slab);
  }
  /// The scale of the block that row or column `at` of the tile is in. The tile's first row or column decides which of
  /// two known blocks that is.
  __device__ __forceinline__ float of_block(const float (&of)[kBlocks], int at) const {
    const int low = at / kBlock, high = (at + kBlock - kStep) / kBlock;
    if (low == high) return of[low];
    return offset_ + at / kStep * kStep >= high * kBlock ? of[high] : of[low];
  }

  const float* const blocks_;
  const int64_t stride_;
  const int last_block_, last_slab_;
  const float* at_[kKinds][kBlocks];
  float block_[kKinds][kBlocks];  // of the slab
  float held_[kKinds][kBlocks];   // of slab first_held_ + lane, or of first_held_
  int slab_, first_held_, offset_;
  uint32_t shift_ = 0;  // bytes ahead of the tile's first scale of a single row
};

/// No scales: products are added as they are.
class NoBlockScales {
 public:
  struct Factors {};
  static constexpr bool kReadsSlot = false, kHeldByLanes = false;
  __device__ __forceinline__ explicit NoBlockScales(const GemmParams&) {}
  __device__ __forceinline__ void begin(const Tile&, int) {}
  template <int kSlabs>
  __device__ __forceinline__ void reach() {}
  __device__ __forceinline__ void next() {}
  __device__ __forceinline__ void read(uint32_t, uint32_t, int, Factors&) const {}
  __device__ __forceinline__ void add(float (&sums)[spec::kBlockN / 2], int first, const Products& products,
                                      const Factors&) const {
#pragma unroll
    for (int i = 0; i < kProductColumns / 2; ++i) sums[first / 2 + i] += products[i];
  }
};

template <bool kScaled>
struct SlabScalesOf {
  using Type = NoBlockScales;
};
template <>
struct SlabScalesOf<true> {
  using Type = BlockScales;
};
/// The scales that the products of a slab are multiplied by as they are added.
using SlabScales = SlabScalesOf<kBlockScales>::Type;

/// Copies of scales end where those of all rows do. What a slot has behind them is read, and is used for no row that is
/// stored.
__device__ __forceinline__ void clear_scales(uint32_t base) {
  for (uint32_t at = threadIdx.x * 4; at < spec::kStages * kScalePitch; at += kThreads * 4)
    ptx::st_shared_u32(base + kLayout.scales + at, 0);
  ptx::fence_proxy_async_shared();  // copies write there next
}

}  // namespace
}  // namespace kernelwright

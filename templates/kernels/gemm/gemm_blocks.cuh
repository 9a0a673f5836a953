/// A result in a block-scaled format: 32 or 16 neighbouring columns of a row of d share a scale byte, which the kernel
/// makes of their largest magnitude. Elements and scales are those that quantize and row_op make of the same values.
/// They are stored from registers, 32 columns at a time.
#pragma once

#include "contract/scale_atoms.h"
#include "kernels/gemm/gemm_options.cuh"
#include "policy/block_format.cuh"
#include "ptx/math.cuh"
#include "ptx/memory.cuh"
#include "tile/quad_store.cuh"

namespace kernelwright {
namespace {

/// kTileRows: of a CTA's tile. Tiles begin at multiples of it, and at multiples of 128 columns of d. A template, so
/// that other kernels do not compile it.
template <DType kFormat, int kTileRows>
class BlockResult {
  using Format = policy::RoundedBlockFormat<kFormat, spec::kArch, spec::kRoundUp>;
  enum : int {
    kColumns = 32,                        // that are stored together
    kBlocks = kColumns / Format::vector,  // of a row of them
    kOfQuad = 8 / kBlocks,                // values of a block that a lane of a quad has
    kBytes = Format::element_bits * kColumns / 8
  };

 public:
  /// `rows`, `columns`: of d.
  template <class Params>
  __device__ __forceinline__ BlockResult(const Params& params, int rows, int columns)
      : BlockResult(params, rows, columns, static_cast<char*>(params.elements), params.scale_d) {}
  /// Of a group of `rows` rows, which are counted from its first one. That is row `first` of d, and `atom` rows of
  /// atoms lie ahead of the group's.
  template <class Params>
  __device__ __forceinline__ BlockResult(const Params& params, int rows, int columns, int first, int atom)
      : BlockResult(params, rows, columns, static_cast<char*>(params.elements) + first * params.row_bytes,
                    params.scale_d + (spec::kRowsOfScales ? first : int64_t{atom} * contract::ScaleAtom::kBytes) *
                                         params.scale_d_stride) {}

  /// Stores columns [column, column + 32) of rows `row` and row + 8, which the four lanes of a quad have. All lanes
  /// call it. values[4 tile + 2 r + e] is of row `row` + 8 r and column 8 tile + 2 (lane % 4) + e.
  __device__ __forceinline__ void store_of_quad(const float (&values)[16], int row, int column, int lane) const {
    uint32_t words[4] = {}, scales[2][kBlocks];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float own[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) own[i] = divided(values[i / 2 * 4 + 2 * r + i % 2]);
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        float largest = 0;
#pragma unroll
        for (int i = 0; i < kOfQuad; ++i) largest = ptx::max_nan_f32(largest, fabsf(own[block * kOfQuad + i]));
#pragma unroll
        for (int distance = 1; distance < 4; distance *= 2)
          largest = ptx::max_nan_f32(largest, __shfl_xor_sync(0xffffffff, largest, distance));
        scales[r][block] = Format::scale(__float_as_uint(largest));
#pragma unroll
        for (int i = block * kOfQuad; i < (block + 1) * kOfQuad; ++i) own[i] = Format::scaled(own[i], scales[r][block]);
      }
#pragma unroll
      for (int tile = 0; tile < 4; ++tile)
        words[tile] |= Format::pair(own[2 * tile], own[2 * tile + 1]) << (2 * Format::element_bits * r);
    }
    tile::transpose_quad(words, lane);  // now word i is of the quad's lane i, and of column tile lane % 4
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      char* const to = place(row + 8 * r, column) + lane % 4 * Format::element_bits;
      const bool exists = row + 8 * r < rows_ && column < columns_;
      if constexpr (Format::element_bits == 8) {
        ptx::st_global_v2_u32_if(to, ptx::prmt(words[0], words[1], r ? 0x7632 : 0x5410),
                                 ptx::prmt(words[2], words[3], r ? 0x7632 : 0x5410), exists);
      } else {
        const uint32_t low = ptx::prmt(words[0], words[1], r ? 0x0051 : 0x0040);
        const uint32_t high = ptx::prmt(words[2], words[3], r ? 0x0051 : 0x0040);
        ptx::st_global_u32_if(to, ptx::prmt(low, high, 0x5410), exists);
      }
    }
    // A lane stores the scale of one of the quad's blocks.
    const int own = lane % 4, r = own / kBlocks, block = own % kBlocks;
    uint32_t scale = scales[0][0];
#pragma unroll
    for (int i = 1; i < 2 * kBlocks; ++i) scale = own == i ? scales[i / kBlocks][i % kBlocks] : scale;
    store_scale(row + 8 * r, column / Format::vector + block, scale, own < 2 * kBlocks);
  }

  /// Stores columns [column, column + 32) of row `row`, all of which the thread has.
  __device__ __forceinline__ void store_of_row(const float* values, int row, int column) const {
    uint32_t words[kBytes / 4] = {};
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      float own[Format::vector], largest = 0;
#pragma unroll
      for (int i = 0; i < Format::vector; ++i) {
        own[i] = divided(values[block * Format::vector + i]);
        largest = ptx::max_nan_f32(largest, fabsf(own[i]));
      }
      const uint32_t scale = Format::scale(__float_as_uint(largest));
      constexpr int kPairs = 16 / Format::element_bits;  // of a word
#pragma unroll
      for (int i = 0; i < Format::vector / 2; ++i) {
        const int pair = block * (Format::vector / 2) + i;
        words[pair / kPairs] |= Format::pair(Format::scaled(own[2 * i], scale), Format::scaled(own[2 * i + 1], scale))
                                << (2 * Format::element_bits * (pair % kPairs));
      }
      store_scale(row, column / Format::vector + block, scale, true);
    }
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i)
      ptx::st_global_v4_if(place(row, column) + i * 16,
                           {{words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]}},
                           row < rows_ && column < columns_);
  }

 private:
  template <class Params>
  __device__ __forceinline__ BlockResult(const Params& params, int rows, int columns, char* elements, uint8_t* scales)
      : elements_(elements),
        scales_(scales),
        row_bytes_(params.row_bytes),
        scale_stride_(params.scale_d_stride),
        tensor_scale_(params.tensor_scale),
        rows_(rows),
        columns_(columns) {}
  __device__ __forceinline__ float divided(float value) const {
    return tensor_scale_ == 1.f ? value : __fdiv_rn(value, tensor_scale_);
  }
  __device__ __forceinline__ char* place(int row, int column) const {
    return elements_ + row * row_bytes_ + column * Format::element_bits / 8;
  }
  /// Scale `block` of row `row`, if the thread `has` it. In atoms also those past the ends of rows and columns, up to
  /// whole atoms, which are 0. Rows that no tile has, because tiles have less than 128, are the last tile's.
  __device__ __forceinline__ void store_scale(int row, int block, uint32_t scale, bool has) const {
    const int blocks = columns_ / Format::vector;
    if constexpr (spec::kRowsOfScales) {
      ptx::st_global_u8_if(scales_ + row * scale_stride_ + block, scale, has && row < rows_ && block < blocks);
    } else {
      constexpr int kRows = contract::ScaleAtom::kRows, kOfAtom = contract::ScaleAtom::kScales;
      const bool in_atom = has && block < (blocks + kOfAtom - 1) / kOfAtom * kOfAtom;
      const int end = (rows_ + kRows - 1) / kRows * kRows;
      const int first_of_tile = row / kTileRows * kTileRows, end_of_tile = first_of_tile + kTileRows;
      store_in_atom(row, block, row < rows_ && block < blocks ? scale : 0,
                    in_atom && first_of_tile < rows_ && row < end);
      if constexpr (kTileRows < kRows) {
        if (first_of_tile < rows_ && end_of_tile >= rows_)
          for (int padding = row + kTileRows; padding < end; padding += kTileRows)
            store_in_atom(padding, block, 0, in_atom);
      }
    }
  }
  __device__ __forceinline__ void store_in_atom(int row, int block, uint32_t scale, bool exists) const {
    constexpr int kRows = contract::ScaleAtom::kRows, kOfAtom = contract::ScaleAtom::kScales;
    const int64_t atom = row / kRows * scale_stride_ + block / kOfAtom;
    ptx::st_global_u8_if(
        scales_ + atom * contract::ScaleAtom::kBytes + contract::block_scale_offset(1, row % kRows, block % kOfAtom),
        scale, exists);
  }

  char* const elements_;
  uint8_t* const scales_;
  const int64_t row_bytes_, scale_stride_;
  const float tensor_scale_;
  const int rows_, columns_;
};

}  // namespace
}  // namespace kernelwright

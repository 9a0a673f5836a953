/// What the decode form multiplies, and how: the type of the products, the fragments of keys and values, and the order
/// of columns. Keys and values of 16 bits are used as they lie, in the type of Q. fp8 keys and values that lie in
/// shared memory as bytes are multiplied as f16, whatever the type of Q: tile/byte_fragments.cuh, row_scales.cuh.
/// Queries of e4m3 become f16 exactly, and so do their keys and values.
#pragma once

#include "contract/words.h"
#include "policy/either.cuh"
#include "policy/softmax.cuh"
#include "ptx/math.cuh"
#include "ptx/memory.cuh"
#include "tile/byte_fragments.cuh"
#include "tile/element.cuh"

namespace kernelwright::policy {

/// Writes the elements [16 * i + 4 * (lane % 4), + 4) of every 16 of a row of products with ByteValues; `e`: the row's
/// first register of an MMA.
template <int kTiles>
__device__ __forceinline__ void store_row_of_bytes(float* row, const float (&output)[kTiles][4], int e, int lane) {
#pragma unroll
  for (int n = 0; n < kTiles; n += 2)
    *reinterpret_cast<float4*>(row + n * 8 + lane % 4 * 4) =
        make_float4(output[n][e], output[n + 1][e], output[n][e + 1], output[n + 1][e + 1]);
}

/// fp8 keys and values, which stay bytes in shared memory, under queries of 16 bits.
///   is_bytes      fragments are made of bytes
///   scales_rows   the softmax has a scale for each row
///   normalises    rows of Q are divided by factors
///   narrow        Q is fp8 too
///   mixes_columns outputs come in the order of store_row_of_bytes()
template <DType kQuery, DType kStored, int kArch>
struct KvOperands {
  // No static members: they would be in every binary.
  static __device__ constexpr DType computed() { return policy::computed<kQuery, kStored>(); }
  enum : bool { is_bytes = true, scales_rows = true, normalises = kQuery != DType::kF16, narrow = false };
  enum : bool { mixes_columns = true };

  template <class Buffer>
  using Keys = tile::ByteKeys<Buffer, kStored, kArch>;
  template <class Buffer>
  using Values = tile::ByteValues<Buffer, kStored, kArch>;

  /// Makes the tile of Q at `queries`, which has landed, an operand of Keys, in place. Writes the factors of its rows
  /// to `factors`. All warps of the CTA call it; the caller synchronises them.
  template <class Tile, int kNumThreads>
  static __device__ __forceinline__ void prepare(uint32_t queries, uint32_t factors, int thread) {
    constexpr int kRowLanes = 16, kSteps = Tile::cols / 16;  // a lane has the elements of one step
    static_assert(kSteps <= kRowLanes && Tile::rows % 2 == 0, "a warp has two rows at a time");
#pragma unroll 1
    for (int row = thread / kRowLanes; row < Tile::rows; row += kNumThreads / kRowLanes) {
      const int step = thread % kRowLanes;
      ptx::Vector16 pieces[2] = {};
      uint32_t words[8];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (step < kSteps) pieces[i] = ptx::ld_shared_v4(queries + Tile::offset(row, 2 * step + i));
#pragma unroll
        for (int w = 0; w < 4; ++w) words[4 * i + w] = pieces[i].word[w];
      }
      if constexpr (normalises) {
        const float factor = normalise(words);
        if (step == 0) ptx::st_shared_f32(factors + row * 4, factor);
      }
      tile::in_key_order(words, pieces);
      if (step < kSteps) {
#pragma unroll
        for (int i = 0; i < 2; ++i) ptx::st_shared_v4(queries + Tile::offset(row, 2 * step + i), pieces[i]);
      }
    }
  }

  /// The factors that prepare() wrote, of the rows row_of(0) .. row_of(kRows - 1).
  template <int kRows, class RowOf>
  static __device__ __forceinline__ RowScales<kRows> factors_of(uint32_t factors, const RowOf& row_of) {
    RowScales<kRows> rows;
#pragma unroll
    for (int r = 0; r < kRows; ++r) rows.of[r] = normalises ? ptx::ld_shared_f32(factors + row_of(r) * 4) : 1;
    return rows;
  }

  /// The scales of the softmax. kFolds: it takes products of normalised rows as they are.
  template <bool kFolds, int kRows>
  static __device__ __forceinline__ RowScales<kRows> scales_of(const RowScales<kRows>& factors, float exponent_scale) {
    RowScales<kRows> scales;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      scales.of[r] = kFolds && normalises ? scale_of_normalised(factors.of[r], exponent_scale) : exponent_scale;
    }
    return scales;
  }

 private:
  /// Sixteen elements of a row, those of one lane of sixteen, to f16; the row's factor.
  static __device__ __forceinline__ float normalise(uint32_t (&words)[8]) {
    uint32_t largest = 0;
#pragma unroll
    for (int w = 0; w < 8; ++w) largest = largest_of(largest, words[w]);
#pragma unroll
    for (int lanes = 8; lanes > 0; lanes /= 2) largest = max(largest, __shfl_xor_sync(0xffffffff, largest, lanes));
    const uint32_t exponent = factor_exponent(largest);
#pragma unroll
    for (int w = 0; w < 8; ++w) words[w] = over_factor(words[w], exponent);
    return factor_of(exponent);
  }
};

/// fp8 keys in rows, and values in columns: tile/column_tile.cuh. Outputs come in the order of columns.
template <DType kQuery, DType kStored, int kArch>
struct KvColumns : KvOperands<kQuery, kStored, kArch> {
  enum : bool { mixes_columns = false };
};

/// Keys and values of the type of Q.
template <DType kQuery, int kArch>
struct KvOperands<kQuery, kQuery, kArch> {
  static __device__ constexpr DType computed() { return kQuery; }
  enum : bool { is_bytes = false, scales_rows = false, normalises = false, narrow = false, mixes_columns = false };

  template <class Buffer>
  using Keys = Buffer;
  template <class Buffer>
  using Values = Buffer;
};

/// Queries of e4m3, whose rows need no factors: f16 holds them as they are. kBytes: keys and values stay bytes in
/// shared memory. Else they have become f16 on their way there.
template <bool kBytes, int kArch>
struct NarrowOperands {
  static __device__ constexpr DType computed() { return DType::kF16; }
  enum : bool { is_bytes = kBytes, scales_rows = false, normalises = false, narrow = true, mixes_columns = kBytes };

  template <class Buffer>
  using Keys = typename Either<kBytes, tile::ByteKeys<Buffer, DType::kE4m3, kArch>, Buffer>::type;
  template <class Buffer>
  using Values = typename Either<kBytes, tile::ByteValues<Buffer, DType::kE4m3, kArch>, Buffer>::type;

  /// Makes the tile of Q at `queries`, which has landed as RowTile says of bytes, an operand of Keys, in place. All
  /// warps of the CTA call it; the caller synchronises them.
  template <class Tile, int kNumThreads>
  static __device__ __forceinline__ void prepare(uint32_t queries, int thread) {
    constexpr int kSteps = Tile::cols / 16;
#pragma unroll 1
    for (int i = thread; i < Tile::rows * kSteps; i += kNumThreads) {
      const int row = i / kSteps, first = i % kSteps * 2;
      ptx::Vector16 pieces[2];
      tile::convert_fp8<DType::kE4m3, DType::kF16, kArch>(ptx::ld_shared_v4(queries + Tile::offset(row, first + 1)),
                                                          pieces);
      if constexpr (kBytes) {
        uint32_t words[8];
#pragma unroll
        for (int w = 0; w < 8; ++w) words[w] = pieces[w / 4].word[w % 4];
        tile::in_key_order(words, pieces);
      }
#pragma unroll
      for (int p = 0; p < 2; ++p) ptx::st_shared_v4(queries + Tile::offset(row, first + p), pieces[p]);
    }
  }
};

template <int kArch>
struct KvOperands<DType::kE4m3, DType::kE4m3, kArch> : NarrowOperands<true, kArch> {};
template <int kArch>
struct KvOperands<DType::kE4m3, DType::kF16, kArch> : NarrowOperands<false, kArch> {};

/// Of keys and values that became what Q is multiplied as, on their way to shared memory.
template <DType kQuery, int kArch>
using ConvertedOperands = KvOperands<kQuery, kQuery == DType::kE4m3 ? DType::kF16 : kQuery, kArch>;

}  // namespace kernelwright::policy

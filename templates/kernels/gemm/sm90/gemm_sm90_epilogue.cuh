/// The epilogue of gemm_sm90, in f32 registers: activation(alpha acc + bias) + beta c, or products of gates and ups.
#pragma once

#include "kernels/gemm/gemm_epilogue.cuh"
#include "kernels/gemm/sm90/gemm_sm90_tiles.cuh"
#include "policy/scattered_row.cuh"
#include "ptx/memory.cuh"
#include "tile/element.cuh"

namespace kernelwright {
namespace {

/// Elements of c and bias, with the layout that they have in memory. They belong to a thread's part of a warp's 16 rows
/// and up to kMost columns of the tile. They are loaded well ahead of their use. Nothing is read past the end of rows
/// or columns.
template <int kMost>
class Addends {
  using Stored = tile::Storage<spec::kCDType>;
  static constexpr bool kHalves = sizeof(Stored) == 2;
  // Columns of the tile that are neighbours in memory come as pairs. With swap_ab, columns of the tile are rows of d,
  // and there are no pairs.
  static constexpr bool kPairs = !spec::kSwapAb;
  static constexpr int kPairWords = kHalves ? 1 : 2, kTiles = kMost / 8;

 public:
  /// `row`, `column`: where this part of `tile` begins in the whole of d. It has kColumns of kMost columns.
  template <int kColumns>
  __device__ __forceinline__ void load(const EntryParams& params, const Tile& tile, int row, int column,
                                       uint32_t lane) {
    if (!kPairs || lie_in_pairs(params))
      load_as<kColumns, true>(params, tile, row, column, lane);
    else
      load_as<kColumns, false>(params, tile, row, column, lane);
  }

  /// Makes values of d from sums.
  template <int kCount>
  __device__ __forceinline__ void apply(const GemmParams& params, const float (&sums)[kCount],
                                        float (&values)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int tile = i / 4, r = i / 2 % 2, e = i % 2;
      float bias = 0, c = 0;
      if constexpr (spec::kBias) bias = kPairs ? of_pair(&bias_[tile * kPairWords], e) : addend_of(bias_[r], 0);
      if constexpr (spec::kAddsC) c = kPairs ? of_pair(&c_[(tile * 2 + r) * kPairWords], e) : addend_of(c_[i], 0);
      values[i] = finished(sums[i], params.alpha, bias, params.beta, c);
    }
  }

  /// Makes values of d from gates and ups. Of two neighbouring runs of 8 columns, the first has gates; with swap_ab, of
  /// two runs of 8 rows. A value lies where its gate does, among the values alone.
  template <int kCount>
  __device__ __forceinline__ void apply_gates(const GemmParams& params, const float (&sums)[kCount],
                                              float (&values)[kCount / 2]) const {
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      // Of a value: its run of columns, or with swap_ab pair of columns; r and e as for sums.
      const int gate = kPairs ? i / 4 * 8 + i % 4 : i / 2 * 4 + i % 2, up = gate + (kPairs ? 4 : 2), e = i % 2;
      float gate_bias = 0, up_bias = 0;
      if constexpr (spec::kBias) {
        gate_bias = kPairs ? of_pair(&bias_[gate / 4 * kPairWords], e) : addend_of(bias_[0], 0);
        up_bias = kPairs ? of_pair(&bias_[up / 4 * kPairWords], e) : addend_of(bias_[1], 0);
      }
      values[i] = finished_pair(sums[gate], sums[up], params.alpha, gate_bias, up_bias);
    }
  }

 private:
  /// Whether all pairs are whole and aligned.
  __device__ __forceinline__ static bool lie_in_pairs(const EntryParams& params) {
    uint64_t bits = static_cast<uint64_t>(params.n) * sizeof(Stored);
    if constexpr (spec::kBias) bits |= reinterpret_cast<uint64_t>(params.bias);
    if constexpr (spec::kAddsC)
      bits |= reinterpret_cast<uint64_t>(params.c) | static_cast<uint64_t>(params.c_stride) * sizeof(Stored);
    if constexpr (spec::kAddsC && kStacked) bits |= static_cast<uint64_t>(batch_of(params).c_stride) * sizeof(Stored);
    return bits % (2 * sizeof(Stored)) == 0;
  }
  template <int kColumns, bool kAligned>
  __device__ __forceinline__ void load_as(const EntryParams& params, const Tile& tile, int row, int column,
                                          uint32_t lane) {
    const int upper = row + static_cast<int>(lane / 4), first = column + static_cast<int>(lane % 4) * 2;
    const int left = tile.column_end - first;  // columns that are left
    const Stored* bias = static_cast<const Stored*>(params.bias);
    if constexpr (kAnyGroups) bias += int64_t{tile.group} * (spec::kSwapAb ? params.m : params.n);
    const Stored* c = static_cast<const Stored*>(params.c);
    if constexpr (kStacked) c += tile.group * batch_of(params).c_stride;
    if constexpr (spec::kBias && kPairs) {
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j)
        load_pair<kAligned>(&bias_[j * kPairWords], bias + first + j * 8, left - j * 8);
    } else if constexpr (spec::kBias) {
#pragma unroll
      for (int r = 0; r < 2; ++r) bias_[r] = load_one(bias + upper + 8 * r, upper + 8 * r < tile.row_end);
    }
    if constexpr (spec::kAddsC && spec::kScatter && !kPairs)
      load_scattered<kColumns>(params, c, upper, first, tile);
    else if constexpr (spec::kAddsC) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        int at = upper + 8 * r, exist = at < tile.row_end ? left : 0;
        if constexpr (spec::kScatter) {
          at = policy::scattered_row(params.groups, at, at < tile.row_end);
          if (at < 0) exist = 0;
        }
        if constexpr (kPairs) {
          const Stored* const from = c + at * params.c_stride + first;
#pragma unroll
          for (int j = 0; j < kColumns / 8; ++j)
            load_pair<kAligned>(&c_[(j * 2 + r) * kPairWords], from + j * 8, exist - j * 8);
        } else {
          const Stored* const from = c + first * params.c_stride + at;
#pragma unroll
          for (int j = 0; j < kColumns / 8; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e)
              c_[j * 4 + r * 2 + e] = load_one(from + (j * 8 + e) * params.c_stride, j * 8 + e < exist);
        }
      }
    }
  }
  /// With swap_ab, columns of the tile are rows of c.
  template <int kColumns>
  __device__ __forceinline__ void load_scattered(const EntryParams& params, const Stored* c, int upper, int first,
                                                 const Tile& tile) {
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = first + j * 8 + e;
        const int row = policy::scattered_row(params.groups, column, column < tile.column_end);
#pragma unroll
        for (int r = 0; r < 2; ++r)
          c_[j * 4 + r * 2 + e] =
              load_one(c + row * params.c_stride + upper + 8 * r, row >= 0 && upper + 8 * r < tile.row_end);
      }
  }
  __device__ __forceinline__ static uint32_t load_one(const Stored* from, bool exists) {
    if constexpr (kHalves)
      return ptx::ld_global_u16_if(from, exists);
    else
      return ptx::ld_global_u32_if(from, exists);
  }
  template <bool kAligned>
  __device__ __forceinline__ static void load_pair(uint32_t* to, const Stored* from, int left) {
    if constexpr (kAligned && kHalves) {
      to[0] = ptx::ld_global_u32_if(from, left > 0);
    } else if constexpr (kAligned) {
      ptx::ld_global_v2_u32_if(to, from, left > 0);
    } else {
      const uint32_t low = load_one(from, left > 0), high = load_one(from + 1, left > 1);
      to[0] = kHalves ? low | high << 16 : low;
      if constexpr (!kHalves) to[1] = high;
    }
  }
  __device__ __forceinline__ static float of_pair(const uint32_t* pair, int which) {
    return kHalves ? addend_of(pair[0], which) : addend_of(pair[which], 0);
  }

  uint32_t bias_[!spec::kBias ? 1 : kPairs ? kTiles * kPairWords : 2];
  uint32_t c_[!spec::kAddsC ? 1 : kPairs ? kTiles * 2 * kPairWords : kTiles * 4];
};

/// Makes the results of a slab: of kColumns columns of the tile, with their addends.
template <int kColumns, int kMost, int kCount>
__device__ __forceinline__ void finish_slab(const GemmParams& params, float (&values)[kCount],
                                            const float (&sums)[kColumns / 2], const Addends<kMost>& addends) {
  if constexpr (kGated) {
    addends.apply_gates(params, sums, values);
  } else if constexpr (kPlainSums) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = sums[i];
  } else {
    addends.apply(params, sums, values);
  }
}

/// Stores columns [kFirst, kFirst + kCount) of a tile that are queries, keys and values. Kernels that write a cache
/// define it: gemm_sm90_kv.cu.
template <class Params, int kFirst, int kCount>
class WrittenHeads;

}  // namespace
}  // namespace kernelwright

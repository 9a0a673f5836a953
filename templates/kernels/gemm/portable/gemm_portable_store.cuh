/// The end of a tile of gemm_portable: scales of whole rows and columns, the epilogue, and the stores of results.
#pragma once

#include "kernels/gemm/gemm_epilogue.cuh"
#include "kernels/gemm/gemm_quantize.cuh"
#include "kernels/gemm/portable/gemm_portable_tiles.cuh"
#include "policy/scattered_row.cuh"
#include "ptx/memory.cuh"
#include "tile/element_store.cuh"

// Behind the others, so that the constants of kernels without such results keep their order.
#include "kernels/gemm/gemm_blocks.cuh"
#include "kernels/gemm/portable/gemm_portable_statistics.cuh"

namespace kernelwright {
namespace {

/// Scales of a whole row and a whole column, or of the whole tensor.
class EndScales {
 public:
  __device__ __forceinline__ EndScales(const EntryParams& params, const Place& place)
      : columns_(ptx::opaque(params.scale_b) + of_group(params, place.group)), n_(params.n) {
    const float* rows = ptx::opaque(params.scale_a);
    if constexpr (kBatched && spec::kScales == ScaleKind::kPerToken) rows += int64_t{place.group} * params.m;
    if constexpr (spec::kScales == ScaleKind::kPerTensor) {
      of_row_[0] = ptx::ld_global_settled_f32(rows) * ptx::ld_global_settled_f32(columns_);
    } else if constexpr (spec::kScales == ScaleKind::kPerToken) {
#pragma unroll
      for (int r = 0; r < kRowsOfThread; ++r) {
        const int row = source_row(params, min(place.row_of(r), place.row_end - 1));
        of_row_[r] = row < 0 ? 0 : ptx::ld_global_settled_f32(rows + row);
      }
    }
  }
  /// Loads the scales of two neighbouring columns.
  __device__ __forceinline__ void load(float (&of_column)[2], int column) const {
    if constexpr (spec::kScales == ScaleKind::kPerToken) {
#pragma unroll
      for (int e = 0; e < 2; ++e) of_column[e] = ptx::ld_global_settled_f32(columns_ + min(column + e, n_ - 1));
    }
  }
  __device__ __forceinline__ float scaled(float sum, int r, float of_column) const {
    if constexpr (spec::kScales == ScaleKind::kPerTensor) return sum * of_row_[0];
    if constexpr (spec::kScales == ScaleKind::kPerToken) return sum * (of_row_[r] * of_column);
    return sum;
  }

 private:
  /// Scales of b ahead of those of a group.
  __device__ __forceinline__ static int64_t of_group(const GemmPortableParams& params, int group) {
    if constexpr (!kManyB) return 0;
    if constexpr (spec::kScales == ScaleKind::kPerTensor) return group;
    return spec::kScales == ScaleKind::kPerToken ? int64_t{group} * params.n : 0;
  }

  const float* const columns_;
  const int n_;
  float of_row_[spec::kScales == ScaleKind::kPerToken ? kRowsOfThread : 1];
};

__device__ __forceinline__ uint32_t load_addend(const tile::Storage<spec::kCDType>* from, bool exists) {
  if constexpr (sizeof(*from) == 2)
    return ptx::ld_global_u16_if(from, exists);
  else
    return ptx::ld_global_u32_if(from, exists);
}

using Result = tile::Storage<stored_dtype()>;
/// Row `row` of d, or of the matrix d that a group has.
__device__ __forceinline__ Result* row_of_d(const EntryParams& params, int group, int row) {
  if constexpr (kStacked)
    return static_cast<Result*>(params.d) + group * batch_of(params).d_stride + row * params.d_stride;
  else
    return static_cast<Result*>(params.d) + row * params.d_stride;
}
/// Elements of c ahead of those of a group that has a matrix d of its own.
__device__ __forceinline__ int64_t c_ahead(const EntryParams& params, int group) {
  if constexpr (kStacked) return group * batch_of(params).c_stride;
  return 0;
}
/// Whether pairs of elements of d are aligned.
__device__ __forceinline__ bool stores_pairs(const EntryParams& params, int group) {
  if constexpr (kStacked)
    return tile::stores_pairs<stored_dtype()>(row_of_d(params, group, 0), params.d_stride);
  else
    return tile::stores_pairs<stored_dtype()>(params.d, params.d_stride);
}

/// The rows of d and c that a thread's rows become.
class ResultRows {
 public:
  __device__ __forceinline__ ResultRows(const EntryParams& params, const Place& place) : place_(place) {
    if constexpr (spec::kScatter) {
#pragma unroll
      for (int r = 0; r < kRowsOfThread; ++r)
        rows_[r] = policy::scattered_row(params.groups, place.row_of(r), place.row_of(r) < place.row_end);
    }
  }
  __device__ __forceinline__ int of(int r) const { return spec::kScatter ? rows_[r] : place_.row_of(r); }
  __device__ __forceinline__ bool exists(int r) const {
    return spec::kScatter ? rows_[r] >= 0 : place_.row_of(r) < place_.row_end;
  }

 private:
  const Place& place_;
  int rows_[spec::kScatter ? kRowsOfThread : 1];
};

/// Makes results of gates and ups: the second column tile of two has the ups of the gates in the first. Calls
/// then(tile, r, column, count, value): the column tile of d, the thread's row, the first column of d of two, how many
/// of them exist, and their values.
template <class Then>
__device__ __forceinline__ void finish_gated(const Sums& sums, const EntryParams& params, const Place& place,
                                             const EndScales& scales, const Then& then) {
  using Addend = tile::Storage<spec::kCDType>;
  const Addend* const bias_row = static_cast<const Addend*>(params.bias) + int64_t{place.group} * params.n;
#pragma unroll
  for (int n = 0; n < kColumnTiles; n += 2) {
    const int gate = place.column_of(n), up = gate + 8, left = params.n - gate;  // columns that exist, of the product
    const int column = gate / 16 * 8 + gate % 8;                                 // of d
    float of_gate[2] = {}, of_up[2] = {};
    scales.load(of_gate, gate);
    scales.load(of_up, up);
    float gate_bias[2] = {}, up_bias[2] = {};
    if constexpr (spec::kBias) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        gate_bias[e] = addend_of(load_addend(bias_row + gate + e, left > 0), 0);
        up_bias[e] = addend_of(load_addend(bias_row + up + e, left > 0), 0);
      }
    }
#pragma unroll
    for (int r = 0; r < kRowsOfThread; ++r) {
      float value[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int i = r % 2 * 2 + e;
        value[e] =
            finished_pair(scales.scaled(sums[r / 2][n][i], r, of_gate[e]),
                          scales.scaled(sums[r / 2][n + 1][i], r, of_up[e]), params.alpha, gate_bias[e], up_bias[e]);
      }
      then(n / 2, r, column, left > 0 ? 2 : 0, value);
    }
  }
}

/// The same of sums that are no gates. Elements of c for two columns are loaded together, and before then() is called
/// for them: d may be c.
template <class Then>
__device__ __forceinline__ void finish(const Sums& sums, const EntryParams& params, const Place& place,
                                       const EndScales& scales, const ResultRows& rows, const Then& then) {
  using Addend = tile::Storage<spec::kCDType>;
  const Addend* const bias_row = static_cast<const Addend*>(params.bias) + int64_t{place.group} * params.n;
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
    const int column = place.column_of(n), count = params.n - column;  // columns that exist
    float of_column[2] = {};
    scales.load(of_column, column);
    uint32_t bias[2] = {}, c[kRowsOfThread][2] = {};
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if constexpr (spec::kBias) bias[e] = load_addend(bias_row + column + e, e < count);
      if constexpr (spec::kAddsC) {
#pragma unroll
        for (int r = 0; r < kRowsOfThread; ++r)
          c[r][e] = load_addend(static_cast<const Addend*>(params.c) + c_ahead(params, place.group) +
                                    rows.of(r) * params.c_stride + column + e,
                                e < count && rows.exists(r));
      }
    }
#pragma unroll
    for (int r = 0; r < kRowsOfThread; ++r) {
      float value[2];
#pragma unroll
      for (int e = 0; e < 2; ++e)
        value[e] = finished(scales.scaled(sums[r / 2][n][r % 2 * 2 + e], r, of_column[e]), params.alpha,
                            addend_of(bias[e], 0), params.beta, addend_of(c[r][e], 0));
      then(n, r, column, count, value);
    }
  }
}

/// Results that are quantised or measured. The tile's columns share a scale and a sum. So a row's largest magnitude
/// goes over all warps that have some of its columns, and so does its sum. They go through `shared`, [column
/// warps][block_m] f32 in the ring, once no warp reads that.
class QuantizedTile {
  enum : int { kTiles = kGated ? kColumnTiles / 2 : kColumnTiles };  // not a variable, which would be in every binary
  static_assert(!(spec::kQuantizes || kMeasures) || spec::kBlockN == contract::kGemmScaledColumns * (kGated ? 2 : 1),
                "one scale a row");
  static_assert(kColumnWarps * 4 <= 2 * spec::kSlabBytes, "what the ring has room for");

 public:
  __device__ __forceinline__ QuantizedTile(const Sums& sums, const EntryParams& params, const Place& place) {
    const auto keep = [&](int n, int r, int, int, const float(&value)[2]) {
      values_[n][r / 2][r % 2 * 2] = value[0], values_[n][r / 2][r % 2 * 2 + 1] = value[1];
    };
    if constexpr (kGated)
      finish_gated(sums, params, place, EndScales(params, place), keep);
    else
      finish(sums, params, place, EndScales(params, place), ResultRows(params, place), keep);
  }
  template <class Params>
  __device__ __forceinline__ void store(const Params& params, const Tile& tile, const Place& place, uint32_t shared,
                                        int warp, int lane) const {
    const int first = (kGated ? tile.column / 2 : tile.column) + warp / kRowWarps * (kTiles * 8) + lane % 4 * 2;
    if constexpr (kMeasures) measure(params, values_, place, first, shared, warp, lane);
    if constexpr (kMakesBlocks) {
      store_blocks(params, tile, place, warp, lane);
    } else if constexpr (spec::kQuantizes) {
      store_scaled(params, tile, place, shared, warp, lane);
    } else {
      store_rounded(params, place, first);
    }
  }

 private:
  /// In a block-scaled format. A warp has whole blocks.
  template <class Params>
  __device__ __forceinline__ void store_blocks(const Params& params, const Tile& tile, const Place& place, int warp,
                                               int lane) const {
    static_assert(kTiles % 4 == 0, "whole blocks");
    const BlockResult<spec::kDDType, spec::kBlockM> result(params, params.m, params.n / (kGated ? 2 : 1));
    const int first = (kGated ? tile.column / 2 : tile.column) + warp / kRowWarps * (kTiles * 8);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int n = 0; n < kTiles; n += 4) {
        float values[16];
#pragma unroll
        for (int i = 0; i < 16; ++i) values[i] = values_[n + i / 4][m][i % 4];
        result.store_of_quad(values, place.row_of(2 * m), first + n * 8, lane);
      }
  }
  /// `first`: the thread's first column of d.
  template <class Params>
  __device__ __forceinline__ void store_rounded(const Params& params, const Place& place, int first) const {
    const bool pairs = stores_pairs(params, place.group);
    const int columns = params.n / (kGated ? 2 : 1);
#pragma unroll
    for (int r = 0; r < kRowsOfThread; ++r) {
      if (place.row_of(r) >= place.row_end) continue;
      Result* const row = row_of_d(params, place.group, place.row_of(r)) + first;
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
        tile::store_elements<stored_dtype()>(row + n * 8, values_[n][r / 2][r % 2 * 2],
                                             values_[n][r / 2][r % 2 * 2 + 1], columns - first - n * 8, pairs);
    }
  }
  template <class Params>
  __device__ __forceinline__ void store_scaled(const Params& params, const Tile& tile, const Place& place,
                                               uint32_t shared, int warp, int lane) const {
    const uint32_t row_of_tile = static_cast<uint32_t>(warp % kRowWarps * kWarpRows + lane / 4);
    __syncthreads();  // all warps have read the ring
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      float largest[2] = {};
#pragma unroll
      for (int n = 0; n < kTiles; ++n) add_magnitudes(largest, values_[n][m]);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        largest[r] = largest_of_quad(largest[r]);
        if (lane % 4 == 0)
          ptx::st_shared_f32(at(shared, warp / kRowWarps, row_of_tile + Place::rows_to(2 * m + r)), largest[r]);
      }
    }
    __syncthreads();
    const bool pairs = stores_pairs(params, place.group);
    const ScaleRows scales(params, params.n / (kGated ? 2 : 1), place.group, params.groups.capacity);
    const int first = (kGated ? tile.column / 2 : tile.column) + warp / kRowWarps * (kTiles * 8) + lane % 4 * 2;
#pragma unroll
    for (int r = 0; r < kRowsOfThread; ++r) {
      float largest = 0;
#pragma unroll
      for (int i = 0; i < kColumnWarps; ++i)
        largest = ptx::max_nan_f32(largest, ptx::ld_shared_f32(at(shared, i, row_of_tile + Place::rows_to(r))));
      const float scale = scale_of(largest), factor = factor_of(scale);
      const bool exists = place.row_of(r) < place.row_end;
      scales.store(place.row_of(r), kGated ? tile.column / 2 : tile.column, scale,
                   exists && lane % 4 == 0 && warp < kRowWarps);
      if (!exists) continue;
      Result* const row = row_of_d(params, place.group, place.row_of(r)) + first;
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
        tile::store_elements<stored_dtype()>(row + n * 8, values_[n][r / 2][r % 2 * 2] * factor,
                                             values_[n][r / 2][r % 2 * 2 + 1] * factor, 2, pairs);
    }
  }
  __device__ __forceinline__ static uint32_t at(uint32_t shared, int column_warp, uint32_t row) {
    return shared + (static_cast<uint32_t>(column_warp * spec::kBlockM) + row) * 4;
  }

  float values_[kTiles][kRowTiles][4];
};

/// A tile of heads. Kernels that write a cache define it: gemm_portable_kv.cu.
template <class Params>
class TileOfHeads;

/// Puts the tile's heads into shared memory, and writes them from there. A template, so that other kernels do not
/// compile it.
template <class Params>
__device__ __forceinline__ void store_heads(const Sums& sums, const Params& params, const Tile& tile,
                                            const Place& place, uint32_t shared, int warp, int lane) {
  const TileOfHeads<Params> heads(params, shared, warp, lane);
  __syncthreads();  // all warps have read the ring
  finish(sums, params, place, EndScales(params, place), ResultRows(params, place),
         [&](int, int r, int column, int, const float(&value)[2]) {
           heads.put(place.row_of(r) - tile.row, column - tile.column, value);
         });
  __syncthreads();
  heads.write(tile);
}

/// Rows and columns past the end are neither read nor written. A thread reads its elements of c before it writes those
/// of d, because d may be c. `shared`: the ring, which is free but for warps that still multiply.
__device__ __forceinline__ void store(const Sums& sums, const EntryParams& params, const Tile& tile, const Place& place,
                                      uint32_t shared, int warp, int lane) {
  if constexpr (spec::kWritesKv) {
    store_heads(sums, params, tile, place, shared, warp, lane);
  } else if constexpr (spec::kQuantizes || kMeasures) {
    QuantizedTile(sums, params, place).store(params, tile, place, shared, warp, lane);
  } else {
    const EndScales scales(params, place);
    const ResultRows rows(params, place);
    const bool pairs = stores_pairs(params, place.group);
    const auto write = [&](int, int r, int column, int count, const float(&value)[2]) {
      if (rows.exists(r) && (!kGated || count > 0))
        tile::store_elements<stored_dtype()>(row_of_d(params, place.group, rows.of(r)) + column, value[0], value[1],
                                             kGated ? 2 : count, pairs);
    };
    if constexpr (kGated)
      finish_gated(sums, params, place, scales, write);
    else
      finish(sums, params, place, scales, rows, write);
  }
}

}  // namespace
}  // namespace kernelwright

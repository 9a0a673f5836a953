/// The end of a tile of gemm_portable: scales of whole rows and columns, the epilogue, and the stores of results.
#pragma once

#include "kernels/gemm/gemm_epilogue.cuh"
#include "kernels/gemm/portable/gemm_portable_tiles.cuh"
#include "ptx/memory.cuh"
#include "tile/element_store.cuh"

namespace kernelwright {
namespace {

/// Scales of a whole row and a whole column, or of the whole tensor.
class EndScales {
 public:
  __device__ __forceinline__ EndScales(const GemmPortableParams& params, const Place& place)
      : columns_(ptx::opaque(params.scale_b) + of_group(params, place.group)), n_(params.n) {
    const float* const rows = ptx::opaque(params.scale_a);
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
    if constexpr (!kGrouped) return 0;
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

/// Results of gates and ups: the second column tile of two has the ups of the gates in the first.
__device__ __forceinline__ void store_gated(const Sums& sums, const GemmPortableParams& params, const Place& place) {
  using Addend = tile::Storage<spec::kCDType>;
  using Result = tile::Storage<spec::kDDType>;
  const EndScales scales(params, place);
  const bool pairs = tile::stores_pairs<spec::kDDType>(params.d, params.d_stride);
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
      if (place.row_of(r) < place.row_end && left > 0)
        tile::store_elements<spec::kDDType>(static_cast<Result*>(params.d) + place.row_of(r) * params.d_stride + column,
                                            value[0], value[1], 2, pairs);
    }
  }
}

/// Rows and columns past the end are neither read nor written. Elements of c for two columns are loaded together. A
/// thread reads its elements of c before it writes those of d, because d may be c.
__device__ __forceinline__ void store(const Sums& sums, const GemmPortableParams& params, const Place& place) {
  if constexpr (kGated) return store_gated(sums, params, place);
  using Addend = tile::Storage<spec::kCDType>;
  using Result = tile::Storage<spec::kDDType>;
  const EndScales scales(params, place);
  const bool pairs = tile::stores_pairs<spec::kDDType>(params.d, params.d_stride);
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
          c[r][e] = load_addend(static_cast<const Addend*>(params.c) + place.row_of(r) * params.c_stride + column + e,
                                e < count && place.row_of(r) < place.row_end);
      }
    }
#pragma unroll
    for (int r = 0; r < kRowsOfThread; ++r) {
      float value[2];
#pragma unroll
      for (int e = 0; e < 2; ++e)
        value[e] = finished(scales.scaled(sums[r / 2][n][r % 2 * 2 + e], r, of_column[e]), params.alpha,
                            addend_of(bias[e], 0), params.beta, addend_of(c[r][e], 0));
      if (place.row_of(r) < place.row_end)
        tile::store_elements<spec::kDDType>(static_cast<Result*>(params.d) + place.row_of(r) * params.d_stride + column,
                                            value[0], value[1], count, pairs);
    }
  }
}

}  // namespace
}  // namespace kernelwright

/// Quantised results of gemm_sm100. A thread has a row of the tile, so it has all columns that share a scale. It stores
/// elements and scales from its registers, to where the launch says.
///
/// Groups: rows and their f32 scales lie where d's rows do, of masked groups the scales one group behind the other.
/// Atoms of scales begin anew with each group (contract/scale_atoms.h).
#pragma once

#include "kernels/gemm/gemm_blocks.cuh"
#include "kernels/gemm/gemm_quantize.cuh"
#include "kernels/gemm/sm100/gemm_sm100_items.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

/// The columns of d, and the first one that column `column` of the product makes.
template <class Params>
__device__ __forceinline__ int columns_of_d(const Params& params) {
  return params.n / (spec::kGated ? 2 : 1);
}
__device__ __forceinline__ int column_of_d(int column) { return column / (spec::kGated ? 2 : 1); }

/// Stores the results of one row in a block-scaled format: the first kResults of `values`, from column `column` of the
/// product on. A template, so that other kernels do not compile it.
template <DType kFormat, int kResults, class Params, class AnyItem, int kCount>
__device__ __forceinline__ void store_blocks(const Params& params, const AnyItem& item, const float (&values)[kCount],
                                             int row, int column) {
  static_assert(!kMakesBlocks || (kResults % 32 == 0 && !spec::kSwapAb), "whole blocks of a row");
  using Result = BlockResult<kFormat, contract::kBlackwellGemmRows>;
  if constexpr (kGrouped) {
    const Result result(params, item.row_end - item.first, columns_of_d(params), item.first, item.atom);
#pragma unroll
    for (int first = 0; first < kResults; first += 32)
      result.store_of_row(values + first, row - item.first, column_of_d(column) + first);
  } else {
    const Result result(params, params.m, columns_of_d(params));
#pragma unroll
    for (int first = 0; first < kResults; first += 32)
      result.store_of_row(values + first, row, column_of_d(column) + first);
  }
}

/// Columns of a row that share an f32 scale, 8 bits each. The thread collects them. A template, so that other kernels
/// do not compile it.
template <class Params>
class ScaledRun {
  enum : int { kCount = contract::kGemmScaledColumns };

 public:
  /// Takes the first kResults of `own`, which are the columns from `first` on.
  template <int kResults, int kOwn>
  __device__ __forceinline__ void take(const float (&own)[kOwn], int first) {
#pragma unroll
    for (int i = 0; i < kResults; ++i) {
      values_[first + i] = own[i];
      largest_ = ptx::max_nan_f32(first + i == 0 ? 0.f : largest_, fabsf(own[i]));
    }
  }
  /// Keeps the first half of the columns in shared memory, 128 bytes from one to the next.
  __device__ __forceinline__ void park(uint32_t to) const {
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) ptx::st_shared_f32(to + i * 128, values_[i]);
  }
  /// Stores that half from there, and what has been taken since behind it.
  template <class AnyItem>
  __device__ __forceinline__ void store_both(const Params& params, const AnyItem& item, int row, int column,
                                             uint32_t parked) {
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      values_[kCount / 2 + i] = values_[i];
      values_[i] = __uint_as_float(ptx::ld_shared_u32(parked + i * 128));
      largest_ = ptx::max_nan_f32(largest_, fabsf(values_[i]));
    }
    store(params, item, row, column);
  }
  /// Stores all of them, as columns from `column` of d on, of row `row`.
  template <class AnyItem>
  __device__ __forceinline__ void store(const Params& params, const AnyItem& item, int row, int column) {
    const bool exists = row < rows_end(params, item) && column < columns_of_d(params);
    const float scale = scale_of(largest_), factor = factor_of(scale);
#pragma unroll
    for (float& value : values_) value *= factor;
    char* to = static_cast<char*>(params.elements) + row * params.row_bytes + column;
    if constexpr (kStacked) to += group_of(item) * batch_of(params).d_stride;  // elements of 8 bits
#pragma unroll
    for (int i = 0; i < kCount; i += 16)
      ptx::st_global_v4_if(
          to + i,
          {{tile::pack_word<spec::kDDType>(values_, i), tile::pack_word<spec::kDDType>(values_, i + 4),
            tile::pack_word<spec::kDDType>(values_, i + 8), tile::pack_word<spec::kDDType>(values_, i + 12)}},
          exists);
    int64_t line = column / kCount, within = row;
    if constexpr (kMasked || kStacked) line += int64_t{group_of(item)} * (columns_of_d(params) / kCount);
    if constexpr (kMasked) within -= group_of(item) * groups_of(params).capacity;
    ptx::st_global_u32_if(reinterpret_cast<float*>(params.scale_d) + line * params.scale_d_stride + within,
                          __float_as_uint(scale), exists);
  }

 private:
  float values_[kCount];
  float largest_;
};
/// In its place where there are no such scales.
struct NoScaledRun {
  template <int kResults, class Own>
  __device__ __forceinline__ void take(const Own&, int) {}
  template <class Params, class AnyItem>
  __device__ __forceinline__ void store(const Params&, const AnyItem&, int, int) {}
  __device__ __forceinline__ void park(uint32_t) const {}
  template <class Params, class AnyItem>
  __device__ __forceinline__ void store_both(const Params&, const AnyItem&, int, int, uint32_t) {}
};

}  // namespace
}  // namespace kernelwright

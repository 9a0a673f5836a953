/// The epilogue of gemm_sm100: scales of tensors and tokens, then activation(alpha acc + bias) + beta c. A thread has a
/// row of the tile, in f32 registers.
#pragma once

#include "kernels/gemm/gemm_epilogue.cuh"
#include "kernels/gemm/sm100/gemm_sm100_tiles.cuh"
#include "tile/element_run.cuh"

namespace kernelwright {
namespace {

/// A thread's row of an item. A launch ahead may have written the global memory that this class reads. That launch has
/// ended by then, because this item's operands have been loaded.
class RowEpilogue {
  static constexpr bool kPerTensor = spec::kScales == ScaleKind::kPerTensor;
  static constexpr bool kPerToken = spec::kScales == ScaleKind::kPerToken;
  using Addends = tile::ElementRun<spec::kCDType>;
  using Storage = tile::Storage<spec::kCDType>;

 public:
  /// `row`: a row as the kernel counts them; it may lie past the end.
  __device__ __forceinline__ RowEpilogue(const BlackwellGemmParams& params, int row)
      : params_(params), row_(row), exists_(row < params.m) {
    if constexpr (kPerTensor || kPerToken) scale_ = of_f32(params.scale_a, kPerToken ? row : 0, kPerTensor || exists_);
    if constexpr (kPerTensor) scale_ *= of_f32(params.scale_b, 0, true);
    if constexpr (spec::kBias && spec::kSwapAb) bias_ = addend(params.bias, row);
  }

  /// Finishes columns from `column` on.
  template <int kCount>
  __device__ __forceinline__ void apply(float (&values)[kCount], int column) const {
    constexpr int kRun = Addends::count;
    static_assert(kCount % kRun == 0);
#pragma unroll
    for (int first = 0; first < kCount; first += kRun) {
      const int at = column + first, left = params_.n - at;
      tile::ElementRun<DType::kF32> scales;
      Addends bias, c;
      if constexpr (kPerToken) scales.load(static_cast<const float*>(params_.scale_b) + at, left);
      if constexpr (spec::kBias && !spec::kSwapAb) bias.load(static_cast<const Storage*>(params_.bias) + at, left);
      if constexpr (spec::kAddsC) {
        const Storage* const from = static_cast<const Storage*>(params_.c);
        if constexpr (spec::kSwapAb)
          c.load_strided(from + at * params_.c_stride + row_, params_.c_stride, exists_ ? left : 0);
        else
          c.load(from + row_ * params_.c_stride + at, exists_ ? left : 0);
      }
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        float value = values[first + i];
        if constexpr (kPerTensor || kPerToken) value *= scale_;
        if constexpr (kPerToken) value *= scales.value(i);
        float of_bias = 0, of_c = 0;
        if constexpr (spec::kBias) of_bias = spec::kSwapAb ? bias_ : bias.value(i);
        if constexpr (spec::kAddsC) of_c = c.value(i);
        values[first + i] = finished(value, params_.alpha, of_bias, params_.beta, of_c);
      }
    }
  }

 private:
  __device__ __forceinline__ static float of_f32(const void* from, int at, bool exists) {
    return __uint_as_float(ptx::ld_global_u32_if(static_cast<const float*>(from) + at, exists));
  }
  __device__ __forceinline__ float addend(const void* from, int at) const {
    const Storage* const element = static_cast<const Storage*>(from) + at;
    if constexpr (sizeof(Storage) == 2)
      return addend_of(ptx::ld_global_u16_if(element, exists_), 0);
    else
      return addend_of(ptx::ld_global_u32_if(element, exists_), 0);
  }

  const BlackwellGemmParams& params_;
  const int row_;
  const bool exists_;
  float scale_ = 1, bias_ = 0;
};

/// f32 scales of 128 elements of k: those of one slab's products in the thread's row of an item.
class SlabScales {
  static constexpr int kOfColumns = spec::kSwapAb ? (kColumns + 31) / 32 : 1;  // registers of a lane
  static constexpr int kBlock = 128;                                           // rows of the problem's b to a scale

 public:
  struct Factors {
    float row, columns[kOfColumns];
  };

  __device__ __forceinline__ SlabScales(const BlackwellGemmParams& params, const Item& item, int row)
      : row_(static_cast<const float*>(params.scale_a)),
        columns_(static_cast<const float*>(params.scale_b)),
        row_exists_(row < params.m) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    if constexpr (spec::kSwapAb) {
      row_ += row / kBlock * params.scale_a_stride;
      row_step_ = 1;
      columns_ += item.column + lane;
      column_step_ = params.scale_b_stride;
      left_ = params.n - item.column - lane;
    } else {
      row_ += row;
      row_step_ = params.scale_a_stride;
      columns_ += item.column / kBlock * params.scale_b_stride;
      column_step_ = 1, left_ = params.n - item.column;  // the rows' block exists
    }
  }
  __device__ __forceinline__ Factors read(int slab) const {
    Factors factors;
    factors.row = __uint_as_float(ptx::ld_global_u32_if(row_ + slab * row_step_, row_exists_));
#pragma unroll
    for (int i = 0; i < kOfColumns; ++i)
      factors.columns[i] =
          __uint_as_float(ptx::ld_global_u32_if(columns_ + slab * column_step_ + i * 32, left_ > i * 32));
    return factors;
  }
  /// The factor of the product in column `column` of the tile. All lanes call it.
  __device__ __forceinline__ static float factor(const Factors& factors, int column) {
    if constexpr (spec::kSwapAb)
      return factors.row * __shfl_sync(0xffffffff, factors.columns[column / 32], column % 32);
    else
      return factors.row * factors.columns[0];
  }

 private:
  const float* row_;
  const float* columns_;
  int64_t row_step_, column_step_;
  int left_;
  const bool row_exists_;
};

}  // namespace
}  // namespace kernelwright

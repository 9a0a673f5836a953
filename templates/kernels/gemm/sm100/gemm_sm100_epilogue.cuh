/// The epilogue of gemm_sm100: scales of tensors and tokens, then activation(alpha acc + bias) + beta c. A thread has a
/// row of the tile, in f32 registers.
#pragma once

#include "kernels/gemm/gemm_epilogue.cuh"
#include "kernels/gemm/sm100/gemm_sm100_tiles.cuh"
#include "tile/element_run.cuh"

namespace kernelwright {
namespace {

/// Where the columns of an item end, and how many elements the groups ahead of its own have of a vector of the
/// problem's b. A base class, so that kernels without groups are the binaries that they were before there were any.
struct PlaceInGroups {
  const int columns_end_;
  const int64_t ahead_;
  __device__ __forceinline__ PlaceInGroups(const EntryParams& params, const Item& item)
      : columns_end_(columns_end(params, item)),
        ahead_(int64_t{group_of(item)} * (spec::kSwapAb ? params.m : params.n)) {}
  __device__ __forceinline__ int end(const EntryParams&) const { return columns_end_; }
  __device__ __forceinline__ int64_t ahead() const { return ahead_; }
};
struct PlaceInWhole {
  __device__ __forceinline__ PlaceInWhole(const EntryParams&, const Item&) {}
  __device__ __forceinline__ int end(const EntryParams& params) const { return params.n; }
  __device__ __forceinline__ int ahead() const { return 0; }
};

/// A thread's row of an item. A launch ahead may have written the global memory that this class reads. That launch has
/// ended by then, because this item's operands have been loaded.
class RowEpilogue : policy::Either<kGrouped, PlaceInGroups, PlaceInWhole>::type {
  using Place = policy::Either<kGrouped, PlaceInGroups, PlaceInWhole>::type;
  static constexpr bool kPerTensor = spec::kScales == ScaleKind::kPerTensor;
  static constexpr bool kPerToken = spec::kScales == ScaleKind::kPerToken;
  using Addends = tile::ElementRun<spec::kCDType>;
  using Storage = tile::Storage<spec::kCDType>;

 public:
  /// `row`: a row as the kernel counts them; it may lie past the end.
  __device__ __forceinline__ RowEpilogue(const EntryParams& params, const Item& item, int row)
      : Place(params, item), params_(params), row_(row), exists_(row < rows_end(params, item)) {
    if constexpr (kPerTensor) {
      scale_ = of_f32(params.scale_a, kManyOfRows ? group_of(item) : 0, true);
      scale_ *= of_f32(params.scale_b, kManyOfColumns ? group_of(item) : 0, true);
    } else if constexpr (kPerToken && kManyOfRows) {
      scale_ = of_f32(params.scale_a, ahead() + row, exists_);
    } else if constexpr (kPerToken && kGathersRows) {
      const int source = source_row(params, row, exists_);
      scale_ = of_f32(params.scale_a, source, source >= 0);
    } else if constexpr (kPerToken) {
      scale_ = of_f32(params.scale_a, row, exists_);
    }
    if constexpr (spec::kBias && spec::kSwapAb) bias_ = addend(params.bias, ahead() + row);
  }

  /// Finishes columns from `column` on.
  template <int kCount>
  __device__ __forceinline__ void apply(float (&values)[kCount], int column) const {
    constexpr int kRun = Addends::count;
    static_assert(kCount % kRun == 0);
#pragma unroll
    for (int first = 0; first < kCount; first += kRun) {
      const int at = column + first, left = end(params_) - at;
      tile::ElementRun<DType::kF32> scales;
      Addends bias, c;
      if constexpr (kPerToken) load_scales(scales, at, left);
      if constexpr (spec::kBias && !spec::kSwapAb)
        bias.load(static_cast<const Storage*>(params_.bias) + ahead() + at, left);
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
  /// Scales of single columns: of rows of the problem's b, or with swap_ab of its a.
  template <class Run>
  __device__ __forceinline__ void load_scales(Run& scales, int at, int left) const {
    const float* const all = static_cast<const float*>(params_.scale_b);
    if constexpr (kGathersRows && spec::kSwapAb)
      scales.load_each([&](int i) { return source_row(params_, at + i, i < left); }, all);
    else
      scales.load(all + (kManyOfColumns ? ahead() : 0) + at, left);
  }
  __device__ __forceinline__ static float of_f32(const void* from, int64_t at, bool exists) {
    return __uint_as_float(ptx::ld_global_u32_if(static_cast<const float*>(from) + at, exists));
  }
  __device__ __forceinline__ float addend(const void* from, int64_t at) const {
    const Storage* const element = static_cast<const Storage*>(from) + at;
    if constexpr (sizeof(Storage) == 2)
      return addend_of(ptx::ld_global_u16_if(element, exists_), 0);
    else
      return addend_of(ptx::ld_global_u32_if(element, exists_), 0);
  }

  const EntryParams& params_;
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

  __device__ __forceinline__ SlabScales(const EntryParams& params, const Item& item, int row)
      : row_(static_cast<const float*>(params.scale_a)),
        columns_(static_cast<const float*>(params.scale_b)),
        row_exists_(row < rows_end(params, item)) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    if constexpr (spec::kSwapAb) {
      if constexpr (kGrouped) row_ += group_of(item) * blocks_of(params.m) * params.scale_a_stride;
      row_ += row / kBlock * params.scale_a_stride;
      row_step_ = 1;
      column_step_ = params.scale_b_stride;
      left_ = columns_end(params, item) - item.column - lane;
      if constexpr (kGathersRows) {
#pragma unroll
        for (int i = 0; i < kOfColumns; ++i)
          sources_[i] = source_row(params, item.column + lane + i * 32, left_ > i * 32);
      } else {
        columns_ += first_scale(params, item) + item.column + lane;
      }
    } else {
      if constexpr (kGathersRows) {
        const int source = source_row(params, row, row_exists_);
        row_ += source;
        row_exists_ = source >= 0;
      } else {
        row_ += first_scale(params, item) + row;
      }
      row_step_ = params.scale_a_stride;
      if constexpr (kGrouped) columns_ += group_of(item) * blocks_of(params.n) * params.scale_b_stride;
      columns_ += item.column / kBlock * params.scale_b_stride;
      column_step_ = 1, left_ = params.n - item.column;  // the rows' block exists
    }
  }
  __device__ __forceinline__ Factors read(int slab) const {
    Factors factors;
    factors.row = __uint_as_float(ptx::ld_global_u32_if(row_ + slab * row_step_, row_exists_));
#pragma unroll
    for (int i = 0; i < kOfColumns; ++i) {
      if constexpr (kGathersRows && spec::kSwapAb)
        factors.columns[i] =
            __uint_as_float(ptx::ld_global_u32_if(columns_ + slab * column_step_ + sources_[i], sources_[i] >= 0));
      else
        factors.columns[i] =
            __uint_as_float(ptx::ld_global_u32_if(columns_ + slab * column_step_ + i * 32, left_ > i * 32));
    }
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
  __device__ __forceinline__ static int64_t blocks_of(int rows) { return (rows + kBlock - 1) / kBlock; }
  /// Scales of masked groups lie one group behind the other, and their rows are counted from the group's first one.
  __device__ __forceinline__ static int64_t first_scale(const EntryParams& params, const Item& item) {
    if constexpr (kMasked) {
      const int64_t stride = spec::kSwapAb ? params.scale_b_stride : params.scale_a_stride;
      return group_of(item) * ((params.k + kSlabDepth - 1) / kSlabDepth * stride - groups_of(params).capacity);
    } else {
      return 0;
    }
  }

  const float* row_;
  const float* columns_;
  int64_t row_step_, column_step_;
  int left_;
  bool row_exists_;
  int sources_[kGathersRows && spec::kSwapAb ? kOfColumns : 1];
};

}  // namespace
}  // namespace kernelwright

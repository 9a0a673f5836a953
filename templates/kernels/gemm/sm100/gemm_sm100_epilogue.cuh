/// The epilogue of gemm_sm100: scales of tensors and tokens, then activation(alpha acc + bias) + beta c, or products of
/// gates and ups. A thread has a row of the tile, in f32 registers.
#pragma once

#include "kernels/gemm/gemm_epilogue.cuh"
#include "kernels/gemm/sm100/gemm_sm100_items.cuh"
#include "policy/scattered_row.cuh"
#include "tile/element_run.cuh"

namespace kernelwright {
namespace {

/// Where the columns of an item end, and how many elements the groups ahead of its own have of a vector of the
/// problem's b. Also the row of d and c that a thread's row becomes, -1: none; with swap_ab columns become rows. A base
/// class, so that kernels without groups are the binaries that they were before there were any.
struct PlaceInGroups {
  const int columns_end_;
  const int64_t ahead_;
  int to_;
  __device__ __forceinline__ PlaceInGroups(const EntryParams& params, const Item& item, int row)
      : columns_end_(columns_end(params, item)),
        ahead_(int64_t{group_of(item)} * (spec::kSwapAb ? params.m : params.n)),
        to_(row) {
    if constexpr (spec::kScatter && !spec::kSwapAb)
      to_ = policy::scattered_row(groups_of(params), row, row < rows_end(params, item));
  }
  __device__ __forceinline__ int end(const EntryParams&) const { return columns_end_; }
  __device__ __forceinline__ int64_t ahead() const { return ahead_; }
  __device__ __forceinline__ int tokens_ahead() const { return 0; }
  __device__ __forceinline__ int c_ahead() const { return 0; }
  __device__ __forceinline__ int to() const { return to_; }
};
/// The same where each group has a matrix d. In the groups ahead, tokens_ahead() counts rows of the problem's a, and
/// c_ahead() elements of c and the gaps between its matrices.
struct PlaceInStack {
  const int64_t ahead_, tokens_ahead_, c_ahead_;
  __device__ __forceinline__ PlaceInStack(const EntryParams& params, const Item& item, int)
      : ahead_(int64_t{group_of(item)} * (spec::kSwapAb ? params.m : params.n)),
        tokens_ahead_(int64_t{group_of(item)} * (spec::kSwapAb ? params.n : params.m)),
        c_ahead_(group_of(item) * batch_of(params).c_stride) {}
  __device__ __forceinline__ int end(const EntryParams& params) const { return params.n; }
  __device__ __forceinline__ int64_t ahead() const { return ahead_; }
  __device__ __forceinline__ int64_t tokens_ahead() const { return tokens_ahead_; }
  __device__ __forceinline__ int64_t c_ahead() const { return c_ahead_; }
  __device__ __forceinline__ int to() const { return 0; }
};
struct PlaceInWhole {
  __device__ __forceinline__ PlaceInWhole(const EntryParams&, const Item&, int) {}
  __device__ __forceinline__ int end(const EntryParams& params) const { return params.n; }
  __device__ __forceinline__ int ahead() const { return 0; }
  __device__ __forceinline__ int tokens_ahead() const { return 0; }
  __device__ __forceinline__ int c_ahead() const { return 0; }
  __device__ __forceinline__ int to() const { return 0; }
};
using AnyPlace =
    policy::Either<kGrouped, PlaceInGroups, policy::Either<kStacked, PlaceInStack, PlaceInWhole>::type>::type;

/// A thread's row of an item. A launch ahead may have written the global memory that this class reads. That launch has
/// ended by then, because this item's operands have been loaded.
class RowEpilogue : AnyPlace {
  using Place = AnyPlace;
  static constexpr bool kPerTensor = spec::kScales == ScaleKind::kPerTensor;
  static constexpr bool kPerToken = spec::kScales == ScaleKind::kPerToken;
  using Addends = tile::ElementRun<spec::kCDType>;
  using Storage = tile::Storage<spec::kCDType>;

 public:
  using Place::to;
  /// `row`: a row as the kernel counts them; it may lie past the end.
  __device__ __forceinline__ RowEpilogue(const EntryParams& params, const Item& item, int row)
      : Place(params, item, row), params_(params), row_(row), exists_(row < rows_end(params, item)) {
    if constexpr (kPerTensor) {
      scale_ = of_f32(params.scale_a, kManyOfRows ? group_of(item) : 0, true);
      scale_ *= of_f32(params.scale_b, kManyOfColumns ? group_of(item) : 0, true);
    } else if constexpr (kPerToken && kManyOfRows) {
      scale_ = of_f32(params.scale_a, ahead() + row, exists_);
    } else if constexpr (kPerToken && kGathersRows) {
      const int source = source_row(params, row, exists_);
      scale_ = of_f32(params.scale_a, source, source >= 0);
    } else if constexpr (kPerToken) {
      scale_ = of_f32(params.scale_a, tokens_ahead() + row, exists_);
    }
    if constexpr (spec::kBias && spec::kSwapAb) bias_ = addend(params.bias, ahead() + row);
  }

  /// Finishes columns from `column` on. With gates, results are the first half of the values then.
  template <int kCount>
  __device__ __forceinline__ void apply(float (&values)[kCount], int column) const {
    if constexpr (kGated)
      apply_gates(values, column);
    else
      apply_each(values, column);
  }

 private:
  template <int kCount>
  __device__ __forceinline__ void apply_each(float (&values)[kCount], int column) const {
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
        const Storage* const from = static_cast<const Storage*>(params_.c) + c_ahead();
        if constexpr (spec::kScatter && spec::kSwapAb)
          c.load_each(
              [&](int i) -> int64_t {
                const int to = policy::scattered_row(groups_of(params_), at + i, i < left);
                return exists_ && to >= 0 ? to * params_.c_stride + row_ : -1;
              },
              from);
        else if constexpr (spec::kScatter)
          c.load(from + to() * params_.c_stride + at, to() >= 0 ? left : 0);
        else if constexpr (spec::kSwapAb)
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

  /// Makes products of gates and ups from columns from `column` on. Of two runs of 8 columns, the first has gates.
  ///
  /// With swap_ab, of two runs of 8 rows the first has gates, and rows are those of lanes. Two lanes that are 8 apart
  /// exchange a sum for each two columns. Then the lane of the gate makes the result of the first column, and the other
  /// lane that of the second one. All lanes call it.
  template <int kCount>
  __device__ __forceinline__ void apply_gates(float (&values)[kCount], int column) const {
    if constexpr (spec::kSwapAb) {
      const bool up = threadIdx.x % 16 >= 8;
      const float bias = __shfl_xor_sync(0xffffffff, bias_, 8), gate_bias = up ? bias : bias_;
      const float up_bias = up ? bias_ : bias;
#pragma unroll
      for (int first = 0; first < kCount; first += 8) {
        float own[8];
        scale_run(own, values, first, column);
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
          const float other = __shfl_xor_sync(0xffffffff, up ? own[i] : own[i + 1], 8);
          values[(first + i) / 2] =
              finished_pair(up ? other : own[i], up ? own[i + 1] : other, params_.alpha, gate_bias, up_bias);
        }
      }
    } else {
      static_assert(kCount % 16 == 0, "whole runs of gates and ups");
#pragma unroll
      for (int first = 0; first < kCount; first += 16) {
        float gates[8], ups[8];
        scale_run(gates, values, first, column);
        scale_run(ups, values, first + 8, column);
        tile::ElementRun<spec::kCDType> bias[2];
        if constexpr (spec::kBias) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int at = column + first + i * 8;
            bias[i].load(static_cast<const Storage*>(params_.bias) + ahead() + at, end(params_) - at);
          }
        }
#pragma unroll
        for (int i = 0; i < 8; ++i)
          values[first / 2 + i] = finished_pair(gates[i], ups[i], params_.alpha, spec::kBias ? bias[0].value(i) : 0,
                                                spec::kBias ? bias[1].value(i) : 0);
      }
    }
  }

  /// Sums of 8 columns, times the scales of tensors or tokens.
  template <int kCount>
  __device__ __forceinline__ void scale_run(float (&values)[8], const float (&sums)[kCount], int first,
                                            int column) const {
    tile::ElementRun<DType::kF32> scales;
    if constexpr (kPerToken) load_scales(scales, column + first, end(params_) - column - first);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      values[i] = sums[first + i];
      if constexpr (kPerTensor || kPerToken) values[i] *= scale_;
      if constexpr (kPerToken) values[i] *= scales.value(i);
    }
  }
  /// Scales of single columns: of rows of the problem's b, or with swap_ab of its a.
  template <class Run>
  __device__ __forceinline__ void load_scales(Run& scales, int at, int left) const {
    const float* const all = static_cast<const float*>(params_.scale_b);
    if constexpr (kGathersRows && spec::kSwapAb)
      scales.load_each([&](int i) { return source_row(params_, at + i, i < left); }, all);
    else
      scales.load(all + (kManyOfColumns ? ahead() : tokens_ahead()) + at, left);
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

/// f32 scales of 128 elements of k: those of one slab's products in the thread's row of an item. With gates, 128 gates
/// and the ups between them have a scale for each kind: first lie those of all gates, then of all ups.
class SlabScales {
  static constexpr int kOfColumns = spec::kSwapAb ? (kColumns + 31) / 32 : kGated ? 2 : 1;  // registers of a lane
  static constexpr int kBlock = 128;  // rows of the problem's b to a scale

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
      if constexpr (kManyB) row_ += group_of(item) * blocks_of(params.m) * params.scale_a_stride;
      row_ += block_of(row, params.m) * params.scale_a_stride;
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
      if constexpr (kManyB) columns_ += group_of(item) * blocks_of(params.n) * params.scale_b_stride;
      columns_ += block_of(item.column, params.n) * params.scale_b_stride;
      column_step_ = 1, left_ = params.n - item.column;  // the rows' block exists
      if constexpr (kGated) ups_ = blocks_of(params.n) / 2 * params.scale_b_stride;
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
      else if constexpr (kGated && !spec::kSwapAb)
        factors.columns[i] =
            __uint_as_float(ptx::ld_global_u32_if(columns_ + slab * column_step_ + i * ups_, left_ > 0));
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
      return factors.row * factors.columns[kGated ? column / 8 % 2 : 0];
  }

 private:
  /// Blocks of `rows` rows of the problem's b, and that of row `row` of them. Of a tile's first one, with gates, the
  /// block of its gates.
  __device__ __forceinline__ static int64_t blocks_of(int rows) {
    if constexpr (kGated) return 2 * ((rows + 2 * kBlock - 1) / (2 * kBlock));
    return (rows + kBlock - 1) / kBlock;
  }
  __device__ __forceinline__ static int64_t block_of(int row, int rows) {
    if constexpr (kGated) return row / (2 * kBlock) + row / 8 % 2 * (blocks_of(rows) / 2);
    return row / kBlock;
  }
  /// Scales of masked groups lie one group behind the other, and their rows are counted from the group's first one.
  __device__ __forceinline__ static int64_t first_scale(const EntryParams& params, const Item& item) {
    if constexpr (kMasked || kBatched) {
      const int64_t stride = spec::kSwapAb ? params.scale_b_stride : params.scale_a_stride;
      return group_of(item) * ((params.k + kSlabDepth - 1) / kSlabDepth * stride - rows_ahead_of_each(params));
    } else {
      return 0;
    }
  }

  /// Rows that a group's rows are counted from beside its first one, for each group ahead.
  template <class Params>
  __device__ __forceinline__ static int rows_ahead_of_each(const Params& params) {
    if constexpr (kMasked)
      return groups_of(params).capacity;
    else
      return 0;
  }

  const float* row_;
  const float* columns_;
  int64_t row_step_, column_step_;
  int64_t ups_ = 0;  // from a scale of gates to that of their ups
  int left_;
  bool row_exists_;
  int sources_[kGathersRows && spec::kSwapAb ? kOfColumns : 1];
};

}  // namespace
}  // namespace kernelwright

/// row_op: kernel parameters, and how a row is dealt to threads, in one place for the host and the kernel.
#pragma once

#include "contract/integers.h"

namespace kernelwright::contract {

/// Strides count elements, but for out_row_bytes. A null pointer stands for an operand that the problem lacks.
struct RowOpParams {
  const void* x;         // [rows, x_stride]: rows of `width`, or of twice as many with gates and ups
  const void* residual;  // [rows, residual_stride]
  void* residual_out;    // [rows, residual_out_stride]; may be `residual`
  const void* weight;    // [width]
  void* out;             // rows of out_row_bytes
  // per_tensor: one f32, which is given. per_token: f32 [rows]. per_block: f32 [width / 128, scale_stride] with
  // scale_columns, else [rows, scale_stride]. Block-scaled formats: the bytes of contract/block_scales.h.
  void* scale;
  int64_t x_stride, residual_stride, residual_out_stride, out_row_bytes, scale_stride;
  int64_t rows;
  float eps;
  float least;           // what a largest magnitude counts as, if it is smaller
  float alpha, limit;    // of clamped gates
  float tensor_scale;    // block-scaled formats: values are divided by it first
  bool constant_weight;  // no launch ahead writes the weights: they are loaded before the wait for it
};

/// Beside these, of kernels that merge: the LSEs of heads, natural logarithms. -inf: no key.
struct RowMergeParams : RowOpParams {
  const float* lse;                     // of x
  const float* residual_lse;            // of residual
  float* lse_out;                       // overlaps neither: threads of a row read them at different times
  int64_t lse_stride, lse_head_stride;  // from one row to the next, and from one head
};

constexpr int32_t kRowScaleBlock = 128;  // elements of a row with one scale of per_block

/// The elements of a row that threads walk: up to the end of the last atom of scales, where scales lie in atoms.
/// `vector`: elements that share a scale there; else 0.
constexpr int32_t walked_elements(int32_t width, int32_t vector) {
  const int32_t step = vector > 0 ? 4 * vector : 1;
  return (width + step - 1) / step * step;
}

/// Vectors that a thread has of a row.
constexpr int32_t rounds_of_row(int32_t walked, int32_t vector, int32_t threads) {
  return ((walked + vector - 1) / vector + threads - 1) / threads;
}

}  // namespace kernelwright::contract

/// moe_combine: kernel parameters, and how rows are dealt to threads, in one place for the host and the kernel.
#pragma once

#include "contract/integers.h"

namespace kernelwright::contract {

/// A null pointer stands for an operand that the problem lacks. Strides count elements.
struct MoeCombineParams {
  const void* rows;          // [num_rows, rows_stride]: what experts made
  const int32_t* positions;  // [tokens, top_k]: the row of each pair; outside [0, num_rows): none
  const float* weights;      // [tokens, top_k]
  const void* residual;      // [tokens, residual_stride]
  void* out;                 // [tokens, out_stride]
  int64_t rows_stride, residual_stride, out_stride;
  int32_t tokens;
  uint32_t num_rows;
};

constexpr int32_t kVectorBytes = 16;

/// Vectors of 16 bytes that a row of 16-bit elements has. A thread has one of them.
constexpr int32_t vectors_of_row(int32_t width) { return width / 8; }

/// Slots of a token whose words a thread loads at once: 4, 2 or 1.
constexpr int32_t slots_of_load(int32_t top_k) { return top_k % 4 == 0 ? 4 : top_k % 2 == 0 ? 2 : 1; }

}  // namespace kernelwright::contract

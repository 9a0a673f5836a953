/// quantize: kernel parameters and the shape of its grid, said once for the host and the kernel.
#pragma once

#include "contract/integers.h"

namespace kernelwright::contract {

/// Rows of f16, bf16 or f32 to elements and scales of a block-scaled format.
struct QuantizeParams {
  const void* x;       // [rows, k], rows x_stride elements apart
  void* elements;      // [rows, k], rows elements_stride elements apart; at multiples of 16 bytes
  uint8_t* scales;     // contract/block_scales.h; those past the end of rows and k, of the last atoms, become 0
  int64_t x_stride;    // elements
  int64_t row_bytes;   // from one row of `elements` to the next
  int32_t rows, k;     // k a multiple of 32
  float tensor_scale;  // x / tensor_scale is quantised
};

constexpr int32_t kQuantizeRows = 8;       // of a CTA, a warp each
constexpr int32_t kQuantizeColumns = 256;  // of k that a warp takes at a time, 8 a lane

}  // namespace kernelwright::contract

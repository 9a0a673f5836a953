/// quantize: kernel parameters and the shape of its grid, in one place for the host and the kernel.
#pragma once

#include "contract/integers.h"

namespace kernelwright::contract {

/// Converts rows of f16, bf16 or f32 into elements and scales of a block-scaled format.
struct QuantizeParams {
  const void* x;     // [rows, k], rows x_stride elements apart
  void* elements;    // [rows, k], rows elements_stride elements apart; at multiples of 16 bytes
  uint8_t* scales;   // layout of contract/block_scales.h; in the last atoms, scales past the end of rows and k become 0
  int64_t x_stride;  // elements
  int64_t row_bytes;   // bytes from one row of `elements` to the next
  int32_t rows, k;     // k a multiple of 32
  float tensor_scale;  // the kernel quantises x / tensor_scale
};

constexpr int32_t kQuantizeRows = 8;       // rows of a CTA; one warp has one row
constexpr int32_t kQuantizeColumns = 256;  // elements of k that a warp takes at a time, 8 per lane

}  // namespace kernelwright::contract

/// The arithmetic of tcgen05.mma: rows of D, in tensor memory itself, as sums of rows of A times B.
///
/// A row of D is contiguous. So B's panel has the columns side by side, and each element of A is repeated across them.
/// No accumulator is ever moved to another layout, and rows may lie anywhere.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kernelwright::emulator {

inline constexpr std::uint32_t kMaxTensorRows = 128, kMaxTensorColumns = 256, kMaxTensorDepth = 96;

struct RowProduct {
  float* const* d = nullptr;        // by row
  const float* const* a = nullptr;  // by row: [depth]
  std::uint32_t rows = 0;
  const float* b = nullptr;  // [depth][b_stride], `columns` of each
  std::size_t b_stride = 0;
  std::uint32_t columns = 0;  // a multiple of 8
  std::uint32_t depth = 0;
  bool accumulate = true;  // false: D's old values are not read
};
/// D += sum over k of A[.][k] B[k][.], in order of k. Each step is rounded to nearest even in f32. A NaN is stored as
/// tensor cores write it, 0x7fffffff. Only this function defines how the emulated tcgen05.mma sums. The hardware
/// instead aligns and truncates the products of an instruction. Products are exact in f32, except tf32 and bf16
/// products beyond its exponents. So a fused multiply-add rounds as a product and a sum would.
void multiply_rows(const RowProduct& product);

/// to[k * stride + r] = from[r * depth + k] for `rows` (a multiple of 8) and `depth` (a multiple of 4).
void transpose_panel(const float* from, std::uint32_t rows, std::uint32_t depth, float* to, std::size_t stride);

}  // namespace kernelwright::emulator

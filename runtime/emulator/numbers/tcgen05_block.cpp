// This file is compiled with -ffp-contract=fast: a multiply and an add become an fma where the processor has one.
// multiply_rows() says why the result is the same.
#include "kernelwright/runtime/emulator/numbers/tcgen05_block.h"

#include "kernelwright/runtime/emulator/numbers/matrix_transpose.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define KERNELWRIGHT_TCGEN05_X86 1
#endif

namespace kernelwright::emulator {
namespace {

#define KERNELWRIGHT_NAME baseline
#define KERNELWRIGHT_LANES 4
#define KERNELWRIGHT_ROWS 4
#define KERNELWRIGHT_VECTORS 2
#include "kernelwright/runtime/emulator/numbers/tcgen05_multiply.inc"

#ifdef KERNELWRIGHT_TCGEN05_X86
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define KERNELWRIGHT_NAME avx2
#define KERNELWRIGHT_LANES 8
#define KERNELWRIGHT_ROWS 4
#define KERNELWRIGHT_VECTORS 2
#include "kernelwright/runtime/emulator/numbers/tcgen05_multiply.inc"
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#define KERNELWRIGHT_NAME avx512
#define KERNELWRIGHT_LANES 16
#define KERNELWRIGHT_ROWS 4
#define KERNELWRIGHT_VECTORS 4
#include "kernelwright/runtime/emulator/numbers/tcgen05_multiply.inc"
#pragma GCC pop_options
#endif

using Multiply = void (*)(const RowProduct&);

Multiply choose() {
#ifdef KERNELWRIGHT_TCGEN05_X86
  if (__builtin_cpu_supports("x86-64-v4")) return avx512::multiply;
  if (__builtin_cpu_supports("x86-64-v3")) return avx2::multiply;
#endif
  return baseline::multiply;
}

}  // namespace

void multiply_rows(const RowProduct& product) {
  static const Multiply kMultiply = choose();
  kMultiply(product);
}

void transpose_panel(const float* from, std::uint32_t rows, std::uint32_t depth, float* to, std::size_t stride) {
  float eight[kMaxTensorDepth * 8];
  for (std::uint32_t row = 0; row < rows; row += 8) {
    transpose_8_rows(from + std::size_t{row} * depth, static_cast<int>(depth), static_cast<int>(depth), eight);
    for (std::uint32_t k = 0; k < depth; ++k)
      for (std::uint32_t i = 0; i < 8; ++i) to[k * stride + row + i] = eight[k * 8 + i];
  }
}

}  // namespace kernelwright::emulator

#include "kernelwright/runtime/emulator/numbers/wgmma_block.h"

#include <bit>
#include <cstring>
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#define KERNELWRIGHT_WGMMA_X86 1
#endif

namespace kernelwright::emulator {
namespace {

constexpr std::int32_t kExponentBits = 0x7f800000;
constexpr int kNarrowBits = 13;                                   // behind the leading bit
constexpr std::int32_t kNarrowMask = -(1 << (23 - kNarrowBits));  // what is left of a float
constexpr float kZeroPower = 0x1p-60f;                            // products with it are below all others
constexpr float kLeastProduct = 0x1p-32f;                         // of two e5m2 that are not zero

/// Panels of fp8, from the rows and columns of one pair of registers on.
struct NarrowPanels {
  const float *a, *b, *a_powers, *b_powers;
};

#define KERNELWRIGHT_NAME baseline
#define KERNELWRIGHT_LANES 4
#define KERNELWRIGHT_PAIRS 1
#include "kernelwright/runtime/emulator/numbers/wgmma_multiply.inc"

#ifdef KERNELWRIGHT_WGMMA_X86
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define KERNELWRIGHT_NAME avx2
#define KERNELWRIGHT_LANES 8
#define KERNELWRIGHT_PAIRS 1
#include "kernelwright/runtime/emulator/numbers/wgmma_multiply.inc"
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#define KERNELWRIGHT_NAME avx512
#define KERNELWRIGHT_LANES 16
#define KERNELWRIGHT_PAIRS 4
#include "kernelwright/runtime/emulator/numbers/wgmma_multiply.inc"
#pragma GCC pop_options
#endif

using Multiply = void (*)(const FragmentProduct&);

Multiply choose() {
#ifdef KERNELWRIGHT_WGMMA_X86
  if (__builtin_cpu_supports("x86-64-v4")) return avx512::multiply;
  if (__builtin_cpu_supports("x86-64-v3")) return avx2::multiply;
#endif
  return baseline::multiply;
}

typedef float Four __attribute__((vector_size(16)));
void load(Four& vector, const float* from) { std::memcpy(&vector, from, sizeof vector); }
void store(const Four& vector, float* to) { std::memcpy(to, &vector, sizeof vector); }

/// rows[i][0..3] of 4 rows become 4 columns.
void transpose(Four (&rows)[4]) {
  const Four low01 = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
  const Four low23 = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
  const Four high01 = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
  const Four high23 = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
  rows[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
  rows[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
  rows[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
  rows[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
}

}  // namespace

void multiply_fragments(const FragmentProduct& product) {
  static const Multiply kMultiply = choose();
  kMultiply(product);
}

void make_powers(const float* panel, std::size_t count, float* powers) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t bits = std::bit_cast<std::int32_t>(panel[i]) & kExponentBits;
    powers[i] = bits == 0 ? kZeroPower : std::bit_cast<float>(bits);
  }
}

void make_a_panel(const float* values, std::uint32_t depth, bool mn_major, bool negate, float* panel) {
  const float sign = negate ? -1.0f : 1.0f;
  const std::size_t row_step = mn_major ? 1 : depth, k_step = mn_major ? kWgmmaRows : 1;
  for (std::uint32_t group = 0; group < kWgmmaRows / 8; ++group)
    for (std::uint32_t k = 0; k < depth; ++k, panel += 32)
      for (std::uint32_t row = 0; row < 8; ++row) {
        const float value = sign * values[(group * 8 + row) * row_step + k * k_step];
        store(Four{value, value, value, value}, panel + row * 4);
      }
}

void make_b_panel(const float* values, std::uint32_t columns, std::uint32_t depth, bool mn_major, float* panel) {
  for (std::uint32_t group = 0; group < columns / 8; ++group, panel += static_cast<std::size_t>(depth) * 8) {
    if (mn_major) {
      for (std::uint32_t k = 0; k < depth; ++k) {
        Four low, high;
        load(low, values + static_cast<std::size_t>(k) * columns + group * 8);
        load(high, values + static_cast<std::size_t>(k) * columns + group * 8 + 4);
        store(__builtin_shufflevector(low, high, 0, 2, 4, 6), panel + k * 8);
        store(__builtin_shufflevector(low, high, 1, 3, 5, 7), panel + k * 8 + 4);
      }
      continue;
    }
    for (std::uint32_t parity = 0; parity < 2; ++parity)
      for (std::uint32_t k = 0; k < depth; k += 4) {
        Four rows[4];
        for (std::uint32_t i = 0; i < 4; ++i)
          load(rows[i], values + static_cast<std::size_t>(group * 8 + 2 * i + parity) * depth + k);
        transpose(rows);
        for (std::uint32_t i = 0; i < 4; ++i) store(rows[i], panel + (k + i) * 8 + parity * 4);
      }
  }
}

}  // namespace kernelwright::emulator

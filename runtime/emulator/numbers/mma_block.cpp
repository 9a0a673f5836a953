// This file is compiled with -ffp-contract=fast: a multiply and an add become an fma where the processor has one.
// multiply_accumulate() says why the result is the same.
#include "kernelwright/runtime/emulator/numbers/mma_block.h"

#include <bit>
#include <cstring>
#include <limits>

#include "kernelwright/runtime/emulator/numbers/matrix_transpose.h"
#include "kernelwright/runtime/emulator/numbers/target_clones.h"

namespace kernelwright::emulator {

namespace {

constexpr int kRegisterBytes = 128, kRows = 8;
constexpr std::uint32_t kSign = 0x80000000u;

// Turns narrow floats into floats: moves exponent and mantissa into place and adds the difference of the biases. A
// number with the smallest exponent is an integer times the smallest step, so no step meets a denormal float, which is
// slow on processors. A number with the largest exponent is inf or NaN, except in e4m3, whose only NaN is all ones.
template <int kMantissaBits, int kBiasDifference>
std::uint32_t widened(std::uint32_t magnitude) {
  constexpr int kShift = 23 - kMantissaBits;
  constexpr float kSmallest =
      std::bit_cast<float>(static_cast<std::uint32_t>(kBiasDifference + 1 - kMantissaBits) << 23);
  const std::uint32_t normal = (magnitude << kShift) + (static_cast<std::uint32_t>(kBiasDifference) << 23);
  const float denormal = static_cast<float>(static_cast<std::int32_t>(magnitude)) * kSmallest;
  // A mask, because a conditional would become a branch, which is not vectorised.
  const std::uint32_t is_denormal = 0u - static_cast<std::uint32_t>(magnitude < (1u << kMantissaBits));
  return (std::bit_cast<std::uint32_t>(denormal) & is_denormal) | (normal & ~is_denormal);
}
struct F16 {
  using Element = std::uint16_t;
  static float widen(Element element) {
    const std::uint32_t bits = element, magnitude = bits & 0x7fff;
    const std::uint32_t value = widened<10, 112>(magnitude);
    const std::uint32_t special = magnitude >= 0x7c00 ? 0x7f800000u : 0u;
    return std::bit_cast<float>(value | special | (bits & 0x8000) << 16);
  }
};
struct Bf16 {
  using Element = std::uint16_t;
  static float widen(Element element) { return std::bit_cast<float>(std::uint32_t{element} << 16); }
};
struct Tf32 {
  using Element = std::uint32_t;
  static float widen(Element element) { return std::bit_cast<float>(element & 0xffffe000u); }
};
struct E4m3 {
  using Element = std::uint8_t;
  static float widen(Element element) {
    const std::uint32_t bits = element, magnitude = bits & 0x7f;
    const std::uint32_t value = widened<3, 120>(magnitude);
    const std::uint32_t special = magnitude == 0x7f ? 0x7fc00000u : 0u;
    return std::bit_cast<float>(value | special | (bits & 0x80) << 24);
  }
};
struct E5m2 {
  using Element = std::uint8_t;
  static float widen(Element element) {
    const std::uint32_t bits = element, magnitude = bits & 0x7f;
    const std::uint32_t value = widened<2, 112>(magnitude);
    const std::uint32_t special = magnitude >= 0x7c ? 0x7f800000u : 0u;
    return std::bit_cast<float>(value | special | (bits & 0x80) << 24);
  }
};
struct S8 {
  using Element = std::int8_t;
  static float widen(Element element) { return static_cast<float>(static_cast<std::int32_t>(element)); }
};
struct U8 {
  using Element = std::uint8_t;
  static float widen(Element element) { return static_cast<float>(static_cast<std::int32_t>(element)); }
};

template <class Type>
inline __attribute__((always_inline)) void unpack(const std::byte* const* registers, int count, float* panel) {
  using Element = typename Type::Element;
  constexpr int kElements = kRegisterBytes / sizeof(Element);
  for (int i = 0; i < count; ++i, panel += kElements) {
    Element elements[kElements];
    std::memcpy(elements, registers[i], kRegisterBytes);
    for (int at = 0; at < kElements; ++at) panel[at] = Type::widen(elements[at]);
  }
}

std::uint16_t narrow_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & ~kSign;
  // Rounds by adding just less than half of the last place that stays, and one more if that place is odd.
  const std::uint32_t normal = (magnitude + 0xfff + (magnitude >> 13 & 1) - (112u << 23)) >> 13;
  // 2^-24, f16's smallest step, is the last place of a float in [0.5, 1): the addition rounds.
  const std::uint32_t denormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - std::bit_cast<std::uint32_t>(0.5f);
  std::uint32_t result = magnitude < 0x38800000u ? denormal : normal;
  result = magnitude >= 0x477ff000u ? 0x7c00u : result;  // 65520 and above
  result |= bits >> 16 & 0x8000u;
  return static_cast<std::uint16_t>(magnitude > 0x7f800000u ? 0x7fffu : result);
}

}  // namespace

KERNELWRIGHT_TARGET_CLONES void unpack_f16(const std::byte* const* registers, int count, float* panel) {
  unpack<F16>(registers, count, panel);
}
KERNELWRIGHT_TARGET_CLONES void unpack_bf16(const std::byte* const* registers, int count, float* panel) {
  unpack<Bf16>(registers, count, panel);
}
KERNELWRIGHT_TARGET_CLONES void unpack_tf32(const std::byte* const* registers, int count, float* panel) {
  unpack<Tf32>(registers, count, panel);
}
KERNELWRIGHT_TARGET_CLONES void unpack_e4m3(const std::byte* const* registers, int count, float* panel) {
  unpack<E4m3>(registers, count, panel);
}
KERNELWRIGHT_TARGET_CLONES void unpack_e5m2(const std::byte* const* registers, int count, float* panel) {
  unpack<E5m2>(registers, count, panel);
}
KERNELWRIGHT_TARGET_CLONES void unpack_s8(const std::byte* const* registers, int count, float* panel) {
  unpack<S8>(registers, count, panel);
}
KERNELWRIGHT_TARGET_CLONES void unpack_u8(const std::byte* const* registers, int count, float* panel) {
  unpack<U8>(registers, count, panel);
}

KERNELWRIGHT_TARGET_CLONES void load_f32(const std::byte* const* registers, int halves, Accumulators& accumulators) {
  for (int half = 0; half < halves; ++half) {
    float even[32], odd[32];
    std::memcpy(even, registers[2 * half], kRegisterBytes);
    std::memcpy(odd, registers[2 * half + 1], kRegisterBytes);
    float* to = accumulators.value + half * 64;
    for (int lane = 0; lane < 32; ++lane) {
      to[2 * lane] = even[lane];
      to[2 * lane + 1] = odd[lane];
    }
  }
}

KERNELWRIGHT_TARGET_CLONES void load_f16(const std::byte* const* registers, int halves, Accumulators& accumulators) {
  for (int half = 0; half < halves; ++half) {
    std::uint16_t elements[64];
    std::memcpy(elements, registers[half], kRegisterBytes);
    for (int i = 0; i < 64; ++i) accumulators.value[half * 64 + i] = F16::widen(elements[i]);
  }
}

KERNELWRIGHT_TARGET_CLONES void store_f32(std::byte* const* registers, int halves, const Accumulators& accumulators) {
  for (int half = 0; half < halves; ++half) {
    std::uint32_t even[32], odd[32], from[64];
    std::memcpy(from, accumulators.value + half * 64, sizeof from);
    for (std::uint32_t& bits : from) bits = (bits & ~kSign) > 0x7f800000u ? 0x7fffffffu : bits;
    for (int lane = 0; lane < 32; ++lane) {
      even[lane] = from[2 * lane];
      odd[lane] = from[2 * lane + 1];
    }
    std::memcpy(registers[2 * half], even, kRegisterBytes);
    std::memcpy(registers[2 * half + 1], odd, kRegisterBytes);
  }
}

KERNELWRIGHT_TARGET_CLONES void store_f16(std::byte* const* registers, int halves, const Accumulators& accumulators) {
  for (int half = 0; half < halves; ++half) {
    std::uint16_t elements[64];
    for (int i = 0; i < 64; ++i) elements[i] = narrow_to_f16(accumulators.value[half * 64 + i]);
    std::memcpy(registers[half], elements, kRegisterBytes);
  }
}

KERNELWRIGHT_TARGET_CLONES void add_s32(std::byte* const* d, const std::byte* const* c, int halves, bool saturate,
                                        const Accumulators& sums) {
  for (int half = 0; half < halves; ++half)
    for (int odd = 0; odd < 2; ++odd) {
      std::int32_t values[32];
      std::memcpy(values, c[2 * half + odd], kRegisterBytes);
      for (int lane = 0; lane < 32; ++lane) {
        const auto sum = static_cast<std::int32_t>(sums.value[half * 64 + 2 * lane + odd]);
        if (saturate) {
          constexpr std::int64_t kLow = std::numeric_limits<std::int32_t>::min(),
                                 kHigh = std::numeric_limits<std::int32_t>::max();
          const std::int64_t exact = std::int64_t{values[lane]} + sum;
          values[lane] = static_cast<std::int32_t>(exact < kLow ? kLow : exact > kHigh ? kHigh : exact);
        } else {
          values[lane] =
              static_cast<std::int32_t>(static_cast<std::uint32_t>(values[lane]) + static_cast<std::uint32_t>(sum));
        }
      }
      std::memcpy(d[2 * half + odd], values, kRegisterBytes);
    }
}

KERNELWRIGHT_TARGET_CLONES void multiply_accumulate(const float* a, const float* b, int halves, int chunks,
                                                    int row_elements, Accumulators& accumulators) {
  typedef float Row __attribute__((vector_size(kMmaColumns * sizeof(float))));
  alignas(64) float b_by_k[kMaxMmaDepth * kMmaColumns];  // [k][n]
  const int chunk_size = kRows * row_elements;
  for (int chunk = 0; chunk < chunks; ++chunk)
    transpose_8_rows(b + chunk * chunk_size, row_elements, row_elements, b_by_k + chunk * chunk_size);
  for (int half = 0; half < halves; ++half) {
    Row* result = reinterpret_cast<Row*>(accumulators.value) + half * kRows;
    const Row* b_row = reinterpret_cast<const Row*>(b_by_k);
    Row rows[kRows];
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) rows[m] = result[m];
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const float* a_column = a + (chunk * halves + half) * chunk_size;
      for (int k = 0; k < row_elements; ++k, ++a_column, ++b_row) {
#pragma GCC unroll 8
        for (int m = 0; m < kRows; ++m) rows[m] += a_column[m * row_elements] * *b_row;
      }
    }
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) result[m] = rows[m];
  }
}

}  // namespace kernelwright::emulator

/// The arithmetic of mma.sync: a warp's fragments as panels of floats, and the product of the panels.
///
/// A fragment register is an array over lanes. PTX places elements so that the array's 128 bytes are eight rows of 16
/// bytes, row after row (A: rows of the matrix; B: columns). A fragment of several registers tiles its matrix. For A
/// the registers run down first (`halves` of 8 rows), then along k in chunks of 16 bytes. So one rule reads every shape
/// and type, and unpacking converts contiguous elements.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kernelwright::emulator {

inline constexpr int kMmaColumns = 8;
inline constexpr int kMaxMmaRows = 16;
inline constexpr int kMaxMmaDepth = 32;

/// Converts `count` registers of 128 bytes to `panel`, element after element: [count][8][16 / sizeof(element)].
using Unpack = void (*)(const std::byte* const* registers, int count, float* panel);
void unpack_f16(const std::byte* const* registers, int count, float* panel);
void unpack_bf16(const std::byte* const* registers, int count, float* panel);
void unpack_tf32(const std::byte* const* registers, int count, float* panel);  // the low 13 bits are ignored
void unpack_e4m3(const std::byte* const* registers, int count, float* panel);
void unpack_e5m2(const std::byte* const* registers, int count, float* panel);
void unpack_s8(const std::byte* const* registers, int count, float* panel);
void unpack_u8(const std::byte* const* registers, int count, float* panel);

/// Accumulators [8 * halves][kMmaColumns], contiguous. In f32 and s32, a pair of registers holds a half: lane 4r + t
/// has columns 2t and 2t + 1 of row r. In f16, one register holds both columns.
struct alignas(64) Accumulators {
  float value[kMaxMmaRows * kMmaColumns];
};
void load_f32(const std::byte* const* registers, int halves, Accumulators& accumulators);
void load_f16(const std::byte* const* registers, int halves, Accumulators& accumulators);
/// A NaN is stored as tensor cores write it: 0x7fffffff, or 0x7fff.
void store_f32(std::byte* const* registers, int halves, const Accumulators& accumulators);
void store_f16(std::byte* const* registers, int halves, const Accumulators& accumulators);  // to nearest even
/// d = c + sums; the sums are integers below 2^24. The result wraps around, or saturates at the ends of s32.
void add_s32(std::byte* const* d, const std::byte* const* c, int halves, bool saturate, const Accumulators& sums);

/// accumulators[m][n] += sum over k of a[m][k] * b[n][k], in order of k. Each step is rounded once, to nearest even in
/// f32. `a` is the panel of chunks * halves registers, `b` the panel of `chunks`; k = chunks * row_elements. All
/// products of the types above are exact in f32, except bf16 and tf32 products beyond its exponents. Only this function
/// defines how the emulated tensor core sums. The hardware sums differently (docs/emulator/README.md).
void multiply_accumulate(const float* a, const float* b, int halves, int chunks, int row_elements,
                         Accumulators& accumulators);

}  // namespace kernelwright::emulator

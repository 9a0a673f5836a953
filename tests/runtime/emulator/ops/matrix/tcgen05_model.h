/// tcgen05.mma as the ISA describes it, for tests: it takes each element from its place in the ISA's figures, one at a
/// time, and multiplies in double. It shares only the number formats with the emulator's code.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "contract/tcgen05_descriptor.h"
#include "kernelwright/runtime/emulator/numbers/number_formats.h"
#include "kernelwright/runtime/emulator/ops/matrix/tcgen05_mma.h"
#include "kernelwright/runtime/emulator/ops/matrix/tcgen05_shape.h"

namespace kernelwright::emulator::test {

using contract::InstructionDescriptor;
using contract::MmaElement;
using contract::MmaKind;
using contract::MmaOutput;
using contract::MmaScale;
using contract::MmaSwizzle;
using contract::SharedDescriptor;

/// One multiplication. What is not said is the plainest: f16, M = 128, A and B K-major with the 128B swizzle.
struct MmaCase {
  MmaKind kind = MmaKind::kF16;
  MmaElement a = MmaElement::kF16, b = MmaElement::kF16;
  MmaOutput d = MmaOutput::kF32;
  std::uint32_t m = 128, n = 64;
  int cta_group = 1;
  bool weight_stationary = false;
  MmaSwizzle a_swizzle = MmaSwizzle::k128B, b_swizzle = MmaSwizzle::k128B;
  bool a_mn_major = false, b_mn_major = false;
  bool a_tensor = false;
  bool negate_a = false, negate_b = false, saturate = false, accumulate = true;
  int scale_block = 0;
  MmaScale scale = MmaScale::kUe8m0;
  std::uint32_t scale_a_id = 0, scale_b_id = 0;
  bool k96 = false;
  int scale_d = 0;
  std::uint32_t base_offset = 0;  // of both descriptors
  std::uint32_t first_lane = 0;   // of D and A: 0, or 16 with M = 64
  std::array<std::uint32_t, 8> disabled{};
  bool whole_numbers = true;  // small ones, so that every sum is exact; else any finite code
  std::uint32_t seed = 1;
};

inline bool packed(const MmaCase& c) { return c.kind == MmaKind::kMxf4 || c.kind == MmaKind::kMxf4nvf4; }
inline int bits_of(MmaElement element) {
  switch (element) {
    case MmaElement::kTf32: return 32;
    case MmaElement::kF16:
    case MmaElement::kBf16: return 16;
    case MmaElement::kE2m3:
    case MmaElement::kE3m2: return 6;
    case MmaElement::kE2m1: return 4;
    default: return 8;
  }
}
/// Elements in 16 bytes of shared memory.
inline int per_unit(const MmaCase& c, MmaElement element) {
  return packed(c) ? 32 : bits_of(element) >= 8 ? 128 / bits_of(element) : 16;
}
inline std::uint32_t depth_of(const MmaCase& c) {
  return packed(c) ? (c.k96 ? 96u : 64u) : 2u * static_cast<std::uint32_t>(per_unit(c, c.a));
}

inline double value_of(MmaElement element, std::uint32_t code) {
  switch (element) {
    case MmaElement::kF16: return decode_number(kF16, code);
    case MmaElement::kBf16: return decode_number(kBf16, code);
    case MmaElement::kTf32: return decode_number(kTf32, code >> 13);
    case MmaElement::kE4m3: return decode_number(kE4m3, code);
    case MmaElement::kE5m2: return decode_number(kE5m2, code);
    case MmaElement::kE2m3: return decode_number(kE2m3, code);
    case MmaElement::kE3m2: return decode_number(kE3m2, code);
    case MmaElement::kE2m1: return decode_number(kE2m1, code);
    case MmaElement::kU8: return code;
    case MmaElement::kS8: return static_cast<std::int8_t>(code);
  }
  return 0;
}
/// A code to multiply with: of a whole number from -3 to 3 (u8: 0 to 6), or any that is finite.
inline std::uint32_t draw(MmaElement element, bool whole, std::mt19937& random) {
  for (;;) {
    std::uint32_t code = random();
    if (bits_of(element) < 32) code &= (1u << bits_of(element)) - 1;
    if (element == MmaElement::kBf16 || element == MmaElement::kTf32) {  // of the many exponents, those near 1
      const std::uint32_t shift = element == MmaElement::kBf16 ? 0 : 16;
      code = (code & ~(0x7f80u << shift)) | (120 + random() % 12) << (7 + shift);
      if (whole) code = static_cast<std::uint32_t>(f32_to_bf16(static_cast<float>(random() % 7) - 3)) << shift;
    }
    if (element == MmaElement::kF16 && whole) code = f32_to_f16(static_cast<float>(random() % 7) - 3);
    const double value = value_of(element, code);
    if (!std::isfinite(value) || (element == MmaElement::kF16 && std::fabs(value) > 16)) continue;
    if (!whole || (value == std::floor(value) && std::fabs(value) <= 6)) return code;
  }
}

/// Where unit `unit` of line `line` begins, in bytes from the operand's first byte, as if there were no swizzle. A line
/// is a row and its units run along K (K-major), or a line is a k and its units run along M or N (MN-major). There are
/// `lines` lines.
struct Placement {
  SharedDescriptor descriptor;
  std::function<std::uint32_t(std::uint32_t line, std::uint32_t unit)> place;
  std::uint32_t bytes = 0;  // that all of it takes
};
inline Placement placement(MmaSwizzle swizzle, bool mn_major, std::uint32_t lines, std::uint32_t units) {
  Placement p;
  p.descriptor.swizzle = swizzle;
  const std::uint32_t span = swizzle == MmaSwizzle::kNone  ? 1
                             : swizzle == MmaSwizzle::k32B ? 2
                             : swizzle == MmaSwizzle::k64B ? 4
                                                           : 8;
  const std::uint32_t high = mn_major && swizzle == MmaSwizzle::k128BAtom32B ? 4 : 8;  // lines of an atom
  const std::uint32_t atom = high * span * 16;
  const std::uint32_t line_groups = (lines + high - 1) / high, unit_groups = (units + span - 1) / span;
  // Atoms side by side first, then down. Without a swizzle there are gaps of 16 bytes, so that a wrong stride is
  // noticed.
  const std::uint32_t gap = swizzle == MmaSwizzle::kNone ? 16 : 0;
  const std::uint32_t across = atom + gap, down = unit_groups * across + gap;
  p.bytes = line_groups * down;
  p.place = [=](std::uint32_t line, std::uint32_t unit) {
    return line / high * down + line % high * span * 16 + unit / span * across + unit % span * 16;
  };
  const bool none = swizzle == MmaSwizzle::kNone;
  p.descriptor.stride_bytes = none && mn_major ? across : down;
  p.descriptor.leading_bytes = none && mn_major ? down : across;
  return p;
}
/// The swizzle as the ISA's figures have it: units of 16 bytes (or 32) within a row of 128 bytes, by the row's number.
inline std::uint32_t swizzled(MmaSwizzle swizzle, std::uint32_t address, std::uint32_t pattern_begin) {
  const std::uint32_t row = (address - pattern_begin) / 128 % 8;  // of the pattern
  const std::uint32_t unit = address / 16 % 8;
  std::uint32_t to = unit;
  if (swizzle == MmaSwizzle::k128B) to = unit ^ row;
  if (swizzle == MmaSwizzle::k64B) to = unit ^ row % 4;
  if (swizzle == MmaSwizzle::k32B) to = unit ^ row % 2;
  if (swizzle == MmaSwizzle::k128BAtom32B) to = unit ^ row % 4 * 2;
  return address - unit * 16 + to * 16;
}

/// Sets `bits` bits from bit `at` of the bytes on.
inline void put_bits(std::byte* bytes, std::size_t at, int bits, std::uint32_t code) {
  for (int i = 0; i < bits; ++i, ++at) {
    const auto mask = static_cast<std::byte>(1u << at % 8);
    bytes[at / 8] = (code >> i & 1) ? bytes[at / 8] | mask : bytes[at / 8] & ~mask;
  }
}

/// The row of D (of those in one CTA) and the first of its columns that a lane has; false if it has none.
struct LaneRow {
  bool used = false;
  std::uint32_t row = 0, column = 0, columns = 0;
};
inline LaneRow lane_row(const MmaCase& c, std::uint32_t lane) {
  const std::uint32_t rows = c.m / static_cast<std::uint32_t>(c.cta_group);
  if (rows == 128) return {true, lane, 0, c.n};                 // layouts A and D
  if (c.cta_group == 2 || (c.weight_stationary && rows == 64))  // B and E
    return {true, lane % 64, lane / 64 * (c.n / 2), c.n / 2};
  if (rows == 32) return {true, lane % 32, lane / 32 * (c.n / 4), c.n / 4};      // G
  const bool used = lane % 32 >= c.first_lane && lane % 32 < c.first_lane + 16;  // F
  return {used, lane / 32 * 16 + lane % 16, 0, c.n};
}

/// The numbers to multiply.
struct MmaNumbers {
  std::vector<std::uint32_t> a, b;             // codes [m][k], [n][k]
  std::vector<std::uint32_t> d;                // cells [m][n]
  std::vector<std::uint8_t> scale_a, scale_b;  // codes [m][k / block], [n][k / block]
};
MmaNumbers draw_numbers(const MmaCase& c);

/// The machine with the operands in place.
struct MmaRun : MmaNumbers {
  explicit MmaRun(const MmaCase& c) : MmaRun(c, draw_numbers(c)) {}
  MmaRun(const MmaCase& c, MmaNumbers numbers);
  /// Multiplies on the emulator.
  void perform();
  /// The expected value by row of D and column, and the bound of its error.
  double expected(std::uint32_t row, std::uint32_t n, double* bound = nullptr) const;
  /// All of D, as cells, row after row.
  std::vector<std::uint32_t> cells() const;
  std::uint32_t cell(std::uint32_t row, std::uint32_t n) const { return cells()[row * c.n + n]; }
  /// The number that a cell is.
  double value(std::uint32_t cell) const;
  double before(std::uint32_t row, std::uint32_t n) const { return value(d[row * c.n + n]); }

  MmaCase c;
  std::uint32_t k = 0;
  std::vector<double> a_values, b_values;  // with their scales
  std::unique_ptr<Cluster> cluster;
  std::uint32_t instruction_descriptor = 0;
  Tcgen05Mma mma;
  static constexpr std::uint32_t kD = 64, kA = 384, kScaleA = 448, kScaleB = 480;  // columns
};

/// Compares every element of D with the model. Returns what is wrong, or "".
std::string mismatch(const MmaRun& run);

}  // namespace kernelwright::emulator::test
